"""SAQ on Postgres, with the pool and the concurrency that it comes with; larger ones were no faster: jobs by
`Queue.enqueue`, and a worker that works on many jobs at a time. It has no call for many jobs at once."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from saq import Queue, Worker

from bench.payload import PAYLOAD
from bench.peers.program import Peer, serve

_LOOK_SEC: Final = 0.05


class Saq(Peer):
    """A queue and one function, which does nothing."""

    takes_many = False

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    async def submit(self) -> None:
        await self._queue.enqueue("work", **PAYLOAD)

    async def drain(self, size: int) -> float:  # noqa: ARG002 - it takes as many as it works on
        last = time.perf_counter()

        async def note(_: Any) -> None:
            nonlocal last
            last = time.perf_counter()

        async with self._working(after_process=note):
            while await self._queue.count("incomplete"):  # noqa: ASYNC110 - it tells nobody that it is empty
                await asyncio.sleep(_LOOK_SEC)
        return last

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with self._working():
            yield

    @asynccontextmanager
    async def _working(self, **options: Any) -> AsyncIterator[None]:
        worker = Worker(self._queue, functions=[("work", self._work)], **options)
        working = asyncio.create_task(worker.start())
        yield
        await worker.stop()
        await working

    async def _work(self, _: Any, **__: Any) -> None:
        self.worked()


async def main(url: str) -> None:
    """Serve commands. It makes its tables itself where there are none."""
    queue = Queue.from_url(url)
    await queue.connect()
    await serve(Saq(queue))
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
