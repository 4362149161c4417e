"""The database fails under the writer's hands: whoever waited is told, memory is as the database is, and what
comes out next is what a twin gives that never tried, or that succeeded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from functools import partial
from typing import Any, get_args

import asyncpg
import pytest

from app import main
from app.errors import Unavailable
from app.events import Recovered, WriterFailed
from app.flow import look, tenancy
from app.flow.core import Core
from app.flow.look import JobFilter
from app.flow.submit import JobRequest, submit
from app.flow.tenancy import TenantSettings
from app.scheduling.job import State
from app.store import writer
from app.store.engine import Timeouts
from app.store.transaction import Transaction
from tests.databases import Database, Sqlite
from tests.flow.calls import FAULTS, failing_call
from tests.flow.harness import (
    HOUR,
    Moment,
    answers_of,
    failing,
    gate,
    in_one_group,
    service,
    until_idle,
)
from tests.flow.scenes import POLICIES, assert_twins, much_at_once, set_up
from tests.flow.views import assert_memory_equals_sql, portrait


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("moment", get_args(Moment))
async def test_a_transaction_that_fails_leaves_no_trace_or_all_of_them(
    database: Database, other_database: Database, moment: Moment, policy: str
) -> None:
    async with service(database, policy=policy) as tried, service(other_database, policy=policy) as twin:
        scene, twins_scene = await set_up(tried), await set_up(twin)

        with failing(tried.core, moment, statement="UPDATE jobs"):
            answers = await in_one_group(tried.core, *much_at_once(tried, scene))
        assert [type(answer) for answer in answers] == [Unavailable] * len(answers)
        is_doubtful = "commit" in moment
        assert tried.core.health().ready is not is_doubtful
        if moment == "after commit":
            await in_one_group(twin.core, *much_at_once(twin, twins_scene))

        await tried.tick()  # whoever comes next, be it the tick, has memory read again

        assert tried.core.health().ready
        assert len(tried.heard.all(Recovered)) == (2 if is_doubtful else 1)
        assert [event.requests for event in tried.heard.all(WriterFailed)] == [len(answers)]
        await assert_twins(tried, twin)


@pytest.mark.parametrize("moment", get_args(Moment))
async def test_a_group_that_is_tried_write_by_write_may_fail_too(
    database: Database, other_database: Database, moment: Moment
) -> None:
    async with service(database) as tried, service(other_database) as twin:
        scene, twins_scene = await set_up(tried), await set_up(twin)
        # A row that is refused makes the writer begin again, each write with a savepoint of its own.
        with failing(tried.core, moment, statement="RELEASE"):
            answers = await in_one_group(tried.core, *much_at_once(tried, scene), tried.submit("a/b"))
        if moment == "after commit":
            await in_one_group(twin.core, *much_at_once(twin, twins_scene))

        assert [type(answer) for answer in answers] == [Unavailable] * len(answers)
        await tried.tick()
        await assert_twins(tried, twin)


async def test_what_was_not_answered_may_be_sent_again(database: Database) -> None:
    async with service(database) as service_:
        scene = await set_up(service_)
        core = service_.core

        with failing(core, "after commit"):
            answers = await in_one_group(
                core,
                service_.complete(scene.running, "done"),
                service_.fail(scene.scheduled),
                service_.cancel(scene.queued),
            )

        assert [type(answer) for answer in answers] == [Unavailable] * 3
        assert (await service_.complete(scene.running, "another result")).result == "done"
        assert (await service_.fail(scene.scheduled)).state is State.QUEUED
        assert (await service_.cancel(scene.queued)).state is State.CANCELLED
        await assert_memory_equals_sql(core)


async def test_while_the_database_is_away_each_request_is_told_and_the_first_one_after_it_is_served(
    database: Database,
) -> None:
    async with service(database) as service_:
        core = service_.core
        await service_.submit()
        with failing(core, "commit"), pytest.raises(Unavailable):
            await service_.submit(name="lost")
        with failing(core, "begin", times=3):
            for request in (service_.submit(), service_.claim(), service_.ticker.tick()):
                with pytest.raises(Unavailable):
                    await request
                assert not core.health().ready

        job = await service_.submit(name="stored")

        assert core.health().ready
        await assert_memory_equals_sql(core)
        assert [job.test_suite for job in await service_.claim(9)] == ["unit", job.test_suite]


async def test_memory_is_not_lost_when_it_cannot_be_read_again(database: Database) -> None:
    async with service(database) as service_:
        core = service_.core
        await set_up(service_)
        with failing(core, "commit"), pytest.raises(Unavailable):
            await service_.claim(3)

        for moment in get_args(Moment):
            with failing(core, moment), pytest.raises(Unavailable):
                await service_.claim(3)

        await service_.tick()
        await assert_memory_equals_sql(core)


@pytest.mark.parametrize("moment", ["statement", "commit"])
async def test_who_waits_for_a_silent_database_is_told_and_what_was_begun_may_be_done(
    database: Database, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(database) as service_:
        core = service_.core
        with monkeypatch.context() as patch, gate(core, moment, statement="INSERT INTO jobs") as stopped:
            patch.setattr(writer, "ANSWER_SEC", 0.05)
            begun = asyncio.create_task(service_.submit(name="begun", idempotency_key="begun"))
            await stopped.reached()
            behind = asyncio.create_task(service_.submit(name="behind", idempotency_key="behind"))
            told = await answers_of([begun, behind])
            stopped.open()
            await until_idle(core)
        assert [str(answer) for answer in told] == ["the database does not answer right now"] * 2

        assert await database.fetch("SELECT test_suite FROM jobs") == [("begun",)]
        for name in ("begun", "behind"):
            await service_.submit(name=name, idempotency_key=name)
        assert await database.fetch("SELECT test_suite FROM jobs ORDER BY seq") == [("begun",), ("behind",)]
        await assert_memory_equals_sql(core)


async def test_a_connection_that_is_silent_for_too_long_is_replaced(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(postgres) as service_:
        core = service_.core
        await set_up(service_)
        before = await portrait(core)
        locked = await asyncpg.connect(postgres.url)
        async with locked.transaction():
            await locked.execute("SELECT FROM dispatcher FOR UPDATE")
            monkeypatch.setattr(writer, "ANSWER_SEC", 0.05)
            monkeypatch.setattr(writer, "SEVER_SEC", 0.1)
            assert [type(answer) for answer in await answers_of([asyncio.create_task(service_.claim(3))])] == [
                Unavailable
            ]
            await service_.heard.wait_for(WriterFailed)
        await locked.close()
        monkeypatch.undo()

        assert await portrait(core) == before
        assert len(await service_.claim(3)) == 3
        await assert_memory_equals_sql(core)


async def test_rows_on_their_way_into_silence_come_once(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(postgres) as service_:
        core = service_.core
        await set_up(service_)
        before = await portrait(core)
        batch = [JobRequest(tenant="acme", test_suite="unit", idempotency_key=f"{n}") for n in range(10)]
        locked = await asyncpg.connect(postgres.url)
        async with locked.transaction():
            await locked.execute("LOCK jobs IN SHARE MODE")
            monkeypatch.setattr(writer, "ANSWER_SEC", 0.05)
            monkeypatch.setattr(writer, "SEVER_SEC", 0.1)
            with pytest.raises(Unavailable):
                await submit(core, batch)
            await service_.heard.wait_for(WriterFailed)
        await locked.close()
        monkeypatch.undo()

        assert await portrait(core) == before
        assert not any(answer.replayed for answer in await submit(core, batch))
        await assert_memory_equals_sql(core)


async def test_a_service_that_cannot_read_is_not_ready_until_it_can(database: Database) -> None:
    async with service(database) as service_:
        core = service_.core
        with failing_call(core, 1, FAULTS[database.kind][0]), pytest.raises(Unavailable):
            await look.list_jobs(core, JobFilter())
        assert (core.health().live, core.health().ready) == (True, False)
        assert core.health().why == "the database is away"

        await service_.tick()

        assert core.health().ready


# --- Failures that nobody injects --------------------------------------------------------------------------


async def end_writers_backend(database: Database) -> None:
    ended = await database.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'fairlane writer' AND datname = current_database()"
    )
    assert ended == [(True,)]


async def test_a_connection_that_is_cut_in_a_transaction_is_replaced(postgres: Database) -> None:
    async with service(postgres) as service_:
        core = service_.core
        await set_up(service_)

        with gate(core, "statement", statement="UPDATE jobs") as stopped:
            claiming = asyncio.create_task(service_.claim(3))
            await stopped.reached()
            await end_writers_backend(postgres)
            stopped.open()
            [claimed] = await answers_of([claiming])

        assert len(claimed) == 3
        assert service_.heard.all(WriterFailed) == []
        await assert_memory_equals_sql(core)


async def test_a_connection_that_is_cut_at_its_commit_leaves_a_doubt(postgres: Database) -> None:
    async with service(postgres) as service_:
        core = service_.core
        await set_up(service_)
        before = await portrait(core)

        with gate(core, "commit") as stopped:
            claiming = asyncio.create_task(service_.claim(3))
            await stopped.reached()
            await end_writers_backend(postgres)
            stopped.open()
            [answer] = await answers_of([claiming])

        assert isinstance(answer, Unavailable)
        await service_.tick()
        assert await portrait(core) == before
        assert len(await service_.claim(3)) == 3
        await assert_memory_equals_sql(core)


async def test_a_service_whose_connection_is_cut_ends_in_peace(postgres: Database) -> None:
    async with service(postgres) as service_:
        await service_.submit()
        await end_writers_backend(postgres)

    async with service(postgres) as service_:
        await assert_memory_equals_sql(service_.core)


async def test_a_connection_that_is_cut_while_nobody_uses_it_is_not_noticed(postgres: Database) -> None:
    async with service(postgres) as service_:
        await service_.submit()
        await end_writers_backend(postgres)

        await service_.submit()

        assert service_.heard.all(WriterFailed) == []
        await assert_memory_equals_sql(service_.core)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are waited for no longer than this."""
    monkeypatch.setattr(main, "Timeouts", partial(Timeouts, lock=0.2))


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_somebody_has_locked_is_away_until_they_are_done(sqlite: Sqlite) -> None:
    async with service(sqlite) as service_:
        core = service_.core
        await set_up(service_)
        before = await portrait(core)

        with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            answers = await in_one_group(core, service_.claim(2), service_.submit())
            assert [type(answer) for answer in answers] == [Unavailable] * 2
            assert core.health().ready  # nothing was begun, nothing is in doubt
            assert (await look.list_jobs(core, JobFilter())).jobs  # and who reads is not concerned

        assert await portrait(core) == before
        assert len(await service_.claim(2)) == 2
        await assert_memory_equals_sql(core)


