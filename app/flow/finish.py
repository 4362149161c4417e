"""An attempt ends: completed, failed, released, lapsed or timed out. Each way out is the attempt's row, one
guarded move of the job, and the order told of it, in one transaction; what ends at the same time shares statements."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.clock import to_micros
from app.errors import Conflict, FairlaneError, LeaseLost, NotFound
from app.events import LeaseLapsed
from app.flow.core import Core
from app.flow.moves import Ended
from app.scheduling.backoff import backoff
from app.scheduling.job import Job, Move, Outcome, State
from app.scheduling.leases import Lease
from app.scheduling.scheduler import QueuedJob
from app.store import attempts, jobs
from app.store.parts import Part
from app.store.transaction import Transaction

LAPSED_ERROR: Final = "lease expired"
TIMED_OUT_ERROR: Final = "timed out"


class Ending(NamedTuple):
    """How an attempt ends and where its job goes. `refund` gives the charge back; `values` are the columns of
    the job that this ending sets, beyond those that every move out of a lease clears."""

    state: State
    outcome: Outcome
    values: Mapping[str, Any]
    error: str | None = None
    refund: bool = False


class Report(NamedTuple):
    """What somebody who has the `token` says has become of the attempt. `ending` may raise `Conflict`."""

    job_id: str
    token: str
    ending: Callable[[Job, datetime], Ending]


def completed(result: Any = None) -> Callable[[Job, datetime], Ending]:
    """Running → completed. `Conflict` if it was not started."""

    def ending(job: Job, now: datetime) -> Ending:
        if job.state is not State.RUNNING:
            raise Conflict(f"the job is {job.state}; start it before you complete it", job.state)
        values = {"completed_at": now, "result": result, "error": None}
        return Ending(state=State.COMPLETED, outcome=Outcome.COMPLETED, values=values)

    return ending


def failed(error: str, *, retry: bool = True) -> Callable[[Job, datetime], Ending]:
    """Another attempt if `retry` and any are left, else failed."""
    return lambda job, now: _unsuccessful(job, now, Outcome.FAILED, error, retry=retry)


def released(job: Job, now: datetime) -> Ending:
    """Back to queued; the attempt is not counted."""
    values = {"queued_at": now, "attempt": job.attempt - 1}
    return Ending(state=State.QUEUED, outcome=Outcome.RELEASED, refund=True, values=values)


async def report_each(core: Core, reports: Sequence[Report]) -> Sequence[Job | FairlaneError]:
    """Each report is judged by itself, as if they came one after the other: the job as it is then, or `NotFound`,
    `LeaseLost` or `Conflict`. A token whose report has ended its attempt is answered with the job as it is.

    Raises `Unavailable`.
    """
    return await core.write_each(_end_reported, reports)


async def complete(core: Core, job_id: str, token: str, result: Any = None) -> Job:
    """One report, `completed`. Raises what it is refused with, and `Unavailable`."""
    return await core.write_shared(_end_reported, Report(job_id, token, completed(result)))


async def fail(core: Core, job_id: str, token: str, error: str, *, retry: bool = True) -> Job:
    """One report, `failed`. Raises as `complete`."""
    return await core.write_shared(_end_reported, Report(job_id, token, failed(error, retry=retry)))


async def release(core: Core, job_id: str, token: str) -> Job:
    """One report, `released`. Raises as `complete`."""
    return await core.write_shared(_end_reported, Report(job_id, token, released))


async def end_if_ended(core: Core, lease: Lease) -> None:
    """End the attempt of a lease that nobody renewed, or of a job whose time is up. Raises `Unavailable`."""
    await core.write(lambda tx: _lapse(core, tx, lease))


class End(NamedTuple):
    """The attempt that `job` is leased for ends so, at a moment of its own; then the job is `ended`."""

    job: Job
    at: datetime
    ending: Ending
    ended: Job

    @classmethod
    def of(cls, job: Job, at: datetime, ending: Ending) -> End:
        """`ValueError` if no job may move so."""
        return cls(job, at, ending, jobs.moved(job, Move(job.state, ending.state), ending.values))


def end_attempts(core: Core, tx: Transaction, ends: Sequence[End]) -> None:
    """End these attempts, each of another job, in this order."""
    tx.write(attempts.ended([_attempt(end) for end in ends]), *_moves(ends))
    for end in ends:
        _follow(core, tx, end)


def _attempt(end: End) -> tuple[Any, ...]:
    job, ending = end.job, end.ending
    return (job.id, job.token, job.state, end.at, ending.outcome, ending.error)


def _moves(ends: Sequence[End]) -> list[Part]:
    """What changes in the rows, by the move and the columns that it sets."""
    rows: dict[tuple[Move, tuple[str, ...]], list[tuple[Any, ...]]] = defaultdict(list)
    for job, _, ending, _ in ends:
        rows[Move(job.state, ending.state), tuple(ending.values)].append((job.id, job.token, *ending.values.values()))
    return [jobs.moves(move, names, moved) for (move, names), moved in rows.items()]


def _follow(core: Core, tx: Transaction, end: End) -> None:
    """Memory follows what was written."""
    job, ended = end.job, end.ended
    charge_back = (job.charge or 0) if end.ending.refund else 0
    if ended.state is State.QUEUED:
        core.order.requeue(as_queued(ended), charge_back)
    else:
        core.order.end(job.tenant, job.queue, charge_back)
    core.note_move(ended, job.state, Ended(end.ending.outcome, job.started_at, end.at))
    tx.after_commit(core.leases.drop, job.id)
    if ended.state is State.PENDING:
        tx.after_commit(core.wake_by, ended.run_at)


class _Late(NamedTuple):
    """A report under a lease that `job` is not under."""

    job: Job
    token: str


async def _end_reported(core: Core, tx: Transaction, reports: Sequence[Report]) -> list[Job | FairlaneError]:
    judged = _judge_each(core, {} if tx.is_careful else _as_last_seen(core, reports), reports)
    if not all(isinstance(verdict, End) for verdict in judged):  # nobody is refused for what memory says
        known = await jobs.with_ids(await tx.reading(), {each.job_id for each in reports})
        judged = _judge_each(core, known, reports)
    if ends := [verdict for verdict in judged if isinstance(verdict, End)]:
        end_attempts(core, tx, ends)
    late = [(verdict.job.id, verdict.token) for verdict in judged if isinstance(verdict, _Late)]
    told = await attempts.outcomes_under(await tx.reading(), late) if late else {}
    return [_answer(verdict, told) for verdict in judged]


def _as_last_seen(core: Core, reports: Sequence[Report]) -> dict[str, Job]:
    leases = [core.leases.get(each.job_id) for each in reports]
    return {lease.job_id: lease.job for lease in leases if lease is not None and lease.job is not None}


def _judge_each(core: Core, known: dict[str, Job], reports: Sequence[Report]) -> list[End | _Late | FairlaneError]:
    judged: list[End | _Late | FairlaneError] = []
    for each in reports:
        verdict = _judge(core, known.get(each.job_id), each)
        if isinstance(verdict, End):
            known[each.job_id] = verdict.ended  # as what comes behind it finds it
        judged.append(verdict)
    return judged


def _judge(core: Core, job: Job | None, report: Report) -> End | _Late | FairlaneError:
    if job is None:
        return NotFound("job")
    if job.token != report.token:
        return _Late(job, report.token)
    now = core.clock.now()
    try:
        return End.of(job, now, report.ending(job, now))
    except Conflict as refusal:
        return refusal


def _answer(verdict: End | _Late | FairlaneError, told: Mapping[tuple[str, str], Outcome]) -> Job | FairlaneError:
    match verdict:
        case End():
            return verdict.ended
        case _Late(job, token):
            outcome = told.get((job.id, token))
            return job if outcome is not None and outcome.is_reported else LeaseLost(job.state)
    return verdict


async def _lapse(core: Core, tx: Transaction, lease: Lease) -> None:
    present = core.leases.get(lease.job_id)
    if present is None or present.token != lease.token or present.ends_at > core.clock.monotonic_ns():
        return  # reported, cancelled or renewed while this waited for the writer
    connection = await tx.reading()
    job = await jobs.get(connection, lease.job_id)
    if job is None or job.token != lease.token:
        if job is not None and not await attempts.outcomes_under(connection, [(job.id, lease.token)]):
            _ended_by_hand(core, tx, job)
        tx.after_commit(core.leases.drop, lease.job_id)
        return
    outcome, error = (Outcome.TIMED_OUT, TIMED_OUT_ERROR) if present.times_out else (Outcome.LAPSED, LAPSED_ERROR)
    now = core.clock.now()
    end = End.of(job, now, _unsuccessful(job, now, outcome, error, retry=True))
    end_attempts(core, tx, [end])
    tx.after_commit(core.emit, LeaseLapsed(job.id, job.tenant, job.worker or "", outcome, end.ended.state))


def _ended_by_hand(core: Core, tx: Transaction, job: Job) -> None:
    """Somebody took the job from its worker by plain SQL: memory learns of it when the lease ends."""
    if job.state.is_final:
        core.order.end(job.tenant, job.queue)
        core.note_move(job, State.SCHEDULED if job.started_at is None else State.RUNNING)
        tx.after_commit(core.counts.corrected)


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
