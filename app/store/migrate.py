"""Brings a database to the schema of this version, and says which schema it has. A run of migrations is one
transaction on both engines: all of it is there afterwards or none, and two runs at once wait for each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import app
from app.errors import BadSettings, NotServed, SchemaOutdated
from app.store import copies
from app.store.dialect import POSTGRES, SQLITE
from app.store.engine import Address, open_engines, open_migrator, parse_url
from app.store.schema import metadata

BASE: Final = "base"
"""The revision of a database in which nothing is."""

_LOCK: Final = 0x466169726C616E65  # "Fairlane", as the number of a Postgres advisory lock


@dataclass(frozen=True, slots=True)
class Status:
    """The revision a database has (None: nothing at all), the one it should have, and what lies between."""

    current: str | None
    head: str
    pending: tuple[str, ...]


async def upgrade(url: str, revision: str = "head") -> None:
    """Applies every migration up to `revision`. Does nothing if they are applied.

    Raises `BadSettings` if there are tables of the same names that are not ours.
    """
    await _in_one_transaction(url, lambda config: command.upgrade(config, revision))


async def downgrade(url: str, revision: str) -> None:
    """Takes back every migration after `revision`; `BASE` takes back all of them, and every row with them.

    Raises `NotServed` for half a copy and what was copied away: nothing would say any more that nobody may serve it.
    """
    async with _transaction(url) as connection:
        if revision != BASE:
            await _refuse_to_forget_a_copy(connection)
        await _run(connection, lambda config: command.downgrade(config, revision))


async def _refuse_to_forget_a_copy(connection: AsyncConnection) -> None:
    if not await connection.run_sync(lambda plain: inspect(plain).has_table(copies.TABLE)):
        return
    try:
        await copies.require_servable(connection)
    except NotServed as error:
        raise NotServed(f"an older schema cannot say it, so it is not taken back: {error}") from error


async def status(url: str) -> Status:
    """Which schema the database has. Changes nothing; a SQLite file that is not there is not made."""
    address = parse_url(url)
    if _is_missing(address):
        return _status(None)
    async with open_engines(url) as engines:
        return await _status_of(engines.reader)


async def require_current(engine: AsyncEngine) -> None:
    """Raises `SchemaOutdated` unless the database has the schema this version was written for."""
    found = await _status_of(engine)
    if found.current == found.head:
        return
    if found.pending:
        raise SchemaOutdated("the database's schema is older than this version's: run `fairlane migrate up`")
    raise SchemaOutdated(
        f"the database's schema ({found.current}) is newer than this version's ({found.head}):"
        " run a newer version of Fairlane"
    )


def migrate_within(connection: Connection, run: Callable[[], None]) -> None:
    """Runs migrations inside the transaction that is open on `connection`, alone among all who migrate."""
    if connection.dialect.name == POSTGRES:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    _refuse_tables_of_others(connection)
    run()
    if connection.dialect.name == SQLITE:
        _refuse_dangling(connection)


def _refuse_tables_of_others(connection: Connection) -> None:
    if MigrationContext.configure(connection).get_current_revision() is not None:
        return
    if taken := sorted({*inspect(connection).get_table_names()} & {*metadata.tables}):
        raise BadSettings(
            f"the database has tables that Fairlane has not made ({', '.join(taken)}): give it a database of its own"
        )


def _refuse_dangling(connection: Connection) -> None:
    """What foreign keys, off during a migration, would have refused."""
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if dangling:
        table, rowid, parent, _ = dangling[0]
        raise SchemaOutdated(
            f"{len(dangling)} rows refer to rows that do not exist; the first is row {rowid} of {table},"
            f" which wants one in {parent}. Nothing was migrated"
        )


async def _in_one_transaction(url: str, run: Callable[[Config], None]) -> None:
    async with _transaction(url) as connection:
        await _run(connection, run)


@asynccontextmanager
async def _transaction(url: str) -> AsyncIterator[AsyncConnection]:
    engine = open_migrator(url)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


async def _run(connection: AsyncConnection, run: Callable[[Config], None]) -> None:
    def run_on(plain: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = plain
        run(config)

    try:
        await connection.run_sync(run_on)
    except CommandError as error:
        raise SchemaOutdated(f"{error}; `fairlane migrate status` says where the database stands") from error


def alembic_config() -> Config:
    config = Config()
    # Alembic reads its options through configparser, to which a percent sign is a reference.
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    return config


def _migrations() -> Path:
    """Inside the package when it is installed, beside it in the repository."""
    package = Path(app.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _is_missing(address: Address) -> bool:
    return address.dialect == SQLITE and not Path(address.target).exists()


async def _status_of(engine: AsyncEngine) -> Status:
    async with engine.connect() as connection:
        current = await connection.run_sync(lambda plain: MigrationContext.configure(plain).get_current_revision())
    return _status(current)


def _status(current: str | None) -> Status:
    newest_first = _newest_first(_migrations())
    # A revision that is not among ours is a newer version's, and misses none of them.
    missing = takewhile(lambda revision: revision != current, newest_first)
    pending = tuple(missing) if current is None or current in newest_first else ()
    return Status(current, newest_first[0], pending[::-1])


@cache
def _newest_first(_folder: Path) -> tuple[str, ...]:
    return tuple(script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions())