async def fill_up(core: Core, *, pages_left: int) -> None:
    """The writer's disk has room for so many pages more."""

    async def limit(tx: Transaction) -> None:
        connection = await tx.reading()
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + pages_left}")

    await core.write(limit)


@pytest.mark.parametrize("is_spoiled", [False, True], ids=["together", "beside a bad row"])
@pytest.mark.parametrize("what", ["jobs", "tenants"])
async def test_a_full_disk_loses_nothing_that_was_acknowledged(
    sqlite: Sqlite,
    *,
    is_spoiled: bool,
    what: str,
) -> None:
    """SQLite ends the whole transaction by itself when some statements find the disk full, and not with others."""
    async with service(sqlite) as service_:
        core = service_.core
        await set_up(service_)
        before = await portrait(core)
        await fill_up(core, pages_left=2)
        many: list[Coroutine[Any, Any, Any]] = [
            service_.submit(name=f"big {n}", payload="x" * 4000)
            if what == "jobs"
            else tenancy.put_tenant(core, f"{n:0128}", TenantSettings(weight=2))
            for n in range(200)
        ]
        bad = [service_.submit("a/b")] if is_spoiled else []

        answers = await in_one_group(core, *bad, service_.claim(2), *many, service_.submit(name="last"))

        assert {type(answer) for answer in answers} == {Unavailable}
        await assert_memory_equals_sql(core)
        assert await portrait(core) == before
        await fill_up(core, pages_left=1000)
        assert len(await service_.claim(2)) == 2
        await service_.submit(name="last")
        await assert_memory_equals_sql(core)


