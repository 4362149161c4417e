"""A job's life as stretches of time: what it did from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from app.scheduling.job import Attempt, Job

Doing = Literal["delayed", "queued", "scheduled", "running"]

WORDS: Final[dict[Doing, str]] = {
    "delayed": "not due yet",
    "queued": "in the queue",
    "scheduled": "with a worker, not started",
    "running": "running",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """From when to when a job did one thing; `left` and `width` are percents of its whole life. An open one goes on."""

    doing: Doing
    start: datetime
    end: datetime
    is_open: bool
    left: float
    width: float

    @property
    def words(self) -> str:
        """What it did, for people."""
        return WORDS[self.doing]


def timeline(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[Stretch]:
    """The stretches of a job's life up to now, without gaps; none shorter than nothing."""
    end = job.completed_at or max(now, job.submitted_at)
    whole = (end - job.submitted_at).total_seconds() or 1.0
    marks = list(_marks(job, attempts))
    stretches = []
    for (doing, start), until in zip(marks, [*(start for _, start in marks[1:]), end], strict=True):
        if until > start:
            is_open = until == end and job.completed_at is None
            left, width = ((moment - job.submitted_at).total_seconds() / whole * 100 for moment in (start, until))
            stretches.append(Stretch(doing, start, until, is_open, round(left, 3), round(width - left, 3)))
    return stretches


def _marks(job: Job, attempts: Sequence[Attempt]) -> Iterator[tuple[Doing, datetime]]:
    """What it began to do, when."""
    yield "delayed", job.submitted_at
    for attempt in attempts:
        yield from _attempt(attempt.queued_at, attempt.scheduled_at, attempt.started_at)
        yield "delayed", attempt.ended_at
    # A row keeps the times of its last attempt when it is final; those are told already.
    if job.queued_at is None or not attempts or job.queued_at >= attempts[-1].ended_at:
        yield from _attempt(job.queued_at, job.scheduled_at, job.started_at)


def _attempt(
    queued_at: datetime | None, scheduled_at: datetime | None, started_at: datetime | None
) -> Iterator[tuple[Doing, datetime]]:
    if queued_at is not None:
        yield "queued", queued_at
    if scheduled_at is not None:
        yield "scheduled", scheduled_at
    if started_at is not None:
        yield "running", started_at
