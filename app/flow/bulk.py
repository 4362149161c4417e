"""Many reports or beats in one call, each judged by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from app.errors import Conflict, FairlaneError, NotFound
from app.flow import finish
from app.flow.access.sight import hidden_jobs
from app.flow.core import Core
from app.flow.lease import Beat, beat_each
from app.keys import ANYONE, Holder
from app.scheduling.job import Job, State


class Report(NamedTuple):
    """How the attempt under `token` ended: with a result, or with an `error` (None: it completed)."""

    id: str
    token: str
    result: Any = None
    error: str | None = None
    retry: bool = True


class Judged(NamedTuple):
    """What became of one item: the job's state as far as it is known, when its lease ends, or why it was refused."""

    id: str
    ok: bool
    state: State | None = None
    expires_at: datetime | None = None
    error: str | None = None


async def finish_many(core: Core, reports: Sequence[Report], holder: Holder = ANYONE) -> list[Judged]:
    """Take each report as `finish.report_each` does, in order; a job that `holder` must not see is not
    there. Raises `Unavailable` if they could not be written; sent again, what was written is answered the same."""
    hidden = await hidden_jobs(core, holder, (report.id for report in reports))
    seen = [finish.Report(report.id, report.token, _ending(report)) for report in reports if report.id not in hidden]
    outcomes = iter(await finish.report_each(core, seen))
    return [_judged(report.id, NotFound("job") if report.id in hidden else next(outcomes)) for report in reports]


async def heartbeat_many(
    core: Core, leases: Sequence[tuple[str, str]], lease_sec: int | None = None, holder: Holder = ANYONE
) -> list[Judged]:
    """Beat for each (job, token) as `lease.beat_each` does, in order. Otherwise as `finish_many`."""
    hidden = await hidden_jobs(core, holder, (job_id for job_id, _ in leases))
    ends = iter(await beat_each(core, [Beat(*lease, lease_sec) for lease in leases if lease[0] not in hidden]))
    return [_judged(job_id, NotFound("job") if job_id in hidden else next(ends)) for job_id, _ in leases]


def _ending(report: Report) -> Callable[[Job, datetime], finish.Ending]:
    return finish.completed(report.result) if report.error is None else finish.failed(report.error, retry=report.retry)


def _judged(job_id: str, outcome: Job | datetime | FairlaneError) -> Judged:
    match outcome:
        case Job():
            return Judged(job_id, ok=True, state=outcome.state)
        case datetime():
            return Judged(job_id, ok=True, expires_at=outcome)
    state = State(outcome.state) if isinstance(outcome, Conflict) else None
    return Judged(job_id, ok=False, state=state, error=str(outcome))