@pytest.mark.parametrize("jump", [-2 * HOUR, 2 * HOUR])
async def test_a_clock_that_jumped_ends_no_lease_after_a_doubtful_commit(database: Database, jump: float) -> None:
    async with service(database) as running:
        core = running.core
        jobs = [await running.submit(name=f"job {n}", timeout_sec=[None, 7200][n]) for n in range(2)]
        await running.claim(2, start=True)
        before = [core.leases.get(job.id) for job in jobs]
        running.clock.jump(jump)

        with failing(core, "after commit"), pytest.raises(Unavailable):
            await running.submit()
        await running.tick()

        assert not core.writer.is_in_doubt
        assert [core.leases.get(job.id) for job in jobs] == before


async def test_a_renewal_that_nobody_has_heard_of_leaves_no_doubt(postgres: Database) -> None:
    """A connection that was lost while nobody asked for anything costs no reading of memory."""
    async with service(postgres) as service_:
        core = service_.core
        await service_.submit()
        with failing(core, "commit"), pytest.raises(Unavailable):
            await core.write(_nothing)
        assert not core.writer.is_in_doubt
        with failing(core, "commit"), pytest.raises(Unavailable):
            await service_.submit()
        assert core.writer.is_in_doubt


async def _nothing(tx: Transaction) -> None:
    """Only the claim on the database is renewed."""
