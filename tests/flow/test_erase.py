"""A tenant is erased with all that is its own, and nothing that is others'."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from app.errors import NotFound, Unavailable, Unfinished
from app.events import TenantErased
from app.flow import cancel, erase, look, retention, tenancy
from app.flow.cancel import CancelFilter
from app.flow.core import Core
from app.flow.erase import erase_tenant, look_before_erasing
from app.flow.look import JobFilter
from app.flow.rollup import roll_up
from app.flow.tenancy import TenantSettings
from app.scheduling.job import State
from app.store import rollups
from app.store.schema import HOURLY
from app.store.session import Connection
from tests.databases import Database
from tests.flow.harness import FakeClock, Running, answers_of, busy, failing, in_one_group, service
from tests.flow.scenes import set_up
from tests.flow.views import assert_memory_equals_sql


async def kept(database: Database, tenant: str) -> int:
    """How many rows have the tenant's name."""
    named = {"tenants": "name", "lanes": "tenant", "jobs": "tenant"}
    named |= {table.name: "tenant" for table in HOURLY if "tenant" in table.c}
    counts = [
        await database.value(f"SELECT count(*) FROM {table} WHERE {named[table]} = '{tenant}'") for table in named
    ]
    return int(sum(counts))


async def worked_for(running: Running, tenant: str, count: int) -> None:
    """Jobs of a tenant, all of them final; the last was cancelled."""
    await in_one_group(running.core, *(running.submit(tenant, f"{tenant} {n}") for n in range(count)))
    claimed = await running.claim(count, start=True)
    await in_one_group(
        running.core, *(running.complete(job) for job in claimed[1:]), running.fail(claimed[0], retry=False)
    )


async def test_all_that_is_a_tenants_goes_and_nothing_else(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "leaving", TenantSettings(weight=5, max_running=2, rate_per_sec=9))
        await set_up(running)
        others = await database.value("SELECT count(*) FROM jobs")
        job = await running.submit("leaving", idempotency_key="nightly", queue="own")
        await running.complete(await running.claim_one("own", start=True))
        assert core.order.lane("own", "leaving") is not None

        done = await erase_tenant(core, "leaving")

        assert (done.erased, done.left, done.unfinished, done.is_gone) == (1, 0, 0, True)
        assert await kept(database, "leaving") == 0
        assert await database.value("SELECT count(*) FROM jobs") == others
        assert [event.tenant for event in running.heard.all(TenantErased)] == ["leaving"]
        with pytest.raises(NotFound):
            await look.get_job(core, job.id)
        with pytest.raises(NotFound):
            await erase_tenant(core, "leaving")
        await assert_memory_equals_sql(core)

        back = await running.submit("leaving", idempotency_key="nightly", queue="own")
        assert back.id != job.id
        assert (await tenancy.get_tenant(core, "leaving")).weight == 1
        await running.tick()
        await assert_memory_equals_sql(core)


async def test_its_hourly_figures_go_with_it_and_others_stay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_HOURS_AT_ONCE", 2)
    async with service(database) as running:
        for _ in range(3):
            await worked_for(running, "leaving", 1)
            await worked_for(running, "staying", 1)
            running.clock.advance(3600)
        running.clock.advance(60)
        await running.roll_all_up()
        assert await database.value("SELECT count(*) FROM hourly_fairness WHERE tenant = 'leaving'") == 3
        stays = "SELECT * FROM report_fairness_by_hour WHERE tenant = 'staying' ORDER BY hour"
        before = await database.fetch(stays)

        assert (await erase_tenant(running.core, "leaving")).is_gone

        assert await kept(database, "leaving") == 0
        assert await database.fetch(stays) == before
        assert len(before) == 3


