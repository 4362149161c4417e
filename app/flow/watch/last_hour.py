"""The last hour in figures: what came, went and waited in each minute, and who was given how much. It follows the
moves in memory, a fixed amount of it, so that a look costs the same however long the history is; it begins anew with
each start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.clock import Clock
from app.flow.moves import Moved
from app.scheduling.job import Job, State

MINUTES: Final = 60
NAMED_TENANTS: Final = 100
"""So many tenants are told apart in a minute; the others count together."""

_MINUTE: Final = timedelta(minutes=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_EXACT_BITS: Final = 6


class Waits:
    """How long jobs waited, in buckets each a thirty-second wider than the last, or less: a thousand or so at most."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, micros: int) -> None:
        """A job waited so long."""
        micros = max(0, micros)
        shift = max(0, micros.bit_length() - _EXACT_BITS)
        self._buckets[shift << _EXACT_BITS | micros >> shift] += 1

    def join(self, other: Waits) -> None:
        """Count those of another as well."""
        self._buckets.update(other._buckets)

    def percentile(self, percent: int) -> float | None:
        """Seconds, by nearest rank, within 2%; None if nothing waited."""
        rank = -(-self._buckets.total() * percent // 100)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return _middle(bucket) / 1_000_000
        return None


def _middle(bucket: int) -> float:
    shift, top = bucket >> _EXACT_BITS, bucket & (1 << _EXACT_BITS) - 1
    return (top + 0.5) * (1 << shift) if shift else top


@dataclass(slots=True)
class Minute:
    """What happened in one minute. `started` counts attempts given to workers; `given` and `due` are cost by tenant,
    None being all that are not told apart."""

    at: datetime
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    waits: Waits = field(default_factory=Waits)
    given: dict[str | None, float] = field(default_factory=dict)
    due: dict[str | None, float] = field(default_factory=dict)

    def divide(self, given: Mapping[str, float], due: Mapping[str, float]) -> None:
        """Add what tenants were given and due, those with most of it first."""
        by_size = sorted(given.keys() | due.keys(), key=lambda name: (-given.get(name, 0) - due.get(name, 0), name))
        for name in by_size:
            kept = name if name in self.given or len(self.given) < NAMED_TENANTS else None
            self.given[kept] = self.given.get(kept, 0) + given.get(name, 0)
            self.due[kept] = self.due.get(kept, 0) + due.get(name, 0)


@dataclass(slots=True)
class Given:
    """What a queue gave out: the cost by tenant, in so many attempts."""

    cost: Counter[str] = field(default_factory=Counter)
    attempts: int = 0

    def add(self, job: Job) -> None:
        """An attempt of a job."""
        self.cost[job.tenant] += job.cost
        self.attempts += 1

    @property
    def mean_cost(self) -> float:
        """Of an attempt; there was one."""
        return self.cost.total() / self.attempts


@dataclass(frozen=True, slots=True)
class Shares:
    """Cost by tenant: what it was given, and what it was due of all that was given."""

    given: Mapping[str | None, float]
    due: Mapping[str | None, float]


class LastHour:
    """The minutes of the last hour. `since` is when it began to count."""

    def __init__(self, clock: Clock) -> None:
        self.since = clock.now()
        self._clock = clock
        self._minutes: dict[datetime, Minute] = {}
        self._minute = self._of(self.since)
        self._given: dict[str, Given] = {}

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened."""
        for moved in moves:
            if moved.job is not None:
                self._count(moved.old, moved.job)

    def take_given(self) -> dict[str, Given]:
        """What was given out since this was asked last, by queue."""
        taken, self._given = self._given, {}
        return taken

    def divide(self, given: Mapping[str, float], due: Mapping[str, float]) -> None:
        """Note what tenants were given and due just now."""
        self._of(self._clock.now()).divide(given, due)

    def minutes(self) -> list[Minute]:
        """Sixty of them, the present one last."""
        now = _start_of(self._clock.now())
        wanted = [now - n * _MINUTE for n in reversed(range(MINUTES))]
        return [self._minutes.get(at) or Minute(at) for at in wanted]

    def shares(self) -> Shares:
        """Of the whole hour."""
        given: defaultdict[str | None, float] = defaultdict(float)
        due: defaultdict[str | None, float] = defaultdict(float)
        for minute in self.minutes():
            for name in minute.given:
                given[name] += minute.given[name]
                due[name] += minute.due[name]
        return Shares(given, due)

    def _count(self, old: State | None, job: Job) -> None:
        if old is None:
            self._of(job.submitted_at).submitted += 1
        elif job.state is State.SCHEDULED and job.scheduled_at is not None and job.queued_at is not None:
            minute = self._of(job.scheduled_at)
            minute.started += 1
            minute.waits.add((job.scheduled_at - job.queued_at) // _MICROSECOND)
            self._given.setdefault(job.queue, Given()).add(job)
        elif job.completed_at is not None:
            self._count_end(self._of(job.completed_at), job.state)

    def _count_end(self, minute: Minute, state: State) -> None:
        minute.completed += state is State.COMPLETED
        minute.failed += state is State.FAILED
        minute.cancelled += state is State.CANCELLED

    def _of(self, moment: datetime) -> Minute:
        """The minute of a moment. It is nearly always the one asked for last."""
        if self._minutes and self._minute.at <= moment < self._minute.at + _MINUTE:
            return self._minute
        at = _start_of(moment)
        if at not in self._minutes:
            self._minutes[at] = Minute(at)
            for old in sorted(self._minutes)[: -MINUTES - 1]:
                del self._minutes[old]
        self._minute = self._minutes.get(at) or Minute(at)
        return self._minute


def _start_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
