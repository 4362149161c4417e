"""What both engines do differently is the same from outside."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, event, func, insert, select, text, update
from sqlalchemy.engine.interfaces import CacheStats
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import State
from app.store.dialect import (
    ROWS_PER_STATEMENT,
    Inserts,
    Part,
    Upserts,
    draw_seqs,
    execute_with,
    insert_each,
    is_unavailable,
    select_each,
    update_each,
    upsert,
    violated_constraint,
)
from app.store.engine import Engines, Timeouts, open_engines
from app.store.schema import (
    FK_JOBS_TENANT,
    IS_PENDING,
    IS_QUEUED,
    PK_JOBS,
    TR_JOBS_LEGAL_MOVE,
    UQ_JOBS_ID,
    UQ_JOBS_IDEMPOTENCY_KEY,
    jobs,
    lanes,
    metadata,
    queues,
    tenants,
)
from tests.databases import Database
from tests.store.rows import add_job, add_tenant, cells
from tests.store.rows import update as update_sql

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


async def add_jobs(connection: AsyncConnection, count: int, **columns: Any) -> list[str]:
    """Pending jobs of the tenant acme; their ids in the order of their seq."""
    await connection.execute(upsert(connection, tenants, keys=["name"], update=[]), [{"name": "acme"}])
    rows = [
        {"seq": seq, "id": uuid.uuid4().hex, "tenant": "acme", "test_suite": "unit", **columns}
        for seq in await draw_seqs(connection, count)
    ]
    await connection.execute(insert(jobs), rows)
    return [row["id"] for row in rows]


# --- errors ---


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("ck_jobs_cost_range", {"cost": 0}),
        (PK_JOBS, {"seq": 1}),
        (UQ_JOBS_ID, {"id": "0" * 32}),
        (UQ_JOBS_IDEMPOTENCY_KEY, {"idempotency_key": "once"}),
        (FK_JOBS_TENANT, {"tenant": "nobody"}),
        (None, {"test_suite": None}),
    ],
)
async def test_a_refused_insert_names_what_refused_it(
    engines: Engines, name: str | None, columns: dict[str, Any]
) -> None:
    async with engines.writer.begin() as connection:
        await add_jobs(connection, 1, id="0" * 32, idempotency_key="once")

    with pytest.raises(IntegrityError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(insert(jobs).values(**{"tenant": "acme", "test_suite": "unit", **columns}))

    assert violated_constraint(refused.value) == name
    assert not is_unavailable(refused.value)


async def test_a_refused_move_names_its_trigger(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    await add_job(database, State.PENDING)

    with pytest.raises(IntegrityError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(update(jobs).values(state=State.RUNNING))

    assert violated_constraint(refused.value) == TR_JOBS_LEGAL_MOVE


async def test_a_key_without_a_trigger_is_named_too(engines: Engines) -> None:
    with pytest.raises(IntegrityError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(insert(tenants), [{"name": "acme"}, {"name": "acme"}])

    assert violated_constraint(refused.value) == "pk_tenants"


def test_every_key_is_called_what_sqlite_is_taken_to_mean() -> None:
    for table in metadata.tables.values():
        for key in (*table.constraints, *(index for index in table.indexes if index.unique)):
            if isinstance(key, PrimaryKeyConstraint):
                assert key.name == f"pk_{table.name}"
            elif isinstance(key, UniqueConstraint) or key in table.indexes:
                assert key.name == "_".join(["uq", table.name, *key.columns.keys()])


def test_other_errors_violate_nothing() -> None:
    assert violated_constraint(ValueError("CHECK constraint failed: x")) is None


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as if")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (PoolTimeout(), True),
        (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        (sqlite_error(sqlite3.SQLITE_FULL), True),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), True),
        (sqlite_error(sqlite3.SQLITE_ERROR), False),
        (sqlite3.ProgrammingError("the driver's own"), False),
        (asyncpg.ConnectionDoesNotExistError("gone"), True),
        (asyncpg.AdminShutdownError("stopping"), True),
        (asyncpg.TooManyConnectionsError("full"), True),
        (asyncpg.DiskFullError("full"), True),
        (asyncpg.LockNotAvailableError("waited"), True),
        (asyncpg.DeadlockDetectedError("deadlock"), True),
        (asyncpg.InterfaceError("connection is closed"), True),
        (asyncpg.DataError("the driver cannot encode this"), False),
        (asyncpg.UndefinedColumnError("wrong"), False),
        (asyncpg.CheckViolationError("wrong"), False),
        (ValueError("wrong"), False),
        (asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"), True),
    ],
)
def test_unavailable_is_not_wrong(error: Exception, expected: bool) -> None:  # noqa: FBT001
    assert is_unavailable(error) is expected
    if isinstance(error, (sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)):
        assert is_unavailable(DBAPIError("SELECT 1", {}, error)) is expected


async def test_a_writer_that_waits_too_long_for_the_lock_is_unavailable(database: Database) -> None:
    await add_tenant(database)
    impatient = Timeouts(lock=0.05)
    set_weight = update(tenants).values(weight=2)
    async with open_engines(database.url) as holder, open_engines(database.url, timeouts=impatient) as waiter:
        async with holder.writer.begin() as connection:
            await connection.execute(set_weight)
            with pytest.raises(DBAPIError) as refused:
                async with waiter.writer.begin() as late:
                    await late.execute(set_weight)
        async with waiter.writer.begin() as connection:  # the connection is none the worse for it
            await connection.execute(set_weight)

    assert is_unavailable(refused.value)


async def test_a_pool_that_is_used_up_is_unavailable(database: Database) -> None:
    async with open_engines(database.url, timeouts=Timeouts(pool=0.05)) as engines, engines.writer.begin():
        with pytest.raises(PoolTimeout) as refused:
            async with engines.writer.begin():
                pass

    assert is_unavailable(refused.value)


async def test_a_command_that_takes_too_long_is_unavailable(postgres: Database) -> None:
    async with (
        open_engines(postgres.url, timeouts=Timeouts(command=0.1)) as engines,
        engines.reader.connect() as connection,
    ):
        with pytest.raises(TimeoutError) as refused:
            await connection.execute(text("SELECT pg_sleep(30)"))

    assert is_unavailable(refused.value)


async def test_a_killed_connection_is_unavailable_and_then_replaced(postgres: Database) -> None:
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fairlane writer'"
    async with open_engines(postgres.url) as engines:
        async with engines.writer.connect() as connection:
            await connection.execute(text("SELECT 1"))
            await postgres.execute(kill)
            with pytest.raises(DBAPIError) as refused:
                await connection.execute(text("SELECT 1"))
        assert is_unavailable(refused.value)

        async with engines.writer.begin() as connection:
            await connection.execute(text("SELECT 1"))
        await postgres.execute(kill)
        async with engines.writer.begin() as connection:  # found out by the pool, before the request is
            assert await connection.scalar(text("SELECT 1")) == 1


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with open_engines("postgresql://nobody@127.0.0.1:1/nothing") as engines:
        with pytest.raises(OSError) as refused:  # noqa: PT011 - whichever it is
            async with engines.reader.connect():
                pass

    assert is_unavailable(refused.value)


# --- draw_seqs ---


async def test_drawn_numbers_grow_and_never_overlap(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        first, second = await draw_seqs(connection, 3), await draw_seqs(connection, 2)
        ids = await add_jobs(connection, 2)
        found = (await connection.execute(select(jobs.c.id).order_by(jobs.c.seq))).scalars().all()

    assert first + second == [1, 2, 3, 4, 5]
    assert found == ids


async def test_a_hand_typed_job_draws_from_the_same_source(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    before = await add_job(database, State.PENDING)
    async with engines.writer.begin() as connection:
        drawn = await draw_seqs(connection, 3)
        await connection.execute(insert(jobs).values(seq=drawn[0], tenant="acme", test_suite="unit"))
    after = await add_job(database, State.PENDING)

    assert [before, *drawn, after] == [1, 2, 3, 4, 5]


async def test_numbers_drawn_at_the_same_time_differ(database: Database) -> None:
    async def draw() -> list[int]:
        async with open_engines(database.url) as mine, mine.writer.begin() as connection:
            return await draw_seqs(connection, 50)

    drawn = [seq for seqs in await asyncio.gather(*(draw() for _ in range(4))) for seq in seqs]

    assert sorted(drawn) == list(range(1, 201))


@pytest.mark.parametrize("reset", ["DELETE FROM sqlite_sequence", "UPDATE sqlite_sequence SET seq = 0"])
async def test_a_counter_that_somebody_reset_gives_no_number_twice(sqlite: Database, reset: str) -> None:
    taken = await add_job(sqlite, State.PENDING)
    await sqlite.execute(reset)

    async with open_engines(sqlite.url) as engines, engines.writer.begin() as connection:
        assert await draw_seqs(connection, 2) == [taken + 1, taken + 2]
        assert await draw_seqs(connection, 1) == [taken + 3]


# --- upsert ---


async def test_upsert_sets_what_it_is_told_and_nothing_else(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        await connection.execute(insert(tenants).values(name="acme", weight=5, max_running=7))
        set_weight = upsert(connection, tenants, keys=["name"], update=["weight"])
        await connection.execute(set_weight, [{"name": "acme", "weight": 9}, {"name": "new", "weight": 2}])
        await connection.execute(upsert(connection, tenants, keys=["name"], update=[]), [{"name": "acme"}])
        await connection.execute(
            upsert(connection, lanes, keys=["queue", "tenant"], update=["virtual_time"]),
            [{"queue": "default", "tenant": "acme", "virtual_time": time} for time in (1, 2)],
        )
        found = await connection.execute(
            select(tenants.c.name, tenants.c.weight, tenants.c.max_running).order_by(tenants.c.name)
        )

        assert [tuple(row) for row in found] == [("acme", 9, 7), ("new", 2, None)]
        assert (await connection.execute(select(lanes.c.virtual_time))).scalar_one() == 2


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
    yield hits
    event.remove(engines.writer.sync_engine, "after_cursor_execute", note)


async def test_a_statement_for_many_is_compiled_once(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        ids = await add_jobs(connection, 100)
        await promote(connection, ids[:1])
        with cache_hits(engines) as hits:
            await promote(connection, ids[1:10])
            await promote(connection, ids[10:])

    assert hits == [CacheStats.CACHE_HIT, CacheStats.CACHE_HIT]


async def test_hand_typed_updates_are_refused_by_the_same_name(engines: Engines, database: Database) -> None:
    """The name that `Refused` reads off a session by hand is the one that the application reads off an error."""
    await add_tenant(database)
    seq = await add_job(database, State.QUEUED)
    with pytest.raises(IntegrityError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(text(update_sql(seq, cells(State.RUNNING))))
    assert violated_constraint(refused.value) == TR_JOBS_LEGAL_MOVE


# --- execute_with ---

_RAISE = update(queues).where(queues.c.name == "other").values(horizon=queues.c.horizon + 1)
_CLOCKS = select(queues.c.name, queues.c.clock, queues.c.since_move, queues.c.horizon).where(queues.c.name != "default")


@pytest.mark.parametrize("count", [1, 3, 200])
async def test_parts_are_written_with_a_statement(engines: Engines, count: int) -> None:
    """Few are one statement with it on Postgres, many come before it."""
    async with engines.writer.begin() as connection:
        await connection.execute(insert(tenants), [{"name": "acme"}])
        await connection.execute(insert(queues), [{"name": name, "clock": 1} for name in ("other", "q0")])
        names = ("seq", "tenant", "test_suite")
        parts: list[Part] = [
            Inserts(jobs, names, [(seq, "acme", "unit") for seq in await draw_seqs(connection, 6 * count)]),
            Upserts(queues, ("name",), ("clock", "since_move"), [(f"q{n}", 7, n) for n in range(count)]),
        ]

        assert await execute_with(connection, parts, _RAISE, {}) == 1

        told = await connection.execute(_CLOCKS)
        assert set(told.all()) == {("other", 1, 0, 1), *((f"q{n}", 7, n, 0) for n in range(count))}
        assert await connection.scalar(select(func.count()).select_from(jobs)) == 6 * count


async def test_a_part_that_is_refused_is_refused_with_all_the_rest(engines: Engines) -> None:
    clock = Upserts(queues, ("name",), ("clock",), [("other", 5)])
    orphan = Inserts(jobs, ("seq", "tenant", "test_suite"), [(1, "nobody", "unit")])
    async with engines.writer.connect() as connection:
        with pytest.raises(IntegrityError):
            await execute_with(connection, [clock, orphan], _RAISE, {})
    async with engines.reader.begin() as connection:
        assert (await connection.execute(_CLOCKS)).all() == []
