"""What both engines do differently is the same from outside."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.scheduling.job import State
from app.store.dialect import draw_seqs, is_unavailable, upsert, violated_constraint
from app.store.engine import Engines, Timeouts, open_engines
from app.store.schema import (
    FK_JOBS_TENANT,
    PK_JOBS,
    TR_JOBS_LEGAL_MOVE,
    UQ_JOBS_ID,
    UQ_JOBS_IDEMPOTENCY_KEY,
    jobs,
    lanes,
    metadata,
    tenants,
)
from tests.databases import Database
from tests.store.pending_jobs import add_jobs
from tests.store.rows import add_job, add_tenant, cells
from tests.store.rows import update as update_sql

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


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


async def test_hand_typed_updates_are_refused_by_the_same_name(engines: Engines, database: Database) -> None:
    """The name that `Refused` reads off a session by hand is the one that the application reads off an error."""
    await add_tenant(database)
    seq = await add_job(database, State.QUEUED)
    with pytest.raises(IntegrityError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(text(update_sql(seq, cells(State.RUNNING))))
    assert violated_constraint(refused.value) == TR_JOBS_LEGAL_MOVE
