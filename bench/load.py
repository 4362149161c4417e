"""Load on a service from this process: as fast as it answers, or at a rate that does not care how fast it answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Final

from bench.figures import GENERATOR, P50, P99, RATE, percentile
from bench.rounds import Sample
from bench.wire import Address, Connection

_SEED: Final = 2026
"""Of when requests come: the same each time."""


class Taken:
    """What a run took, as it goes."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()
        self.took_ms: list[float] = []
        self.sec = 0.0
        self.cpu_percent = 0.0

    def answered(self, since: float) -> None:
        self.took_ms.append((time.perf_counter() - since) * 1000)

    def end(self) -> None:
        self.sec = time.perf_counter() - self._began
        self.cpu_percent = 100 * (time.process_time() - self._cpu) / self.sec

    def sample(self, jobs_each: int = 1) -> Sample:
        """The measures of a table's row."""
        return {
            RATE: jobs_each * len(self.took_ms) / self.sec,
            P50: percentile(self.took_ms, 50),
            P99: percentile(self.took_ms, 99),
            GENERATOR: self.cpu_percent,
        }


async def closed_loop(address: Address, requests: Sequence[bytes], connections: int, sec: float) -> Taken:
    """So many clients, each of which sends its next request when the last one is answered."""
    made = [await Connection.to(address) for _ in range(connections)]
    following, taken = cycle(requests), Taken()
    until = time.perf_counter() + sec
    await _all_of(made, [_Client(connection, following.__next__, taken, until).done for connection in made])
    taken.end()
    return taken


class _Client:
    """Sends one request after the other until the time is up. Callbacks, for a task and a future a request would cost
    more than the request."""

    def __init__(self, connection: Connection, following: Callable[[], bytes], taken: Taken, until: float) -> None:
        self._connection = connection
        self._following = following
        self._taken = taken
        self._until = until
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._connection.send(self._following(), self._answered)

    def _answered(self, _: bytes) -> None:
        self._taken.answered(self._sent_at)
        if time.perf_counter() < self._until:
            self._send()
        else:
            self.done.set_result(None)


async def open_loop(
    address: Address, request_due: Callable[[float], bytes], connections: int, rate: float, sec: float
) -> Taken:
    """Requests that come by chance, `rate` a second, whether the last ones are answered or not. The time of each counts
    from when it was due: what waits for a free connection, or for this process, waits on the clock."""
    made = [await Connection.to(address) for _ in range(connections)]
    crowd = _Crowd(made, request_due)
    sending = asyncio.create_task(crowd.send_at(rate, sec))
    await _all_of(made, [sending, crowd.done])
    crowd.taken.end()
    return crowd.taken


class _Crowd:
    """Requests on whichever connection is free."""

    def __init__(self, connections: Sequence[Connection], request_due: Callable[[float], bytes]) -> None:
        self.taken = Taken()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._free = deque(connections)
        self._due: deque[float] = deque()
        self._request_due = request_due
        self._unanswered = 0
        self._complete = False

    async def send_at(self, rate: float, sec: float) -> None:
        chance = random.Random(_SEED)
        began = due = time.perf_counter()
        while due < began + sec:
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            self._unanswered += 1
            self._due.append(due)
            self._send()
            due += chance.expovariate(rate)
        self._complete = True
        self._look_whether_done()

    def _send(self) -> None:
        while self._free and self._due:
            connection, due = self._free.popleft(), self._due.popleft()
            connection.send(self._request_due(due), partial(self._answered, connection, due))

    def _answered(self, connection: Connection, since: float, _: bytes) -> None:
        self.taken.answered(since)
        self._unanswered -= 1
        self._free.append(connection)
        self._send()
        self._look_whether_done()

    def _look_whether_done(self) -> None:
        if self._complete and not self._unanswered and not self.done.done():
            self.done.set_result(None)


async def _all_of(connections: Sequence[Connection], work: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all the work, or fail with the first connection that does."""
    everything = asyncio.ensure_future(_every(work))
    ended = [connection.ended for connection in connections]
    try:
        await asyncio.wait({everything, *ended}, return_when=asyncio.FIRST_COMPLETED)
        for end in () if everything.done() else ended:
            if end.done():
                end.result()
        await everything
    finally:
        everything.cancel()
        for connection in connections:
            connection.close()


async def _every(work: Sequence[asyncio.Future[None]]) -> None:
    await asyncio.gather(*work)
