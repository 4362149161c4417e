"""A job that ended without success is wanted again: as a new job, since a final row never changes."""

from __future__ import annotations

from app.errors import Conflict
from app.flow.core import Core
from app.flow.look import get_job
from app.flow.submit import JobRequest, submit
from app.scheduling.job import Job, State


async def retry(core: Core, job_id: str) -> Job:
    """Submit what a failed or cancelled job asked for once more, due now; the new job names the old one.

    Raises `NotFound`, `Conflict` (any other state), and what `submit` raises.
    """
    old = await get_job(core, job_id)
    if old.state not in (State.FAILED, State.CANCELLED):
        raise Conflict(f"the job is {old.state}; only a failed or cancelled one is retried", old.state)
    request = JobRequest(
        tenant=old.tenant,
        test_suite=old.test_suite,
        queue=old.queue,
        priority=old.priority,
        payload=old.payload,
        cost=old.cost,
        max_attempts=old.max_attempts,
        timeout_sec=old.timeout_sec,
        retry_of=old.id,
    )
    [submitted] = await submit(core, [request])
    return submitted.job
