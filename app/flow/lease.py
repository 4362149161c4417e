"""A worker holds a job: it starts it and beats for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from app.errors import LeaseLost, NotFound
from app.flow.core import Core
from app.scheduling.job import Job, State
from app.store import jobs
from app.store.session import Connection
from app.store.transaction import Transaction
from app.store.writer import Redo


async def start(core: Core, job_id: str, token: str) -> Job:
    """Scheduled → running; said again under the same lease, the same answer.

    Raises `NotFound`, `LeaseLost`, `Unavailable`.
    """
    return await core.write(lambda tx: _start(core, tx, job_id, token))


async def heartbeat(
    core: Core, job_id: str, token: str, lease_sec: int | None = None, progress: float | None = None
) -> datetime:
    """Prolong the lease to `lease_sec` from now (default: the claim's); its new end. Raises as `start`."""
    return await core.write(lambda tx: _beat(core, tx, job_id, token, lease_sec, progress))


async def existing_job(connection: Connection, job_id: str) -> Job:
    """The job. Raises `NotFound`."""
    job = await jobs.get(connection, job_id)
    if job is None:
        raise NotFound("job")
    return job


async def held_job(connection: Connection, job_id: str, token: str) -> Job:
    """The job, if it is under the lease with this token. Raises `NotFound`, `LeaseLost`."""
    job = await existing_job(connection, job_id)
    if job.token != token:
        raise LeaseLost(job.state)
    return job


async def _start(core: Core, tx: Transaction, job_id: str, token: str) -> Job:
    job = await held_job(await tx.reading(), job_id, token)
    if job.state is State.RUNNING:
        return job
    started = await jobs.start_if_scheduled(await tx.settled(), [job], core.clock.now())
    if not started:
        raise Redo
    [job] = started
    core.note_move(job, State.SCHEDULED)
    tx.after_commit(core.lease_started, job)
    return job


async def _beat(
    core: Core, tx: Transaction, job_id: str, token: str, lease_sec: int | None, progress: float | None
) -> datetime:
    job = await held_job(await tx.reading(), job_id, token)
    length = lease_sec or job.lease_sec or 0
    expires_at = core.clock.now() + timedelta(seconds=length)
    values: dict[str, Any] = {"lease_expires_at": expires_at}
    if progress is not None:
        values["progress"] = progress
    if not await jobs.renew_if_held(await tx.settled(), job_id, token, values):
        raise Redo
    core.lease_renewed(job, length)
    return expires_at
