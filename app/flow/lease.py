"""A worker holds a job: it starts it and beats for it. What is said at the same time shares statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from app.errors import FairlaneError, LeaseLost, NotFound
from app.flow.core import Core
from app.scheduling.job import Job, State
from app.store import jobs
from app.store.parts import Redo
from app.store.session import Connection
from app.store.transaction import Transaction


class Held(NamedTuple):
    """What somebody says to hold."""

    job_id: str
    token: str


class Beat(NamedTuple):
    """The lease is to last `lease_sec` from now, or as long again as it was claimed for."""

    job_id: str
    token: str
    lease_sec: int | None = None
    progress: float | None = None


async def start(core: Core, job_id: str, token: str) -> Job:
    """Scheduled → running; said again under the same lease, the same answer.

    Raises `NotFound`, `LeaseLost`, `Unavailable`.
    """
    return await core.write_shared(_start, Held(job_id, token))


async def heartbeat(
    core: Core, job_id: str, token: str, lease_sec: int | None = None, progress: float | None = None
) -> datetime:
    """Prolong the lease; its new end. Raises as `start`."""
    return await core.write_shared(_beat, Beat(job_id, token, lease_sec, progress))


async def beat_each(core: Core, beats: Sequence[Beat]) -> Sequence[datetime | FairlaneError]:
    """Each beat is judged by itself: the new end of its lease, or `NotFound` or `LeaseLost`. Raises `Unavailable`."""
    return await core.write_each(_beat, beats)


async def existing_job(connection: Connection, job_id: str) -> Job:
    """The job. Raises `NotFound`."""
    job = await jobs.get(connection, job_id)
    if job is None:
        raise NotFound("job")
    return job


def _held(job: Job | None, token: str) -> Job | FairlaneError:
    """The job, if it is under the lease with this token."""
    if job is None:
        return NotFound("job")
    return job if job.token == token else LeaseLost(job.state)


async def _start(core: Core, tx: Transaction, leases: Sequence[Held]) -> list[Job | FairlaneError]:
    known = await jobs.with_ids(await tx.reading(), {lease.job_id for lease in leases})
    found = [_held(known.get(job_id), token) for job_id, token in leases]
    starting = {job.id: job for job in found if isinstance(job, Job) and job.state is State.SCHEDULED}
    started = _started(core, tx, list(starting.values())) if starting else {}
    return [started.get(job.id, job) if isinstance(job, Job) else job for job in found]


def _started(core: Core, tx: Transaction, leased: Sequence[Job]) -> Mapping[str, Job]:
    now = core.clock.now()
    tx.write(jobs.starts(leased, now))
    started = {job.id: jobs.started(job, now) for job in leased}
    for job in started.values():
        core.note_move(job, State.SCHEDULED)
        tx.after_commit(core.lease_started, job)
    return started


async def _beat(core: Core, tx: Transaction, beats: Sequence[Beat]) -> list[datetime | FairlaneError]:
    known = await jobs.with_ids(await tx.reading(), {beat.job_id for beat in beats})
    ends: list[datetime | FairlaneError] = []
    renewed: dict[str, dict[str, Any]] = {}
    for beat in beats:
        job = _held(known.get(beat.job_id), beat.token)
        if isinstance(job, FairlaneError):
            ends.append(job)
            continue
        length = beat.lease_sec or job.lease_sec or 0
        end = core.clock.now() + timedelta(seconds=length)
        row = renewed.setdefault(job.id, {"id": job.id, "token": job.token, "progress": job.progress})
        row["lease_expires_at"] = end  # the last beat counts
        if beat.progress is not None:
            row["progress"] = beat.progress
        core.lease_renewed(job, length, beat.progress)
        ends.append(end)
    if renewed and await jobs.renew_if_held(await tx.settled(), list(renewed.values())) != len(renewed):
        raise Redo
    return ends
