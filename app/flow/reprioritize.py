"""A job that waits becomes more or less urgent."""

from __future__ import annotations

from functools import partial

from app.errors import Conflict
from app.flow.core import Core
from app.flow.lease import existing_job
from app.scheduling.job import Job, State
from app.store import jobs
from app.store.parts import Redo
from app.store.transaction import Transaction


async def reprioritize(core: Core, job_id: str, priority: int) -> Job:
    """Give a pending or queued job another priority, in force for the next dispatch.

    Raises `NotFound`, `Conflict` (any later state), `Unavailable`.
    """
    return await core.write(partial(_reprioritize, core, job_id, priority))


async def _reprioritize(core: Core, job_id: str, priority: int, tx: Transaction) -> Job:
    job = await existing_job(await tx.reading(), job_id)
    if job.state not in (State.PENDING, State.QUEUED):
        raise Conflict(f"the job is {job.state}; a priority changes only while it waits", job.state)
    effective_priority = job.effective_priority
    if job.state is State.QUEUED and (queued := core.order.reprioritize(job_id, priority)):
        effective_priority = queued.effective_priority
    changed = await jobs.reprioritize_if_unchanged(await tx.settled(), job, priority, effective_priority)
    if changed is None:
        raise Redo
    return changed
