"""A service under load that somebody does bad things to, and the verdict in the end."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests import served
from tests.databases import Database
from tests.history.checker import violations
from tests.history.clients import Site, set_up
from tests.history.record import History
from tests.history.table import Row, Tell
from tests.history.tables import Tables, read_tables
from tests.history.terms import Terms
from tests.served import PATIENCE_SEC, Served

_LOOK_SEC: Final = 0.05


class Attacked:
    """A service on one address, its clients, and the process that serves at the moment."""

    def __init__(self, database: Database, chance: random.Random, crowd: int, settings: dict[str, Any]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.database = database
        self.chance = chance
        self.settings = settings
        self.site = Site(f"http://127.0.0.1:{self._port}", chance, crowd)
        self.served: Served

    @property
    def history(self) -> History:
        return self.site.history

    async def start(self, **settings: Any) -> None:
        """A process that listens, with these settings from now on."""
        await self.begin(**settings)
        await self.served.logged("server_listening")
        self.site.up.set()

    async def begin(self, **settings: Any) -> None:
        """A process on its way up."""
        self.settings |= settings
        self.served = await served.start(self.database.url, port=self._port, **self.settings)

    async def kill(self) -> None:
        """`kill -9`; nothing of the process is left when this returns, its sessions with the database neither."""
        self.site.up.clear()
        await self.served.kill()
        await sessions_end(self.database)

    async def stop(self) -> None:
        """The polite way."""
        self.site.up.clear()
        assert await self.served.stop() == 0

    async def verdict(self, terms: Terms, tell: Tell, fault: str) -> Tables:
        """What the checker finds once the service is stopped: nothing."""
        await self.stop()
        tables = await read_tables(self.database)
        found = violations(self.history, tables, terms)
        tell(Row.of(fault, self.database.kind, self.history, tables, found))
        assert found == []
        return tables


@asynccontextmanager
async def attacked(
    database: Database, chance: random.Random, *, crowd: int = 50, **settings: Any
) -> AsyncIterator[Attacked]:
    """A service that runs, with its tenants set up; whatever happens, no process of it is left in the end."""
    made = Attacked(database, chance, crowd, settings)
    try:
        await made.start()
        async with made.site.voice("administrator") as voice:
            await set_up(made.site, voice)
        yield made
    finally:
        await made.served.kill()


async def sessions_end(database: Database) -> None:
    """Wait until a process that was killed has no session left that could still commit."""
    if database.kind == "sqlite":
        return
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with asyncio.timeout(PATIENCE_SEC):
        while await database.value(others):  # noqa: ASYNC110 - a session sets no event
            await asyncio.sleep(_LOOK_SEC)


async def do_not_wait_for(database: Database) -> None:
    """Say by hand what the process that was killed did not say: that the next one need not watch it for a while."""
    await database.execute("UPDATE dispatcher SET expires_at = NULL")


async def count_by_state(database: Database) -> Counter[str]:
    """How many jobs there are in each state."""
    return Counter(dict(await database.fetch("SELECT state, count(*) FROM jobs GROUP BY state")))
