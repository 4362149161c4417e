"""How many jobs there are, in memory, so that nobody counts rows to answer. It follows the moves, commit by commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import TypeVar

from app.flow.moves import Moved
from app.flow.tally import Tally
from app.scheduling.job import State

_Key = TypeVar("_Key")
_WAITING = (State.PENDING, State.QUEUED)


class Counts:
    """Jobs by queue and state, those of all queues by state, and the unfinished ones by tenant.

    What is lacking here beside the database, since rows were typed by hand, is the same after each move that both
    follow. `corrections` grows with whatever else may have changed it, so that an audit knows whether what it found
    to be lacking still is.
    """

    def __init__(self) -> None:
        self.corrections = 0
        self.load((), ())

    def load(
        self, finished: Iterable[tuple[str, State, int]], unfinished: Iterable[tuple[str, str, State, int]]
    ) -> None:
        """Replace everything: (queue, state, n) of the finished jobs, (queue, tenant, state, n) of the others."""
        self.corrected()
        self.by_state: Counter[State] = Counter()
        self._by_queue: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._by_tenant: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._queued: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for queue, state, n in finished:
            self.by_state[state] += n
            self._by_queue[queue][state] += n
        for queue, tenant, state, n in unfinished:
            self.by_state[state] += n
            self._by_queue[queue][state] += n
            self._by_tenant[tenant][state] += n
            if state is State.QUEUED:
                self._queued[queue][tenant] += n

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened. Only what came of all of them together counts: a job may have made several moves."""
        change = Counter[tuple[str, str, State | None]]()
        for (queue, tenant, old, new), n in Counter([moved[1:5] for moved in moves]).items():
            change[queue, tenant, old] -= n
            change[queue, tenant, new] += n
        for (queue, tenant, state), n in change.items():
            if n and state is not None:
                self._change(queue, tenant, state, n)

    def corrected(self) -> None:
        """Something was noticed that had been done by hand: the numbers are nearer to the database's now."""
        self.corrections += 1

    def tally(self) -> Tally:
        """All numbers, as a copy."""
        return Tally(_by_both(self._by_queue), _by_both(self._by_tenant), _by_both(self._queued))

    def make_up(self, lacking: Tally) -> None:
        """Add what was found to be lacking."""
        for (queue, state), n in lacking.by_queue.items():
            _raise(self.by_state, state, n)
            _raise(self._by_queue[queue], state, n)
        for (tenant, state), n in lacking.by_tenant.items():
            _raise(self._by_tenant[tenant], state, n)
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
        for (queue, tenant), n in lacking.queued.items():
            _raise(self._queued[queue], tenant, n)

    def waiting(self, tenant: str, noted: Sequence[Moved]) -> int:
        """Pending and queued jobs of a tenant if the moves `noted` come about."""
        counted = sum(self.of_tenant(tenant)[state] for state in _WAITING)
        mine = [moved for moved in noted if moved.tenant == tenant]
        return counted + sum((moved.new in _WAITING) - (moved.old in _WAITING) for moved in mine)

    def of_tenant(self, tenant: str) -> Counter[State]:
        """The unfinished jobs of a tenant by state."""
        return self._by_tenant.get(tenant, Counter())

    def of_queue(self, queue: str) -> Counter[State]:
        """All jobs of a queue by state."""
        return self._by_queue.get(queue, Counter())

    def queued_by_tenant(self, queue: str) -> Counter[str]:
        """The queued jobs of a queue by tenant, without zeros."""
        return self._queued.get(queue, Counter())

    def queued_of_tenants(self) -> dict[str, int]:
        """The queued jobs of all queues by tenant, without zeros."""
        return {name: n for name, states in self._by_tenant.items() if (n := states.get(State.QUEUED, 0))}

    def busiest(self, limit: int) -> list[str]:
        """The tenants with the most unfinished jobs, in O(tenants that have any)."""
        return nlargest(limit, self._by_tenant, key=lambda tenant: self._by_tenant[tenant].total())

    def busiest_queues(self, limit: int) -> list[str]:
        """The queues with the most queued and leased jobs, of those the most pending ones, in O(queues)."""
        return nsmallest(limit, self._by_queue, key=self._by_busyness)

    def _by_busyness(self, queue: str) -> tuple[int, int, str]:
        n = self._by_queue[queue].get  # not [], which asks Python code for each zero
        return -n(State.QUEUED, 0) - n(State.SCHEDULED, 0) - n(State.RUNNING, 0), -n(State.PENDING, 0), queue

    def tenants(self) -> int:
        """How many tenants have unfinished jobs."""
        return len(self._by_tenant)

    def queues(self) -> list[str]:
        """The queues that have, or had, a job."""
        return sorted(self._by_queue)

    def _change(self, queue: str, tenant: str, state: State, n: int) -> None:
        _raise(self.by_state, state, self._raised(self._by_queue[queue], state, n))
        if not state.is_final:
            self._raised(self._by_tenant[tenant], state, n)
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
        if state is State.QUEUED:
            self._raised(self._queued[queue], tenant, n)

    def _raised(self, counter: Counter[_Key], key: _Key, n: int) -> int:
        """By how much it was raised: a row typed by hand leaves a state that it was never counted in."""
        counted = counter[key]
        if counted + n < 0:
            self.corrected()
            n = -counted
        _raise(counter, key, n)
        return n


def _by_both(counters: Mapping[str, Counter[_Key]]) -> Counter[tuple[str, _Key]]:
    """The numbers by both keys, in one."""
    return Counter({(outer, inner): n for outer, numbers in counters.items() for inner, n in numbers.items()})


def _raise(counter: Counter[_Key], key: _Key, n: int) -> None:
    """`n` more, but none below zero, and no zeros kept."""
    counter[key] += n
    if counter[key] <= 0:
        del counter[key]
