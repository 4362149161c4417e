"""Statements on ended attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Insert, bindparam, cast, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import Attempt, Job, Outcome
from app.store.schema import job_attempts, jobs


def _end() -> Insert:
    c, ended = jobs.c, job_attempts.c
    job_id = bindparam("of_job", type_=c.id.type)
    last = select(func.coalesce(func.max(ended.number), 0)).where(ended.job_id == job_id).scalar_subquery()
    attempt = select(
        c.id,
        last + 1,
        c.token,
        c.worker,
        c.queued_at,
        c.scheduled_at,
        c.started_at,
        *(cast(bindparam(name, type_=ended[name].type), ended[name].type) for name in ("ended_at", "outcome", "error")),
        c.dispatch_weight,
        c.cost,
    ).where(
        c.id == job_id,
        c.token == bindparam("held", type_=c.token.type),
        c.state == bindparam("in_state", type_=c.state.type),
    )
    return insert(job_attempts).from_select([column.name for column in ended], attempt)


_END: Final = _end()


async def end_if_held(
    connection: AsyncConnection, job: Job, outcome: Outcome, error: str | None, now: datetime
) -> bool:
    """Write down the attempt that `job`'s present lease is; False if the row is no longer under it."""
    given = {
        "of_job": job.id,
        "held": job.token,
        "in_state": job.state,
        "ended_at": now,
        "outcome": outcome,
        "error": error,
    }
    return (await connection.execute(_END, given)).rowcount == 1


async def of_job(connection: AsyncConnection, job_id: str) -> list[Attempt]:
    """The ended attempts of a job, first to last."""
    statement = select(job_attempts).where(job_attempts.c.job_id == job_id).order_by(job_attempts.c.number)
    return [Attempt(*row) for row in await connection.execute(statement)]


async def outcome_under(connection: AsyncConnection, job_id: str, token: str) -> Outcome | None:
    """How the attempt that had this token has ended; None if it has not, or somebody ended it by hand."""
    statement = select(job_attempts.c.outcome).where(job_attempts.c.job_id == job_id, job_attempts.c.token == token)
    outcome = (await connection.execute(statement)).scalar_one_or_none()
    return None if outcome is None else Outcome(outcome)
