"""What crosses the border of the ordering core: the jobs it orders, the state it is loaded from, and
what it wants written down. Plain records without behaviour; times are whole microseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class QueuedJob(NamedTuple):
    """A waiting job, as far as its place in the order depends on it.

    `id` is 32 hex digits. `seq` is unique and breaks every tie; `effective_priority` is frozen when the job is queued.
    """

    id: str
    seq: int
    tenant: str
    queue: str
    priority: int
    cost: int
    due_at: int
    submitted_at: int
    effective_priority: int

    def with_priority(self, priority: int) -> QueuedJob:
        """The job with another priority, along which its effective priority moves."""
        effective = max(0, self.effective_priority + priority - self.priority)
        return self._replace(priority=priority, effective_priority=effective)


UnnamedJob: TypeAlias = tuple[str, int, str, str, int, int, int, int, int]
"""A `QueuedJob` without names: a fifth of the work to make, where a million are."""


class Pick(NamedTuple):
    """A job that goes next, the charge its lane was given for it (in units), and its tenant's weight."""

    job: QueuedJob
    charge: int
    weight: int


class LaneTime(NamedTuple):
    """How much share a lane has used, in units."""

    queue: str
    tenant: str
    virtual_time: int


class QueueTime(NamedTuple):
    """What a queue remembers between picks: `clock` and `horizon` in units, `since_move` in picks."""

    queue: str
    clock: int
    since_move: int
    horizon: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as it is loaded."""

    name: str
    clock: int
    since_move: int
    horizon: int
    paused: bool


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant as it is loaded; `running` counts its scheduled and running jobs over all queues."""

    name: str
    weight: int
    max_running: int | None
    paused: bool
    running: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the order depends on, as SQL holds it: `jobs` are the queued ones.

    Tenants with default settings and nothing running need no entry, nor do empty lanes at or behind
    their queue's clock.
    """

    tenants: Iterable[TenantState] = ()
    queues: Iterable[QueueState] = ()
    lanes: Iterable[LaneTime] = ()
    jobs: Iterable[QueuedJob] = ()
