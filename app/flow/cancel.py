"""A job is no longer wanted, or many are."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from app.errors import Conflict, NotDispatching, NotFound, Unavailable
from app.flow.core import Core
from app.flow.finish import End, Ending, end_attempts
from app.flow.lease import existing_job
from app.scheduling.job import Job, Move, Outcome, State
from app.store import jobs
from app.store.parts import Redo
from app.store.transaction import Transaction

AT_ONCE: Final = 200
"""Most jobs cancelled in one step, so that claims and submits come in between."""


async def cancel(core: Core, job_id: str) -> Job:
    """Cancelled from any state that is not final; again: the same answer.

    Raises `NotFound`, `Conflict` (completed or failed), `Unavailable`.
    """
    return await core.write(lambda tx: _cancel(core, tx, job_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelFilter:
    """Which of a tenant's unfinished jobs are no longer wanted; None is any."""

    tenant: str
    queue: str | None = None
    test_suite: str | None = None
    state: State | None = None


async def cancel_many(core: Core, wanted: CancelFilter) -> int:
    """Cancel the jobs that matched when this began, in bounded steps; how many it cancelled.

    Each job is judged by itself: one that ends meanwhile is left as it ended. Raises `Unavailable`; what was
    cancelled before stays cancelled, and the same call goes on.
    """
    cancelled, after_seq = 0, 0
    async with core.reading() as connection:
        newest = await jobs.newest_seq(connection)
    while True:
        async with core.reading() as connection:
            found = await jobs.unfinished(
                connection, _equal(wanted), after_seq=after_seq, upto_seq=newest, limit=AT_ONCE
            )
        if not found:
            return cancelled
        after_seq = found[-1].seq
        try:
            outcomes = await asyncio.gather(*(_cancel_if_matching(core, job.id, wanted) for job in found))
        except NotDispatching as error:  # which would say that none is cancelled, and some may be
            raise Unavailable(str(error)) from error
        cancelled += sum(outcomes)


async def _cancel_if_matching(core: Core, job_id: str, wanted: CancelFilter) -> bool:
    try:
        return await core.write(partial(_cancel_matching, core, job_id, wanted))
    except (NotFound, Conflict):
        return False


async def _cancel_matching(core: Core, job_id: str, wanted: CancelFilter, tx: Transaction) -> bool:
    job = await existing_job(await tx.reading(), job_id)
    if job.state.is_final or (wanted.state is not None and job.state is not wanted.state):
        return False
    await _cancel(core, tx, job_id)
    return True


def _equal(wanted: CancelFilter) -> dict[str, str]:
    return {name: value for name, value in asdict(wanted).items() if value is not None}


async def _cancel(core: Core, tx: Transaction, job_id: str) -> Job:
    job = await existing_job(await tx.reading(), job_id)
    if job.state is State.CANCELLED:
        return job
    if job.state.is_final:
        raise Conflict(f"the job is {job.state} already", job.state)
    now = core.clock.now()
    values = {"completed_at": now}
    if job.state.is_leased:
        ending = Ending(state=State.CANCELLED, outcome=Outcome.CANCELLED, values=values)
        end = End.of(job, now, ending)
        end_attempts(core, tx, [end])
        return end.ended
    cancelled = await jobs.move_if_unchanged(await tx.settled(), job, Move(job.state, State.CANCELLED), values)
    if cancelled is None:
        raise Redo
    core.order.withdraw(job_id)
    core.note_move(cancelled, job.state)
    return cancelled
