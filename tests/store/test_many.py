"""Many rows in one statement, on both engines."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, insert, select
from sqlalchemy.engine.interfaces import CacheStats
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import State
from app.store.dialect import draw_seqs, upsert, violated_constraint
from app.store.engine import Engines
from app.store.many import ROWS_PER_STATEMENT, insert_each, select_each, update_each
from app.store.schema import (
    IS_PENDING,
    IS_QUEUED,
    jobs,
    tenants,
)
from tests.databases import Database
from tests.store.pending_jobs import add_jobs
from tests.store.rows import add_job, add_tenant

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


# --- update_each, select_each ---


async def promote(connection: AsyncConnection, ids: list[str], **extra: Any) -> set[str]:
    moved = await update_each(
        connection,
        jobs,
        [{"id": job_id, "effective_priority": place} for place, job_id in enumerate(ids)],
        keys=["id"],
        values=["effective_priority"],
        same={"state": State.QUEUED, "queued_at": NOON, **extra},
        where=IS_PENDING,
        returning=[jobs.c.id, jobs.c.effective_priority],
    )
    assert all(ids.index(row.id) == row.effective_priority for row in moved)
    return {row.id for row in moved}


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_STATEMENT, ROWS_PER_STATEMENT + 1])
async def test_each_row_gets_its_own_values(engines: Engines, count: int) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, count) if count else []

        assert await promote(connection, ids) == set(ids)
        found = await connection.execute(select(jobs.c.id, jobs.c.effective_priority).where(IS_QUEUED))

    assert {row.id: row.effective_priority for row in found} == {job_id: place for place, job_id in enumerate(ids)}


async def test_a_row_that_is_not_as_it_must_be_is_left_alone(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, 3)
        await promote(connection, ids[:1])

        assert await promote(connection, [*ids, uuid.uuid4().hex]) == set(ids[1:])


async def test_shared_expressions_look_at_the_row(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, 2, attempt=1)
        await promote(connection, ids, attempt=jobs.c.attempt + 1)

        assert (await connection.execute(select(jobs.c.attempt).distinct())).scalars().all() == [2]


async def test_values_of_every_type_arrive(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    results: list[Any] = [{"a": [1, None]}, [[1], [2, 3]], "text\\u0000", 1.5, False, None, 2**53 + 1]
    seqs = [await add_job(database, State.RUNNING) for _ in results]
    async with engines.writer.begin() as connection:
        await update_each(
            connection,
            jobs,
            [
                {"seq": seq, "token": "a token", "state": State.COMPLETED, "result": result, "progress": 0.1 * place,
                 "completed_at": NOON.replace(microsecond=place), "charge": 2**62 + place}
                for place, (seq, result) in enumerate(zip(seqs, results, strict=True))
            ],
            keys=["seq", "token"],
            values=["state", "result", "progress", "completed_at", "charge"],
            same={"token": None, "lease_expires_at": None, "lease_sec": None},
            returning=[jobs.c.seq],
        )  # fmt: skip
        c = jobs.c
        columns = (c.state, c.result, c.progress, c.completed_at, c.charge)
        rows = (await connection.execute(select(*columns).order_by(c.seq))).all()

    assert [tuple(row) for row in rows] == [
        (State.COMPLETED, result, 0.1 * place, NOON.replace(microsecond=place), 2**62 + place)
        for place, result in enumerate(results)
    ]


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_STATEMENT + 1])
async def test_rows_are_inserted_with_all_they_have(engines: Engines, count: int) -> None:
    payloads: list[Any] = [None, {"a": ["\U0001f600", 0.1, "\\u0000"]}, [], "", 2**53 + 1, False]
    names = ["seq", "id", "tenant", "test_suite", "priority", "payload", "run_at", "idempotency_key"]
    async with engines.writer.begin() as connection:
        await connection.execute(upsert(connection, tenants, keys=["name"], update=[]), [{"name": "acme"}])
        rows = [
            {"seq": seq, "id": uuid.uuid4().hex, "tenant": "acme", "test_suite": "\u202etset", "priority": place % 11}
            | {"payload": payloads[place % 6], "run_at": NOON.replace(microsecond=place), "idempotency_key": f"{place}"}
            for place, seq in enumerate(await draw_seqs(connection, count))
        ]
        await insert_each(connection, jobs, [[row[name] for name in names] for row in rows], names)
        found = await connection.execute(select(*(jobs.c[name] for name in names)).order_by(jobs.c.seq))
        states = await connection.execute(select(jobs.c.state, jobs.c.attempt, jobs.c.queue).distinct())

    assert [row._asdict() for row in found] == rows
    assert states.all() == [(State.PENDING, 0, "default")][:count]


async def test_flags_arrive(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        await connection.execute(insert(tenants), [{"name": "a"}, {"name": "b"}])
        rows = [
            {"name": "a", "paused": True, "rate_per_sec": 2.0},
            {"name": "b", "paused": False, "rate_per_sec": None},
        ]
        columns = [tenants.c.name, tenants.c.paused, tenants.c.rate_per_sec]
        found = await update_each(
            connection, tenants, rows, keys=["name"], values=["paused", "rate_per_sec"], returning=columns
        )

    assert sorted(tuple(row) for row in found) == [("a", True, 2.0), ("b", False, None)]


async def test_two_rows_for_one_key_are_refused(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, 1)
        with pytest.raises(ValueError, match="the same id"):
            await promote(connection, ids * 2)


async def test_a_trigger_refuses_one_row_and_none_is_changed(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    seqs = [await add_job(database, state) for state in (State.PENDING, State.RUNNING)]
    async with engines.writer.begin() as connection:
        with pytest.raises(IntegrityError) as refused:
            async with connection.begin_nested():
                await update_each(
                    connection,
                    jobs,
                    [{"seq": seq, "state": State.CANCELLED, "priority": 3} for seq in seqs],
                    keys=["seq"],
                    values=["state", "priority"],
                    returning=[jobs.c.seq],
                )
    assert violated_constraint(refused.value) == "tr_jobs_priority"
    assert await database.fetch("SELECT state FROM jobs ORDER BY seq") == [("pending",), ("running",)]


async def test_the_rows_of_some_pairs(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        await add_jobs(connection, 1, idempotency_key="one")
        await add_jobs(connection, 1, idempotency_key="two")
        wanted = [{"tenant": "acme", "idempotency_key": key} for key in ("one", "three")]
        found = await select_each(connection, jobs, wanted, keys=["tenant", "idempotency_key"])

    assert [row.idempotency_key for row in found] == ["one"]


@contextmanager
def cache_hits(engines: Engines) -> Iterator[list[CacheStats]]:
    hits: list[CacheStats] = []

    def note(_connection: Any, _cursor: Any, _statement: str, _values: Any, context: Any, _many: bool) -> None:  # noqa: FBT001
        hits.append(context.cache_hit)

    event.listen(engines.writer.sync_engine, "after_cursor_execute", note)
    try:
        yield hits
    finally:
        event.remove(engines.writer.sync_engine, "after_cursor_execute", note)


async def test_a_statement_for_many_is_compiled_once(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, 100)
        await promote(connection, ids[:1])
        with cache_hits(engines) as hits:
            await promote(connection, ids[1:10])
            await promote(connection, ids[10:])

    assert hits == [CacheStats.CACHE_HIT, CacheStats.CACHE_HIT]
