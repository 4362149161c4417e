"""Statements on ended attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import FromClause, Insert, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import Attempt, Outcome
from app.store import dialect, many, parts
from app.store.schema import job_attempts, jobs

_HELD: Final = (jobs.c.id, jobs.c.token, jobs.c.state)
_UNDER: Final = (job_attempts.c.job_id, job_attempts.c.token, job_attempts.c.outcome)
_HOW: Final = (job_attempts.c.ended_at, job_attempts.c.outcome, job_attempts.c.error)


def _end(given: FromClause) -> Insert:
    c, ended = jobs.c, job_attempts.c
    last = select(func.coalesce(func.max(ended.number), 0)).where(ended.job_id == c.id).scalar_subquery()
    attempts = select(
        c.id,
        last + 1,
        c.token,
        c.worker,
        c.queued_at,
        c.scheduled_at,
        c.started_at,
        *(given.c[column.name] for column in _HOW),
        c.dispatch_weight,
        c.cost,
    ).where(c.id == given.c.id, *(dialect.tested_only(c[name] == given.c[name]) for name in ("token", "state")))
    return insert(job_attempts).from_select([column.name for column in ended], attempts)


def ended(ends: Sequence[Sequence[Any]]) -> parts.Inserts:
    """The rows of the attempts that leases are. Each of `ends` is `id`, `token` and `state` of one job as it was read,
    and the attempt's `ended_at`, `outcome` and `error`."""
    return parts.Inserts(_end, (*_HELD, *_HOW), ends)


async def of_job(connection: AsyncConnection, job_id: str) -> list[Attempt]:
    """The ended attempts of a job, first to last."""
    statement = select(job_attempts).where(job_attempts.c.job_id == job_id).order_by(job_attempts.c.number)
    return [Attempt(*row) for row in await connection.execute(statement)]


async def outcomes_under(
    connection: AsyncConnection, leases: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Outcome]:
    """How the attempts that had these tokens, each of a job, have ended; those that have, and not by hand."""
    rows = [{"job_id": job_id, "token": token} for job_id, token in leases]
    found = await many.select_each(connection, job_attempts, rows, keys=["job_id", "token"], wanted=_UNDER)
    return {(job_id, token): outcome for job_id, token, outcome in found}
