"""pgqueuer: jobs by `Queries.enqueue` over a pool of asyncpg connections, the driver that its pages call the fastest,
and a worker that takes and reports as many at a time as its `batch_size` says. On the event loop that its own command
line runs workers on."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import uvloop
from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

from bench.payload import PAYLOAD
from bench.peers.program import Peer, serve

_CONNECTIONS: Final = 16
_BODY: Final = json.dumps(PAYLOAD).encode()
_ENTRYPOINT: Final = "work"


class Pgqueuer(Peer):
    """Queues with one entrypoint, which does nothing."""

    def __init__(self, pool: asyncpg.Pool, queries: Queries) -> None:
        super().__init__()
        self._pool = pool
        self._queries = queries

    async def submit(self) -> None:
        await self._queries.enqueue(_ENTRYPOINT, _BODY)

    async def submit_many(self, size: int) -> None:
        await self._queries.enqueue([_ENTRYPOINT] * size, [_BODY] * size, [0] * size)

    async def drain(self, size: int) -> float:
        await self._made().run(batch_size=size, mode=QueueExecutionMode.drain)
        return time.perf_counter()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        made = self._made()
        working = asyncio.create_task(made.run())
        yield
        made.shutdown.set()
        await asyncio.wait([working])

    def _made(self) -> PgQueuer:
        made = PgQueuer.from_asyncpg_pool(self._pool)
        made.entrypoint(_ENTRYPOINT)(self._work)
        return made

    async def _work(self, _: Job) -> None:
        self.worked()


async def main(url: str, *, install: bool) -> None:
    """Serve commands; with `install`, on a database without tables."""
    async with asyncpg.create_pool(url, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        if install:
            await queries.install()
        await serve(Pgqueuer(pool, queries))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], install="install" in sys.argv[2:]))
