"""Clients at work on a service whose database is in trouble: what they are told is written down, and held against the
tables in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tests.databases import Database
from tests.effort import chance_of
from tests.history.checker import violations
from tests.history.clients import Site, set_up
from tests.history.record import Call, History
from tests.history.tables import read_tables
from tests.history.terms import Terms
from tests.served import PATIENCE_SEC, Served, serving

CROWD: Final = 16
"""More than the service has connections to its database."""

ANSWER_SEC: Final = 9.5
"""Promised are 3 s, and on a quiet machine it takes 2.9 at most; the rest is for slow ones. Before, it took 30."""

WHOLE_SEC: Final = 25.0
"""Promised are 5 s after the trouble is over."""


class Clients:
    """Everybody who uses the service, as far as a test wants to know of them, and the chance by which it acts."""

    def __init__(self, site: Site, served: Served) -> None:
        self._site = site
        self.served = served
        self.chance = site.chance

    @property
    def history(self) -> History:
        """All that they were told."""
        return self._site.history

    @asynccontextmanager
    async def trouble(self, name: str) -> AsyncIterator[None]:
        """The block makes trouble. After it everything is as before, soon: the service is ready, work goes on, and each
        of its connections serves."""
        with self.history.fault(name):
            yield
            async with asyncio.timeout(WHOLE_SEC):
                await self.see_ready(200)
                await self.progress()
                await self.look_at_once(200)

    async def progress(self, count: int = 20) -> None:
        """Wait until so many more jobs are completed."""
        await self._more(count, lambda call: call.is_ok and call.kind == "complete")

    async def refused(self, count: int) -> None:
        """Wait until so many more calls are answered with a 503."""
        await self._more(count, lambda call: call.status == 503)

    async def look_at_once(self, status: int) -> None:
        """More reads at the same time than there are connections, and each is answered so."""
        async with self._site.voice("many at once") as voice:
            calls = await asyncio.gather(*(voice.list_jobs("?limit=1") for _ in range(10)))
        assert [call.status for call in calls] == [status] * 10

    async def see_ready(self, status: int) -> None:
        """Wait until a probe of the service gets this."""
        async with self.served.client() as client, asyncio.timeout(PATIENCE_SEC):
            while (await client.get("/health/ready")).status_code != status:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
            assert (await client.get("/health/live")).status_code == 200  # no trouble of a database is its death

    async def _more(self, count: int, matches: Callable[[Call], bool]) -> None:
        begun = len(self.history.calls)
        async with asyncio.timeout(PATIENCE_SEC):
            while sum(matches(call) for call in self.history.calls[begun:]) < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)


@asynccontextmanager
async def at_work(database: Database, name: str, *, url: str = "") -> AsyncIterator[Clients]:
    """A service on the database, by `url` if it is to take another way there, and clients at work for the duration of
    the block. Every call was answered, in time, and with nothing worse than that the database is away; and the tables
    say what the clients were told."""
    async with serving(url or database.url) as served:
        site = Site(served.url, chance_of(name), CROWD)
        site.up.set()
        async with site.voice("operator") as voice:
            await set_up(site, voice)
        clients = Clients(site, served)
        async with site.at_work():
            await clients.progress(5)
            yield clients
        print(f"{name}: {_summary(site.history)}")  # noqa: T201 - pytest shows it where asked
        assert await served.stop() == 0
    assert {call.status for call in site.history.calls} <= {200, 201, 404, 409, 422, 429, 503}
    assert max(_seconds(call) for call in site.history.calls) < ANSWER_SEC
    assert violations(site.history, await read_tables(database), Terms()) == []


def _seconds(call: Call) -> float:
    """How long an answer took, beyond what was asked to be waited for."""
    asked = call.body.get("wait_sec", 0) if call.kind == "claim" else 0
    return call.returned_at - call.invoked_at - float(asked)


def _summary(history: History) -> str:
    """For whoever reads the report of a run."""
    statuses = Counter(call.status or 0 for call in history.calls)
    counts = ", ".join(f"{status or 'no answer'} x {n}" for status, n in sorted(statuses.items()))
    slowest = max(history.calls, key=_seconds)
    done = sum(call.is_ok for call in history.of("complete"))
    return f"{done} completed; {counts}; the slowest: {slowest} after {_seconds(slowest):.2f} s"
