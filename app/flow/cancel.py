"""A job is no longer wanted."""

from __future__ import annotations

from app.errors import Conflict
from app.flow.core import Core
from app.flow.finish import Ending, end_attempt
from app.flow.lease import existing_job
from app.scheduling.job import Job, Move, Outcome, State
from app.store import jobs
from app.store.transaction import Transaction
from app.store.writer import Redo


async def cancel(core: Core, job_id: str) -> Job:
    """Cancelled from any state that is not final; again: the same answer.

    Raises `NotFound`, `Conflict` (completed or failed), `Unavailable`.
    """
    return await core.write(lambda tx: _cancel(core, tx, job_id))


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
        return await end_attempt(core, tx, job, now, ending)
    cancelled = await jobs.move_if_unchanged(await tx.settled(), job, Move(job.state, State.CANCELLED), values)
    if cancelled is None:
        raise Redo
    core.order.withdraw(job_id)
    core.note_move(cancelled, job.state)
    return cancelled
