"""One job's life as it is meant to be, its states and what its worker may say, in pure functions over what is to be
seen of it. It is what the service is compared with, so nothing of it is taken from the service."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

LEASE_SEC: Final = 30.0
GRACE_SEC: Final = LEASE_SEC / 3

FINAL: Final = ("completed", "failed", "cancelled")
WAITING: Final = ("pending", "queued")
LEASED: Final = ("scheduled", "running")

# Which columns are set in which state, and at the end the charge.
_STATES: Final = ("pending", "queued", "scheduled", "running", "completed", "failed", "cancelled")
_COLUMNS: Final = {
    "run_at": "                          +        +         +          +         +         +         +",
    "queued_at effective_priority": "    -        +         +          +         +         ?         ?",
    "scheduled_at": "                    -        -         +          +         +         ?         ?",
    "token lease_expires_at": "          -        -         +          +         -         -         -",
    "worker": "                          -        -         +          +         +         ?         ?",
    "started_at": "                      -        -         -          +         +         ?         ?",
    "completed_at": "                    -        -         -          -         +         +         +",
    "result": "                          -        -         -          -         ?         -         -",
    "error": "                           ?        ?         ?          ?         -         +         ?",
    "charge": "                          -        -         +          +         ?         ?         ?",
}

Call = Literal["start", "heartbeat", "complete", "fail", "fail for good", "release"]
CALLS: Final[tuple[Call, ...]] = ("start", "heartbeat", "complete", "fail", "fail for good", "release")


def columns_of(state: str) -> dict[str, str]:
    """For each column whether it is set (+), null (-) or either (?)."""
    place = _STATES.index(state)
    return {name: cells.split()[place] for names, cells in _COLUMNS.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended attempt. Its number is its place, from 1; the token of the n-th claim is the n-th one's."""

    outcome: str
    error: str | None
    was_started: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call says: `job` (with the state it is in), `nothing`, `lost`, or `conflict` (naming the state)."""

    kind: Literal["job", "nothing", "lost", "conflict"]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job by itself in its queue. What is `left` is in seconds: of the lease, of the time it may run, until due."""

    max_attempts: int
    timeout_sec: float | None = None
    state: str = "queued"
    priority: int = 0
    attempt: int = 0
    error: str | None = None
    lease_left: float | None = None
    time_left: float | None = None
    due_left: float | None = None
    ended: tuple[Ended, ...] = ()

    @property
    def says(self) -> Answer:
        """The answer of a call that shows the job."""
        return Answer("job", self.state)


def claim(job: Job, *, start: bool) -> tuple[Job, Answer]:
    if job.state != "queued":
        return job, Answer("nothing")
    job = replace(job, state="scheduled", attempt=job.attempt + 1, lease_left=LEASE_SEC)
    job = _started(job) if start else job
    return job, job.says


def report(job: Job, call: Call, number: int | None) -> tuple[Job, Answer]:
    """Under the token of the `number`-th claim, from 0; None is a token that nobody was given."""
    if number is None or number > len(job.ended) or (number == len(job.ended) and job.state not in LEASED):
        return job, Answer("lost", job.state)
    if number < len(job.ended):
        is_repeated = job.ended[number].outcome in ("completed", "failed", "released")
        may_be_repeated = call not in ("start", "heartbeat")
        return job, job.says if is_repeated and may_be_repeated else Answer("lost", job.state)
    if call == "complete" and job.state == "scheduled":
        return job, Answer("conflict", job.state)
    after = _reported(job, call)
    return after, Answer("nothing") if call == "heartbeat" else after.says


def _reported(job: Job, call: Call) -> Job:
    match call:
        case "start":
            return job if job.state == "running" else _started(job)
        case "heartbeat":
            return replace(job, lease_left=LEASE_SEC)
        case "complete":
            return replace(_end(job, "completed"), state="completed", error=None)
        case "release":
            return replace(_end(job, "released"), state="queued", attempt=job.attempt - 1)
        case _:
            return _unsuccessful(job, "failed", "it broke", retry=call == "fail")


def cancel(job: Job) -> tuple[Job, Answer]:
    if job.state in FINAL:
        return job, job.says if job.state == "cancelled" else Answer("conflict", job.state)
    job = _end(job, "cancelled") if job.state in LEASED else job
    job = replace(job, state="cancelled", due_left=None)
    return job, job.says


def prioritize(job: Job, priority: int) -> tuple[Job, Answer]:
    if job.state not in WAITING:
        return job, Answer("conflict", job.state)
    job = replace(job, priority=priority)
    return job, job.says


def wait(job: Job, seconds: float) -> Job:
    """Time passes, and then the service looks."""
    return look(passed(job, seconds))


def passed(job: Job, seconds: float) -> Job:
    """Time has passed, and nobody has looked yet."""
    lefts = {name: getattr(job, name) for name in ("lease_left", "time_left", "due_left")}
    return replace(job, **{name: left - seconds for name, left in lefts.items() if left is not None})


def look(job: Job) -> Job:
    """What is due, or over, is found out."""
    if job.due_left is not None and job.due_left <= 0:
        return replace(job, state="queued", due_left=None)
    ends = [left for left in (job.time_left, job.lease_left) if left is not None]
    if not ends or min(ends) > 0:
        return job
    if job.time_left == min(ends):
        return _unsuccessful(job, "timed out", "timed out", retry=True)
    return _unsuccessful(job, "lapsed", "lease expired", retry=True)


def restart(job: Job) -> Job:
    """What is written lasts a heartbeat at least."""
    lefts = {name: getattr(job, name) for name in ("lease_left", "time_left")}
    return replace(job, **{name: max(left, GRACE_SEC) for name, left in lefts.items() if left is not None})


def _started(job: Job) -> Job:
    return replace(job, state="running", time_left=job.timeout_sec)


def _unsuccessful(job: Job, outcome: str, error: str, *, retry: bool) -> Job:
    after = replace(_end(job, outcome, error), error=error)
    if not retry or job.attempt == job.max_attempts:
        return replace(after, state="failed")
    if job.state == "scheduled":
        return replace(after, state="queued")
    return replace(after, state="pending", due_left=min(3600.0, 2.0**job.attempt))


def _end(job: Job, outcome: str, error: str | None = None) -> Job:
    ended = Ended(outcome, error, was_started=job.state == "running")
    return replace(job, lease_left=None, time_left=None, ended=(*job.ended, ended))
