"""What is asked all day uses the index that was made for it, beside a long history; heartbeats stay HOT."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Select, func, literal_column, select, text

from app.scheduling.job import State
from app.store.engine import Engines, open_engines
from app.store.jobs import select_finished
from app.store.schema import IS_ACTIVE, IS_PENDING, IS_QUEUED, jobs
from app.store.types import Moment
from tests.databases import Database
from tests.store.rows import add_job, cells, insert

c = jobs.c
NOW = literal_column("'2026-01-31T12:00:00.000000Z'", Moment)
DUE = select(jobs).where(IS_PENDING, c.run_at <= NOW).order_by(c.run_at, c.seq).limit(100)
DEPTH = select(c.queue, c.tenant, func.count()).where(IS_QUEUED).group_by(c.queue, c.tenant)
HOT_QUERIES = [
    pytest.param(DUE, "ix_jobs_pending", id="due"),
    pytest.param(select(c.run_at).where(IS_PENDING).order_by(c.run_at).limit(1), "ix_jobs_pending", id="next due"),
    pytest.param(select(c.id, c.seq, c.tenant).where(IS_QUEUED), "ix_jobs_queued", id="queued"),
    pytest.param(DEPTH, "ix_jobs_queued", id="depth"),
    pytest.param(select(jobs).where(IS_ACTIVE), "ix_jobs_active", id="leases"),
    pytest.param(select(c.tenant, func.count()).where(IS_ACTIVE).group_by(c.tenant), "ix_jobs_active", id="running"),
    pytest.param(select(c.worker, c.scheduled_at).where(IS_ACTIVE), "ix_jobs_active", id="workers"),
    pytest.param(select(jobs).order_by(c.seq.desc()).limit(100), None, id="list"),
    *(
        pytest.param(
            select(jobs).where(c[name] == literal_column(f"'{value}'"), c.seq < 1000).order_by(c.seq.desc()).limit(10),
            f"ix_jobs_{name}_seq",
            id=f"list by {name}",
        )
        for name, value in (("tenant", "rare"), ("queue", "rare"), ("test_suite", "rare"), ("state", "failed"))
    ),
]


@pytest.fixture(scope="module")
async def _history(shared: Database) -> None:
    """Two thousand jobs that are over, and a few in each other state."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
    row = {"tenant": "'acme'", "test_suite": "'unit'", **cells(State.QUEUED)}
    over = ", ".join(f"{column} = {value}" for column, value in cells(State.CANCELLED).items())
    await shared.execute(
        f"INSERT INTO jobs ({', '.join(row)}) {numbers} SELECT {', '.join(row.values())} FROM n",
        f"UPDATE jobs SET {over}",
        insert("tenants", {"name": "'rare'"}),
        insert("queues", {"name": "'rare'"}),
    )
    for state in State:
        await add_job(shared, state, tenant="'rare'", queue="'rare'", test_suite="'rare'")
    if shared.kind == "postgres":
        await shared.execute("ANALYZE jobs")  # what autovacuum does in time; SQLite is never told


async def plan(engines: Engines, statement: Select[Any]) -> str:
    explain = "EXPLAIN QUERY PLAN " if engines.dialect == "sqlite" else "EXPLAIN "
    async with engines.reader.connect() as connection:
        sql = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        return "\n".join(str(row[-1]) for row in await connection.execute(text(explain + str(sql))))


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(("statement", "index"), HOT_QUERIES)
async def test_a_hot_query_uses_its_index(shared_engines: Engines, statement: Select[Any], index: str | None) -> None:
    found = await plan(shared_engines, statement)

    if index is not None:
        assert index in found
    assert "Seq Scan" not in found
    assert "Sort" not in found
    assert "TEMP B-TREE" not in found


@pytest.mark.usefixtures("_history")
async def test_the_jobs_to_delete_are_found_by_their_end(shared_engines: Engines) -> None:
    now = datetime.now(UTC)

    found = await plan(shared_engines, select_finished(now, (now, 7), 100))

    assert "ix_jobs_finished" in found
    assert "Seq Scan" not in found
    assert "Index Cond" in found or "completed_at>? AND completed_at<?" in found  # it is entered where it went on


@pytest.mark.parametrize("condition", [IS_PENDING, IS_QUEUED, IS_ACTIVE])
async def test_a_condition_has_no_bound_values(engines: Engines, condition: Any) -> None:
    assert not condition.compile(dialect=engines.writer.dialect).params


async def test_every_heartbeat_is_a_hot_update(postgres: Database) -> None:
    seq = await add_job(postgres, State.RUNNING)
    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"
    flush = "SELECT pg_stat_force_next_flush()"
    beat = f"UPDATE jobs SET lease_expires_at = now(), progress = 0.5 WHERE seq = {seq}"

    async with open_engines(postgres.url) as engines:
        async with engines.writer.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text(flush))
            updated, hot = (await connection.execute(text(counted))).one()
            for _ in range(100):
                await connection.execute(text(beat))
            await connection.execute(text(flush))
        [(updated_after, hot_after)] = await postgres.fetch(counted)

    assert (updated_after - updated, hot_after - hot) == (100, 100)
