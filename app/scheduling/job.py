"""What a job is and which moves it may make. The table here is the one source of legal moves:
the statements in `store` are built from it, and the database's triggers are tested against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from app.errors import IllegalMove

HIGHEST_PRIORITY: Final = 0
LOWEST_PRIORITY: Final = 10


class State(StrEnum):
    """The seven states of a job."""

    PENDING = "pending"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether a job in this state never changes again."""
        return not LEGAL_MOVES[self]

    @property
    def is_leased(self) -> bool:
        """Whether a job in this state is in a worker's hands."""
        return self in (State.SCHEDULED, State.RUNNING)


INITIAL_STATES: Final = frozenset({State.PENDING, State.QUEUED})

LEGAL_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.QUEUED, State.FAILED, State.CANCELLED}),
    State.QUEUED: frozenset({State.SCHEDULED, State.FAILED, State.CANCELLED}),
    State.SCHEDULED: frozenset({State.RUNNING, State.QUEUED, State.FAILED, State.CANCELLED}),
    State.RUNNING: frozenset({State.COMPLETED, State.PENDING, State.QUEUED, State.FAILED, State.CANCELLED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Move:
    """One legal move. Raises `IllegalMove` for every pair that `LEGAL_MOVES` does not hold."""

    old: State
    new: State

    def __post_init__(self) -> None:
        if self.new not in LEGAL_MOVES[self.old]:
            raise IllegalMove(self.old, self.new)


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    LAPSED = "lapsed"
    TIMED_OUT = "timed out"
    RELEASED = "released"
    CANCELLED = "cancelled"

    @property
    def is_reported(self) -> bool:
        """Whether the worker said so itself, so that a repeated report is answered, not refused."""
        return self in (Outcome.COMPLETED, Outcome.FAILED, Outcome.RELEASED)


class Job(Struct, frozen=True):
    """A job as its row says. Times are aware UTC; `token` is the lease's secret and never shown in lists."""

    seq: int
    id: str
    tenant: str
    test_suite: str
    queue: str
    priority: int
    effective_priority: int | None
    cost: int
    state: State
    delay_sec: int | None
    payload: Any
    attempt: int
    max_attempts: int
    timeout_sec: int | None
    submitted_at: datetime
    due_at: datetime
    run_at: datetime
    queued_at: datetime | None
    scheduled_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    worker: str | None
    token: str | None
    lease_sec: int | None
    lease_expires_at: datetime | None
    charge: int | None
    dispatch_weight: int | None
    progress: float | None
    result: Any
    error: str | None
    retry_of: str | None
    idempotency_key: str | None
    request_digest: str | None


class Attempt(Struct, frozen=True):
    """One ended attempt of a job, numbered from 1 within the job, released ones too."""

    job_id: str
    number: int
    token: str
    worker: str
    queued_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    error: str | None
    weight: int
    cost: int