async def test_it_is_refused_while_a_job_is_not_final(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        scene = await set_up(running)
        for job in (scene.running, scene.scheduled, scene.queued, scene.pending):
            left = (await look_before_erasing(core, job.tenant)).unfinished
            assert left > 0
            with pytest.raises(Unfinished, match=f"tenant {job.tenant} has {left} unfinished jobs"):
                await erase_tenant(core, job.tenant)
        await cancel.cancel_many(core, CancelFilter(tenant="capped"))

        assert (await erase_tenant(core, "capped")).is_gone
        assert await kept(database, "capped") == 0
        await assert_memory_equals_sql(core)


async def test_a_look_changes_nothing(database: Database) -> None:
    async with service(database) as running:
        await worked_for(running, "acme", 3)
        pending = await running.submit("acme", delay_sec=60)

        found = await look_before_erasing(running.core, "acme")

        assert (found.erased, found.left, found.unfinished, found.is_gone) == (0, 4, 1, False)
        assert look.stats(running.core).total_jobs == 4
        assert (await look.get_job(running.core, pending.id)).state is State.PENDING
        with pytest.raises(NotFound):
            await look_before_erasing(running.core, "nobody")


async def test_where_it_was_cut_the_same_call_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DELETED_AT_ONCE", 2)
    clock = FakeClock()
    async with service(database, clock=clock) as running:
        await worked_for(running, "acme", 5)
        await worked_for(running, "globex", 1)
        with failing(running.core, "statement", statement="DELETE FROM jobs", after=1), pytest.raises(Unavailable):
            await erase_tenant(running.core, "acme")
        await running.crash()
    async with service(database, clock=clock.of_next_process()) as running:
        await assert_memory_equals_sql(running.core)
        assert (await look_before_erasing(running.core, "acme")).left == 3

        done = await erase_tenant(running.core, "acme")

        assert (done.erased, done.is_gone) == (3, True)
        assert [job.tenant for job in (await look.list_jobs(running.core, JobFilter())).jobs] == ["globex"]
        await assert_memory_equals_sql(running.core)


async def test_a_call_ends_after_some_seconds_and_says_what_is_left(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DELETED_AT_ONCE", 2)
    async with service(database) as running:
        await worked_for(running, "acme", 5)

        async def slow(core: Core, ids: Sequence[str]) -> int:
            running.clock.flow(4)
            return await at_once(core, ids)

        at_once = retention.delete_in_peace
        monkeypatch.setattr(retention, "delete_in_peace", slow)

        first = await erase_tenant(running.core, "acme")
        assert (first.erased, first.left, first.unfinished, first.is_gone) == (4, 1, 0, False)
        assert (await erase_tenant(running.core, "acme")).is_gone


async def test_a_job_that_comes_meanwhile_keeps_its_tenant(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(database) as running:
        await worked_for(running, "acme", 2)

        async def and_one_comes(core: Core, ids: Sequence[str]) -> int:
            erased = await at_once(core, ids)
            await running.submit("acme", "new")
            return erased

        at_once = retention.delete_in_peace
        monkeypatch.setattr(retention, "delete_in_peace", and_one_comes)

        done = await erase_tenant(running.core, "acme")

        assert (done.erased, done.left, done.unfinished, done.is_gone) == (2, 1, 1, False)
        with pytest.raises(Unfinished):
            await erase_tenant(running.core, "acme")
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("first", ["the erasure", "the job"])
async def test_a_job_at_the_same_moment_finds_a_tenant(database: Database, first: str) -> None:
    async with service(database) as running:
        core = running.core
        await running.cancel(await running.submit("globex"))
        await retention.delete_in_peace(core, [job.id for job in (await look.list_jobs(core, JobFilter())).jobs])
        assert "globex" in core.known_tenants

        async with busy(core) as backlog:
            both = (erase_tenant(core, "globex"), running.submit("globex"))
            tasks = list[asyncio.Task[Any]]()
            for waiting, request in enumerate(both if first == "the erasure" else both[::-1], start=1):
                tasks.append(asyncio.create_task(request))
                await backlog.grows_to(waiting)
        answers = await answers_of(tasks)
        erased, job = answers if first == "the erasure" else answers[::-1]

        assert erased.is_gone == (first == "the erasure")
        assert job.state is State.QUEUED
        assert await database.value("SELECT count(*) FROM tenants WHERE name = 'globex'") == 1
        await assert_memory_equals_sql(core)


async def test_what_was_counted_is_not_written_after_the_tenant_is_gone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, may_go_on = asyncio.Event(), asyncio.Event()

    async def figures_and_wait(connection: Connection, hour: datetime) -> rollups.Figures:
        figures = await at_once(connection, hour)
        counted.set()
        await may_go_on.wait()
        return figures

    at_once = rollups.figures
    monkeypatch.setattr(rollups, "figures", figures_and_wait)
    async with service(database) as running:
        core = running.core
        await worked_for(running, "leaving", 1)
        running.clock.advance(3660)
        rolling = asyncio.create_task(roll_up(core))
        await counted.wait()
        erasing = asyncio.create_task(erase_tenant(core, "leaving"))
        while await database.value("SELECT count(*) FROM jobs WHERE tenant = 'leaving'"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        may_go_on.set()
        await rolling
        assert (await erasing).is_gone
        assert await kept(database, "leaving") == 0
