"""Claims that wait for a job, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter

from app.scheduling.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for; `queues` are tried in turn until `limit` jobs are found. `wait_sec` is how long it
    waits for the first, 0 being not at all."""

    worker: str
    queues: tuple[str, ...] = ("default",)
    limit: int = 1
    lease_sec: int = 30
    wait_sec: int = 0
    start: bool = False


@dataclass(slots=True, eq=False)
class Waiting:
    """A claim and its answer to come. `arrival` says who came first; `proposed_in` is the last transaction that
    proposed jobs for it, which may be under way still or have failed; `asked` is done once the write is that it has
    asked for, or once it needs it no more."""

    request: ClaimRequest
    arrival: int
    answer: asyncio.Future[list[Job]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    proposed_in: object = None
    asked: asyncio.Future[None] | None = None

    def give(self, leased: list[Job]) -> None:
        """Answer it. Whoever was leased jobs by another's write need not wait for his own."""
        self.answer.set_result(leased)
        if self.asked is not None and not self.asked.done():
            self.asked.set_result(None)

    def is_open(self, transaction: object) -> bool:
        """Whether it still wants jobs, as far as `transaction` knows."""
        return not self.answer.done() and (self.proposed_in is None or self.proposed_in is not transaction)


class WaitingClaims:
    """All claims that have no answer yet. `ended` is done once nobody gets anything any more."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals = count()
        self._count = 0
        self._by_queue: dict[str, dict[int, Waiting]] = {}
        self._served: tuple[object, int] = (None, 0)

    def __len__(self) -> int:
        return self._count

    def add(self, request: ClaimRequest) -> Waiting:
        """A claim comes in, behind all others."""
        waiting = Waiting(request, next(self._arrivals))
        self._count += 1
        for queue in request.queues:
            self._by_queue.setdefault(queue, {})[waiting.arrival] = waiting
        return waiting

    def workers(self) -> set[str]:
        """Those that wait."""
        return {waiting.request.worker for line in self._by_queue.values() for waiting in line.values()}

    def remove(self, waiting: Waiting) -> None:
        """A claim is answered, has waited long enough, or its client hung up."""
        self._count -= 1
        for queue in set(waiting.request.queues):
            line = self._by_queue[queue]
            del line[waiting.arrival]
            if not line:
                del self._by_queue[queue]

    def has(self, queue: str) -> bool:
        """Whether a claim waits for it."""
        return queue in self._by_queue

    def can_serve(self, can_pick: Callable[[str], bool], transaction: object) -> bool:
        """Whether a claim that `transaction` has not served yet waits for a queue that has a job for it."""
        return next(self.in_turn(can_pick, transaction), None) is not None

    def in_turn(self, can_pick: Callable[[str], bool], transaction: object) -> Iterator[Waiting]:
        """The claims that can get a job and that `transaction` has not served yet, first come first served.
        `can_pick` is asked anew before each."""
        lines = {queue: deque(line.values()) for queue, line in self._by_queue.items()}
        offered: set[int] = set()
        while not self.ended.done():
            for line in lines.values():
                while line and (line[0].arrival in offered or not line[0].is_open(transaction)):
                    line.popleft()
            heads = (line[0] for queue, line in lines.items() if line and can_pick(queue))
            first = min(heads, key=attrgetter("arrival"), default=None)
            if first is None:
                return
            offered.add(first.arrival)
            yield first

    def propose(self, waiting: Waiting, jobs: int, transaction: object) -> None:
        """`transaction` leases so many jobs to this claim, if it is committed."""
        waiting.proposed_in = transaction
        self._served = (transaction, self.served_in(transaction) + jobs)

    def served_in(self, transaction: object) -> int:
        """How many jobs `transaction` leases so far, to all claims."""
        last, jobs = self._served
        return jobs if last is transaction else 0

    def end(self) -> None:
        """Nobody gets anything any more, but for what is on its way already."""
        if not self.ended.done():
            self.ended.set_result(None)
