"""How a transaction ends: all of what is left, the proof and the commit, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import State
from app.store.conclusion import Conclusion
from app.store.dialect import draw_seqs
from app.store.engine import Engines
from app.store.many import ROWS_PER_STATEMENT
from app.store.parts import Inserts, Part, Redo, Updates, Upserts, write
from app.store.schema import IS_QUEUED, jobs, queues
from tests.store.pending_jobs import add_jobs

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

_PROOF = update(queues).where(queues.c.name == bindparam("proved")).values(horizon=queues.c.horizon + 1)
_CLOCKS = select(queues.c.name, queues.c.clock, queues.c.since_move, queues.c.horizon).where(queues.c.name != "default")
_NEW = ("seq", "tenant", "test_suite")
_OURS, _ANOTHERS = {"proved": "other"}, {"proved": "of another"}

has_begun = pytest.mark.parametrize("has_begun", [True, False], ids=["begun", "alone"])


@pytest.fixture
async def ids(engines: Engines) -> list[str]:
    """Pending jobs, a tenant and a queue."""
    async with engines.writer.begin() as connection:
        await connection.execute(insert(queues), [{"name": "other", "clock": 1}])
        return await add_jobs(connection, ROWS_PER_STATEMENT + 2)


@asynccontextmanager
async def ending(engines: Engines, *, has_begun: bool) -> AsyncIterator[tuple[AsyncConnection, Conclusion]]:
    """A transaction in which nothing was said yet, or something."""
    async with engines.writer.connect() as connection:
        await connection.begin()
        if has_begun:
            await connection.execute(update(queues).where(queues.c.name == "other").values(since_move=5))
        yield connection, Conclusion(connection)


def promotion(ids: list[str]) -> Updates:
    return Updates(
        jobs,
        ("id",),
        ("effective_priority",),
        [(job_id, place) for place, job_id in enumerate(ids)],
        {"state": State.QUEUED, "queued_at": NOON},
        jobs.c.state == State.PENDING,
    )


async def found(engines: Engines, what: Any) -> Any:
    async with engines.reader.begin() as connection:
        return (await connection.execute(what)).all()


@has_begun
@pytest.mark.parametrize("count", [1, 3, ROWS_PER_STATEMENT + 1])
async def test_all_that_is_left_is_there_with_the_commit(
    engines: Engines, ids: list[str], count: int, *, has_begun: bool
) -> None:
    async with engines.writer.begin() as connection:
        seqs = await draw_seqs(connection, count)
    async with ending(engines, has_begun=has_begun) as (_, conclusion):
        parts: list[Part] = [
            Inserts.into(jobs, _NEW, [(seq, "acme", "unit") for seq in seqs]),
            promotion(ids[:count]),
            Upserts(queues, ("name",), ("clock", "since_move"), [(f"q{n}", 7, n) for n in range(count)]),
        ]

        await conclusion.commit(parts, _PROOF, _OURS, has_begun=has_begun)

    proved = ("other", 1, 5 if has_begun else 0, 1)
    assert set(await found(engines, _CLOCKS)) == {proved, *((f"q{n}", 7, n, 0) for n in range(count))}
    told = await found(engines, select(jobs.c.id, jobs.c.effective_priority).where(IS_QUEUED))
    assert dict(told) == {job_id: place for place, job_id in enumerate(ids[:count])}
    assert await found(engines, select(func.count()).select_from(jobs)) == [(len(ids) + count,)]


@has_begun
@pytest.mark.parametrize("count", [2, ROWS_PER_STATEMENT + 2])
async def test_rows_that_are_not_as_expected_undo_all_of_it(
    engines: Engines, ids: list[str], count: int, *, has_begun: bool
) -> None:
    """Somebody was there first."""
    async with engines.writer.begin() as connection:
        await write(connection, promotion(ids[:1]))
    async with ending(engines, has_begun=has_begun) as (_, conclusion):
        clock = Upserts(queues, ("name",), ("clock",), [("q", 7)])
        with pytest.raises((DBAPIError, Redo)):
            await conclusion.commit([clock, promotion(ids[:count])], _PROOF, _OURS, has_begun=has_begun)
        assert not conclusion.may_be_durable

    assert await found(engines, _CLOCKS) == [("other", 1, 0, 0)]
    assert await found(engines, select(jobs.c.id).where(IS_QUEUED)) == [(ids[0],)]


@has_begun
async def test_a_proof_that_fails_undoes_all_of_it(engines: Engines, ids: list[str], *, has_begun: bool) -> None:
    async with ending(engines, has_begun=has_begun) as (_, conclusion):
        with pytest.raises(DBAPIError):
            await conclusion.commit([promotion(ids[:2])], _PROOF, _ANOTHERS, has_begun=has_begun)
        assert not conclusion.may_be_durable

    assert await found(engines, _CLOCKS) == [("other", 1, 0, 0)]
    assert await found(engines, select(jobs.c.id).where(IS_QUEUED)) == []


@has_begun
@pytest.mark.usefixtures("ids")
async def test_a_part_that_is_refused_undoes_all_of_it(engines: Engines, *, has_begun: bool) -> None:
    clock, orphan = (
        Upserts(queues, ("name",), ("clock",), [("q", 5)]),
        Inserts.into(jobs, _NEW, [(9999, "nobody", "u")]),
    )
    async with ending(engines, has_begun=has_begun) as (_, conclusion):
        with pytest.raises(IntegrityError):
            await conclusion.commit([clock, orphan], _PROOF, _OURS, has_begun=has_begun)
        assert not conclusion.may_be_durable

    assert await found(engines, _CLOCKS) == [("other", 1, 0, 0)]


@pytest.mark.usefixtures("ids")
async def test_the_connection_is_as_good_as_before(engines: Engines) -> None:
    """Whether it ended well or not, the next transaction is undone if nobody commits it."""
    async with engines.writer.connect() as connection:
        for proof in (_OURS, _ANOTHERS):
            await connection.begin()
            conclusion = Conclusion(connection)
            try:
                await conclusion.commit([], _PROOF, proof, has_begun=False)
            except DBAPIError:
                await connection.rollback()
            await connection.begin()
            await connection.execute(update(queues).values(clock=99))
            await connection.rollback()

    assert await found(engines, _CLOCKS) == [("other", 1, 0, 1)]
