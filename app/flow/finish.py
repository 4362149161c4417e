"""An attempt ends: completed, failed, released, lapsed or timed out. Each way out is the attempt's row, one
guarded move of the job, and the order told of it, in one transaction."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.clock import to_micros
from app.errors import Conflict, LeaseLost
from app.events import LeaseLapsed
from app.flow.core import Core
from app.flow.lease import existing_job
from app.flow.moves import Ended
from app.scheduling.backoff import backoff
from app.scheduling.job import Job, Move, Outcome, State
from app.scheduling.leases import Lease
from app.scheduling.scheduler import QueuedJob
from app.store import attempts, jobs
from app.store.transaction import Transaction
from app.store.writer import Redo

LAPSED_ERROR: Final = "lease expired"
TIMED_OUT_ERROR: Final = "timed out"


async def complete(core: Core, job_id: str, token: str, result: Any = None) -> Job:
    """Running → completed. Raises `NotFound`, `LeaseLost`, `Conflict` (not started), `Unavailable`."""
    return await core.write(lambda tx: _complete(core, tx, job_id, token, result))


async def fail(core: Core, job_id: str, token: str, error: str, *, retry: bool = True) -> Job:
    """Another attempt if `retry` and any are left, else failed. Raises `NotFound`, `LeaseLost`, `Unavailable`."""
    return await core.write(lambda tx: _fail(core, tx, job_id, token, error, retry=retry))


async def release(core: Core, job_id: str, token: str) -> Job:
    """Back to queued; the attempt is not counted. Raises `NotFound`, `LeaseLost`, `Unavailable`."""
    return await core.write(lambda tx: _release(core, tx, job_id, token))


async def end_if_ended(core: Core, lease: Lease) -> None:
    """End the attempt of a lease that nobody renewed, or of a job whose time is up. Raises `Unavailable`."""
    await core.write(lambda tx: _lapse(core, tx, lease))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ends and where its job goes. `refund` gives the charge back; `values` are the columns of
    the job that this ending sets, beyond those that every move out of a lease clears."""

    state: State
    outcome: Outcome
    error: str | None = None
    refund: bool = False
    values: Mapping[str, Any]


async def end_attempt(core: Core, tx: Transaction, job: Job, now: datetime, ending: Ending) -> Job:
    """End the attempt that `job` is leased for; the job as it is then."""
    move = Move(job.state, ending.state)
    connection = await tx.settled()
    if not await attempts.end_if_held(connection, job, ending.outcome, ending.error, now):
        raise Redo
    ended = await jobs.move_if_unchanged(connection, job, move, ending.values)
    if ended is None:
        raise Redo
    charge_back = (job.charge or 0) if ending.refund else 0
    if ended.state is State.QUEUED:
        core.order.requeue(as_queued(ended), charge_back)
    else:
        core.order.end(job.tenant, job.queue, charge_back)
    core.note_move(ended, job.state, Ended(ending.outcome, job.started_at, now))
    tx.after_commit(core.leases.drop, job.id)
    if ended.state is State.PENDING:
        tx.after_commit(core.wake_by, ended.run_at)
    return ended


async def _complete(core: Core, tx: Transaction, job_id: str, token: str, result: Any) -> Job:
    job, is_held = await _reported_job(tx, job_id, token)
    if not is_held:
        return job
    if job.state is not State.RUNNING:
        raise Conflict(f"the job is {job.state}; start it before you complete it", job.state)
    now = core.clock.now()
    values = {"completed_at": now, "result": result, "error": None}
    ending = Ending(state=State.COMPLETED, outcome=Outcome.COMPLETED, values=values)
    return await end_attempt(core, tx, job, now, ending)


async def _fail(core: Core, tx: Transaction, job_id: str, token: str, error: str, *, retry: bool) -> Job:
    job, is_held = await _reported_job(tx, job_id, token)
    if not is_held:
        return job
    now = core.clock.now()
    return await end_attempt(core, tx, job, now, _unsuccessful(job, now, Outcome.FAILED, error, retry=retry))


async def _release(core: Core, tx: Transaction, job_id: str, token: str) -> Job:
    job, is_held = await _reported_job(tx, job_id, token)
    if not is_held:
        return job
    now = core.clock.now()
    values = {"queued_at": now, "attempt": job.attempt - 1}
    ending = Ending(state=State.QUEUED, outcome=Outcome.RELEASED, refund=True, values=values)
    return await end_attempt(core, tx, job, now, ending)


async def _lapse(core: Core, tx: Transaction, lease: Lease) -> None:
    present = core.leases.get(lease.job_id)
    if present is None or present.token != lease.token or present.ends_at > core.clock.monotonic_ns():
        return  # reported, cancelled or renewed while this waited for the writer
    connection = await tx.reading()
    job = await jobs.get(connection, lease.job_id)
    if job is None or job.token != lease.token:
        if job is not None and await attempts.outcome_under(connection, job.id, lease.token) is None:
            _ended_by_hand(core, tx, job)
        tx.after_commit(core.leases.drop, lease.job_id)
        return
    outcome, error = (Outcome.TIMED_OUT, TIMED_OUT_ERROR) if present.times_out else (Outcome.LAPSED, LAPSED_ERROR)
    now = core.clock.now()
    ended = await end_attempt(core, tx, job, now, _unsuccessful(job, now, outcome, error, retry=True))
    tx.after_commit(core.emit, LeaseLapsed(job.id, job.tenant, job.worker or "", outcome, ended.state))


def _ended_by_hand(core: Core, tx: Transaction, job: Job) -> None:
    """Somebody took the job from its worker by plain SQL: memory learns of it when the lease ends."""
    if job.state.is_final:
        core.order.end(job.tenant, job.queue)
        core.note_move(job, State.SCHEDULED if job.started_at is None else State.RUNNING)
        tx.after_commit(core.counts.corrected)


async def _reported_job(tx: Transaction, job_id: str, token: str) -> tuple[Job, bool]:
    """The job, and whether it is under this very lease. A token whose report has ended its attempt is
    answered with the job as it is; any other raises `LeaseLost`."""
    connection = await tx.reading()
    job = await existing_job(connection, job_id)
    if job.token == token:
        return job, True
    outcome = await attempts.outcome_under(connection, job_id, token)
    if outcome is None or not outcome.is_reported:
        raise LeaseLost(job.state)
    return job, False


def _unsuccessful(job: Job, now: datetime, outcome: Outcome, error: str, *, retry: bool) -> Ending:
    """Another attempt if `retry` and any are left: at once if this one never started, else after a backoff."""
    values: dict[str, Any] = {"error": error}
    if not (retry and job.attempt < job.max_attempts):
        state = State.FAILED
        values["completed_at"] = now
    elif job.state is State.SCHEDULED:
        state = State.QUEUED
        values["queued_at"] = now
    else:
        state = State.PENDING
        values["run_at"] = now + backoff(job.attempt, random.random())  # noqa: S311 - jitter, not a secret
    refund = outcome is Outcome.LAPSED and job.state is State.SCHEDULED
    return Ending(state=state, outcome=outcome, error=error, refund=refund, values=values)


def as_queued(job: Job) -> QueuedJob:
    """What the order knows of a job that waits."""
    if job.effective_priority is None:
        raise ValueError(f"a {job.state} job has no place in the order")
    return QueuedJob(
        id=job.id,
        seq=job.seq,
        tenant=job.tenant,
        queue=job.queue,
        priority=job.priority,
        cost=job.cost,
        due_at=to_micros(job.due_at),
        submitted_at=to_micros(job.submitted_at),
        effective_priority=job.effective_priority,
    )
