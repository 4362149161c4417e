"""Numbers of jobs in the three ways in which they are kept, with signs: to compare memory with the database, and to
hold what the one lacks against the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from app.flow.moves import Moved
from app.scheduling.job import State


@dataclass(frozen=True, slots=True)
class Tally:
    """Jobs by (queue, state), unfinished ones by (tenant, state), queued ones by (queue, tenant)."""

    by_queue: Counter[tuple[str, State]] = field(default_factory=Counter)
    by_tenant: Counter[tuple[str, State]] = field(default_factory=Counter)
    queued: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, queue: str, tenant: str, state: State, n: int) -> None:
        """`n` more jobs, or fewer if it is negative."""
        self.by_queue[queue, state] += n
        if not state.is_final:
            self.by_tenant[tenant, state] += n
        if state is State.QUEUED:
            self.queued[queue, tenant] += n

    def take(self, moved: Moved) -> None:
        """Memory follows this move, so that it no longer lacks what the move brings."""
        if moved.old is not None:
            self.add(moved.queue, moved.tenant, moved.old, 1)
        if moved.new is not None:
            self.add(moved.queue, moved.tenant, moved.new, -1)

    def minus(self, other: Tally) -> Tally:
        """What `other` lacks to be this; negative where it has too many."""
        mine, others = self._all(), other._all()
        lacking = Tally()
        for kept, one, two in zip(lacking._all(), mine, others, strict=True):
            kept.update({key: n for key in one.keys() | two.keys() if (n := one[key] - two[key])})
        return lacking

    def copy(self) -> Tally:
        """The same, to be changed."""
        return Tally(self.by_queue.copy(), self.by_tenant.copy(), self.queued.copy())

    def surplus(self, states: Iterable[State], queue: str | None, tenant: str | None) -> tuple[str, str, State] | None:
        """A (queue, tenant, state) of which there are too many; `queue` and `tenant` are given if they are known."""
        for state in states:
            owner = tenant or _first(name for (name, s), n in self.by_tenant.items() if s is state and n < 0)
            home = queue or _first(name for (name, s), n in self.by_queue.items() if s is state and n < 0)
            if owner and home and self.by_tenant[owner, state] < 0 and self.by_queue[home, state] < 0:
                return home, owner, state
        return None

    def described(self) -> Iterator[str]:
        """What is lacking, a phrase for each number that is not zero."""
        for (queue, state), n in sorted(self.by_queue.items()):
            if n:
                yield f"queue {queue} {state} {n:+d}"
        for (tenant, state), n in sorted(self.by_tenant.items()):
            if n:
                yield f"tenant {tenant} {state} {n:+d}"
        for (queue, tenant), n in sorted(self.queued.items()):
            if n:
                yield f"tenant {tenant} queued in {queue} {n:+d}"

    def __bool__(self) -> bool:
        return any(n for counter in self._all() for n in counter.values())

    def _all(self) -> tuple[Counter[tuple[str, str]], ...]:
        return self.by_queue, self.by_tenant, self.queued  # type: ignore[return-value] # a state is a text too


def _first(names: Iterator[str]) -> str | None:
    return next(names, None)
