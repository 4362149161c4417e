"""procrastinate: jobs by `defer_async` and `batch_defer_async` over a pool of psycopg connections, and a worker that
works on many jobs at a time. It takes and reports jobs one by one and knows no batches there."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import procrastinate

from bench.payload import PAYLOAD
from bench.peers.program import Peer, serve

_CONNECTIONS: Final = 16
"""Four as it comes. With 32 it was no faster than with eight: who notifies commits in turn."""

_CONCURRENCY: Final = 10
"""One as it comes, which leaves the processors idle. With 32 or 100 it was no faster than with eight."""


class Procrastinate(Peer):
    """An app with one task, which does nothing."""

    def __init__(self, app: procrastinate.App) -> None:
        super().__init__()
        self._app = app
        self._task = app.task(self._work, name="work")

    async def submit(self) -> None:
        await self._task.defer_async(**PAYLOAD)

    async def submit_many(self, size: int) -> None:
        await self._task.batch_defer_async(*[PAYLOAD] * size)

    async def drain(self, size: int) -> float:  # noqa: ARG002 - it takes one at a time
        await self._app.run_worker_async(wait=False, concurrency=_CONCURRENCY, install_signal_handlers=False)
        return time.perf_counter()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self._app.run_worker_async(install_signal_handlers=False))
        yield
        working.cancel()
        await asyncio.wait([working])

    async def _work(self, **_: Any) -> None:
        self.worked()


async def main(url: str, *, install: bool) -> None:
    """Serve commands; with `install`, on a database without tables."""
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=_CONNECTIONS, max_size=_CONNECTIONS)
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        if install:
            await app.schema_manager.apply_schema_async()
        await serve(Procrastinate(app))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], install="install" in sys.argv[2:]))
