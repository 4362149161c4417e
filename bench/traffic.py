"""What a service sees all day: clients submit one by one, workers wait for jobs, take what there is and report it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from bench.load import Taken, closed_loop, open_loop
from bench.served import Served
from bench.wire import Address, Connection, claim, claimed_in, finish, finished_in, job, post, submits

WORKERS: Final = 4
_CLAIMED_AT_ONCE: Final = 100
_WAIT_SEC: Final = 10
_PATIENCE_SEC: Final = 60.0
_CONNECTIONS: Final = 64
_DELAY_SEC: Final = 1
_DUE: Final = "due"


class Workers:
    """Workers on connections of this process. `picked_up_ms` is how long after it was due each job came to one."""

    def __init__(self, address: Address) -> None:
        self.picked_up_ms: list[float] = []
        self.done = 0
        self._address = address
        self._news = asyncio.Event()
        self._working = [asyncio.create_task(self._work(f"bench-{number}")) for number in range(WORKERS)]

    async def end_after(self, jobs: int) -> None:
        """Wait until so many jobs are done, and let them go. Raises `TimeoutError` if some are lost."""
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                while self.done < jobs:
                    self._news.clear()
                    await self._news.wait()
                    for ended in filter(asyncio.Task.done, self._working):
                        ended.result()
        finally:
            for working in self._working:
                working.cancel()
            await asyncio.wait(self._working)

    async def _work(self, name: str) -> None:
        connection = await Connection.to(self._address)
        asking = claim(name, _CLAIMED_AT_ONCE, _WAIT_SEC)
        try:
            while True:
                jobs = claimed_in(await connection.ask(asking))
                now = time.perf_counter()
                self.picked_up_ms += [(now - due) * 1000 for each in jobs if (due := each.payload.get(_DUE))]
                if jobs:
                    finished = finished_in(await connection.ask(finish(jobs)))
                    self.done += finished  # others have counted while this one waited
                    self._news.set()
        finally:
            self._news.set()
            connection.close()


async def top_rate(served: Served, clients: int, sec: float) -> float:
    """How many jobs a second go all the way when everybody does as much as there is to do."""
    workers = Workers(served.address)
    taken = await closed_loop(served.address, submits(), clients, sec)
    done = workers.done
    await workers.end_after(len(taken.took_ms))
    return max(1, done) / taken.sec


async def paced(served: Served, rate: float, sec: float, delayed_each: int = 0) -> tuple[Taken, list[float]]:
    """Jobs at a rate, submitted whether the last ones are answered or not: what the submits took, and how long after it
    was due each was with a worker. Of so many, one is delayed by a second, and its way is not counted."""
    workers = Workers(served.address)
    taken = await open_loop(served.address, _dated(delayed_each), _CONNECTIONS, rate, sec)
    await workers.end_after(len(taken.took_ms))
    return taken, workers.picked_up_ms


def _dated(delayed_each: int) -> Callable[[float], bytes]:
    """Requests whose payload says when they were due."""
    number = 0

    def request(due: float) -> bytes:
        nonlocal number
        number += 1
        if delayed_each and number % delayed_each == 0:
            return post("/jobs", job(number, delay_sec=_DELAY_SEC))
        return post("/jobs", job(number, payload={_DUE: due}))

    return request
