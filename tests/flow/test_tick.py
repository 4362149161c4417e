"""Time passes: what is due, what lapses, what plain SQL has set, and a loop that nothing ends quietly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from app.clock import Clock
from app.errors import Unavailable
from app.events import (
    JobPromoted,
    LeaseLapsed,
    LoopFailed,
    RowSkipped,
    SchedulerStopped,
    SettingsReread,
)
from app.flow import core as core_module
from app.flow import lease, tenancy, tick
from app.flow.look import get_job, stats
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from app.scheduling.tenant import DEFAULT_TENANT
from app.store import jobs as jobs_store
from tests.databases import Database, Refused
from tests.flow.harness import (
    PATIENCE_SEC,
    Running,
    by_hand,
    commits_of,
    failing,
    gate,
    in_one_group,
    service,
    token_of,
)
from tests.flow.views import assert_memory_equals_sql, drained, portrait


async def state_of(running: Running, job: Job) -> State:
    return (await get_job(running.core, job.id)).state


# --- What is due -------------------------------------------------------------------------------------------


async def test_what_is_due_is_queued_in_the_order_in_which_it_fell_due(database: Database) -> None:
    async with service(database) as running:
        for n in (3, 1, 2):
            await running.submit(name=f"after {n}", delay_sec=n, priority=0)
        late = await running.submit(name="late", delay_sec=600)

        pause = await running.tick(after=2.5)

        assert 0.49 < pause < 0.51  # until the third
        await running.tick(after=0.501)
        assert [job.test_suite for job in await running.claim(9)] == ["after 1", "after 2", "after 3"]
        promoted = running.heard.all(JobPromoted)
        assert [(event.tenant, event.delay_sec) for event in promoted] == [("acme", 1), ("acme", 2), ("acme", 3)]
        assert [round(event.late_ms, -1) for event in promoted] == [1500, 500, 0]
        assert await state_of(running, late) is State.PENDING
        await assert_memory_equals_sql(running.core)


async def test_a_row_that_was_typed_by_hand_is_found_and_counted(database: Database) -> None:
    async with service(database) as running:
        await by_hand(
            database,
            "INSERT INTO tenants (name) VALUES ('typed')",
            "INSERT INTO jobs (tenant, test_suite, priority) VALUES ('typed', 'by hand', 7)",
            "INSERT INTO queues (name) VALUES ('typed')",
            "INSERT INTO jobs (tenant, test_suite, queue) VALUES ('typed', 'elsewhere', 'typed')",
        )

        await running.tick(after=10)

        await assert_memory_equals_sql(running.core)
        assert stats(running.core).total_jobs == 2
        [first, second] = await running.claim(9, "default", "typed", start=True)
        assert (first.test_suite, first.priority, first.effective_priority) == ("by hand", 7, 7)
        await running.complete(first)
        await running.fail(second)
        await assert_memory_equals_sql(running.core)


async def test_a_row_of_a_tenant_that_is_not_there_cannot_even_be_typed(database: Database) -> None:
    async with service(database) as running:
        for column, name in (("tenant", "fk_jobs_tenant_tenants"), ("queue", "fk_jobs_queue_queues")):
            row = {"tenant": "'acme'", "queue": "'default'", "test_suite": "'x'", column: "'nobody'"}
            await running.submit()
            with pytest.raises(Refused) as refused:
                await by_hand(database, f"INSERT INTO jobs ({', '.join(row)}) VALUES ({', '.join(row.values())})")
            assert refused.value.name == name


@asynccontextmanager
async def refusing(database: Database, move: str) -> AsyncIterator[None]:
    """While it lasts, the database refuses to make a move (SQL on OLD and NEW) of jobs called poison."""
    when = f"OLD.test_suite = 'poison' AND {move}"
    if database.kind == "sqlite":
        make = [f"CREATE TRIGGER poison BEFORE UPDATE ON jobs WHEN {when} BEGIN SELECT RAISE(ABORT, 'poisoned'); END"]
        drop = ["DROP TRIGGER poison"]
    else:
        make = [
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$",
            f"CREATE TRIGGER poison BEFORE UPDATE ON jobs FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION poison()",
        ]
        drop = ["DROP FUNCTION poison CASCADE"]
    await by_hand(database, *make)
    try:
        yield
    finally:
        await by_hand(database, *drop)


async def test_a_row_that_cannot_be_queued_is_told_of_and_does_not_stop_the_others(database: Database) -> None:
    async with service(database) as running:
        poison = await running.submit("acme", "poison", delay_sec=1)
        others = await running.submit_all(
            JobRequest(tenant="acme", test_suite=f"job {n}", delay_sec=1 + n % 2) for n in range(40)
        )
        async with refusing(database, "NEW.state = 'queued'"):
            with commits_of(running.core) as commits:
                pause = await running.tick(after=5)
            assert len(commits) <= 5  # one bad row does not make a commit of every good one
            assert pause > (50 if database.kind == "sqlite" else 0.9)  # and is not tried again at once
            [skipped] = running.heard.all(RowSkipped)
            assert skipped.job == poison.id
            assert "poisoned" in skipped.error
            assert await state_of(running, poison) is State.PENDING
            assert {await state_of(running, job) for job in others} == {State.QUEUED}
            await assert_memory_equals_sql(running.core)
            await running.tick(after=59)
            assert len(running.heard.all(RowSkipped)) == 1
            await running.tick(after=2)
            assert len(running.heard.all(RowSkipped)) == 2

        await running.tick(after=61)

        assert await state_of(running, poison) is State.QUEUED
        await assert_memory_equals_sql(running.core)


async def test_a_row_that_is_cancelled_while_rows_are_tried_one_by_one_stops_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(database) as running:
        await running.submit("acme", "poison", delay_sec=1)
        gone = await running.submit("acme", "gone", delay_sec=1)
        good = await running.submit("acme", "good", delay_sec=1)
        due = jobs_store.due

        async def due_and_then_cancelled(*args: object, **kw: object) -> list[Job]:
            found = await due(*args, **kw)  # type: ignore[arg-type]
            await running.cancel(gone)
            return found

        async with refusing(database, "NEW.state = 'queued'"):
            with monkeypatch.context() as patch:
                patch.setattr(tick.Ticker, "_promote", _one_by_one)
                patch.setattr(jobs_store, "due", due_and_then_cancelled)
                await running.tick(after=5)

        assert await state_of(running, good) is State.QUEUED
        assert await state_of(running, gone) is State.CANCELLED
        await assert_memory_equals_sql(running.core)


async def _one_by_one(ticker: tick.Ticker) -> int:
    await ticker._promote_one_by_one(())
    return 0


async def test_many_due_jobs_are_queued_in_bounded_transactions_with_others_in_between(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}", delay_sec=1) for n in range(2500))
        running.clock.advance(2)
        with gate(running.core, "commit") as stopped, commits_of(running.core) as commits:
            ticking = asyncio.create_task(running.tick())
            await stopped.reached()
            submitting = asyncio.create_task(running.submit(name="urgent"))
            stopped.open()
            urgent = await submitting
            assert len(commits) <= 2
            assert not ticking.done()
            await ticking

        assert len(commits) <= 5  # three times a thousand, the submit, and on Postgres a sign of life
        assert urgent.state is State.QUEUED
        assert urgent.effective_priority == 1000
        assert running.core.order.queued_in("default") == 2501
        await assert_memory_equals_sql(running.core)


# --- What plain SQL has set --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "settings", "claimed"),
    [
        ("weight = 9", TenantSettings(weight=9), 6),
        ("paused = {true}", TenantSettings(paused=True), 3),
        ("max_running = 1", TenantSettings(max_running=1), 4),
        ("rate_per_sec = 0.5, burst = 2", TenantSettings(rate_per_sec=0.5, burst=2), 6),
        ("unlimited = {true}", TenantSettings(unlimited=True), 6),
        ("max_queued = 3", TenantSettings(max_queued=3), 6),
    ],
)
async def test_a_tenant_that_is_set_by_plain_sql_is_so_from_the_next_tick_on_and_back(
    database: Database, sql: str, settings: TenantSettings, claimed: int
) -> None:
    async with service(database) as running:
        core = running.core
        for tenant in ("acme", "other"):
            for n in range(3):
                await running.submit(tenant, f"{tenant} {n}")
        true = "1" if database.kind == "sqlite" else "true"
        await by_hand(database, f"UPDATE tenants SET {sql.format(true=true)} WHERE name = 'acme'")

        await running.tick()

        assert core.admission.settings("acme") == settings
        assert [(event.tenants, event.queues) for event in running.heard.all(SettingsReread)] == [(1, 0)]
        await assert_memory_equals_sql(core)
        held = await running.claim(9)
        assert len(held) == claimed
        for job in held:
            await running.release(job)

        defaults = "weight = 1, rate_per_sec = NULL, burst = NULL, max_running = NULL, max_queued = NULL"
        false = "0" if database.kind == "sqlite" else "false"
        await by_hand(
            database,
            f"UPDATE tenants SET {defaults}, unlimited = {false}, paused = {false} WHERE name = 'acme'",
        )
        await running.tick()

        assert core.admission.settings("acme") == DEFAULT_TENANT
        assert len(await running.claim(9)) == 6
        await running.tick()
        assert len(running.heard.all(SettingsReread)) == 2
        await assert_memory_equals_sql(core)


async def test_a_queue_that_is_paused_by_plain_sql_is_so_from_the_next_tick_on_and_back(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        await running.submit(queue="other")
        true, false = ("1", "0") if database.kind == "sqlite" else ("true", "false")

        await by_hand(database, f"UPDATE queues SET paused = {true} WHERE name = 'default'")
        await running.tick()

        assert [job.queue for job in await running.claim(9, "default", "other")] == ["other"]
        await assert_memory_equals_sql(running.core)
        await by_hand(database, f"UPDATE queues SET paused = {false} WHERE name = 'default'")
        await running.tick()
        assert len(await running.claim()) == 1
        assert [(event.tenants, event.queues) for event in running.heard.all(SettingsReread)] == [(0, 1), (0, 1)]
        await assert_memory_equals_sql(running.core)


async def test_a_doubt_puts_in_force_what_plain_sql_has_set_meanwhile(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(weight=3, paused=True))
        await tenancy.put_tenant(core, "other", TenantSettings(max_queued=1))
        with failing(core, "after commit"), pytest.raises(Unavailable):
            await running.submit("third")
        await by_hand(
            database,
            "UPDATE tenants SET weight = 4 WHERE name = 'acme'",
            "UPDATE tenants SET max_queued = NULL WHERE name = 'other'",
        )

        await running.submit("third")

        assert core.admission.configured() == {"acme": TenantSettings(weight=4, paused=True)}
        await assert_memory_equals_sql(core)


# --- What lapses -------------------------------------------------------------------------------------------


async def test_many_leases_that_end_together_end_in_few_commits(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(250))
        await running.claim(250)

        with commits_of(running.core) as commits:
            assert await running.tick(after=31) == 0  # there is more
            assert await running.tick() > 0

        assert len(commits) <= 4
        assert len(running.heard.all(LeaseLapsed)) == 250
        assert running.core.order.queued_in("default") == 250
        await assert_memory_equals_sql(running.core)


async def test_a_lease_that_cannot_be_ended_is_told_of_and_tried_again_in_a_while(database: Database) -> None:
    async with service(database) as running:
        for name in ("before", "poison", "after"):
            await running.submit(name=name)
        held = {job.test_suite: job for job in await running.claim(3)}
        async with refusing(database, "NEW.state = 'queued'"):
            rest = 4 if database.kind == "sqlite" else 0.9  # where it has to show that it lives
            assert await running.tick(after=31) > rest
            [skipped] = running.heard.all(RowSkipped)
            assert skipped.job == held["poison"].id
            assert {event.job for event in running.heard.all(LeaseLapsed)} == {held["before"].id, held["after"].id}
            await assert_memory_equals_sql(running.core)
            await lease.heartbeat(running.core, held["poison"].id, token_of(held["poison"]))  # its worker lives
            await running.tick(after=10)
            assert len(running.heard.all(RowSkipped)) == 1

        await running.tick(after=21)

        assert await state_of(running, held["poison"]) is State.QUEUED
        await assert_memory_equals_sql(running.core)


async def test_a_tick_says_how_long_nothing_will_be(database: Database) -> None:
    async with service(database, tick_ms=50_000) as running:
        rest = 50 if database.kind == "sqlite" else 1  # where it has to show that it lives
        assert abs(await running.tick() - rest) < 0.001
        await running.submit(delay_sec=40)
        assert abs(await running.tick() - min(rest, 40)) < 0.001
        await running.submit()
        held = await running.claim_one(lease_sec=20)
        assert abs(await running.tick() - min(rest, 20)) < 0.001
        await lease.start(running.core, held.id, token_of(held))
        assert abs(await running.tick(after=19.5) - 0.5) < 0.001
        assert await running.tick(after=0.5) > 0
        await running.submit(name="soon", delay_sec=None, run_at=running.clock.now() + timedelta(seconds=0.25))
        assert abs(await running.tick() - 0.25) < 0.001
        assert await running.tick(after=1) > 0


# --- What is forgotten -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["virtual-time", "penalty"])
async def test_what_is_idle_is_forgotten_and_nothing_comes_out_otherwise(
    database: Database, other_database: Database, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(database, policy=policy) as running, service(other_database, policy=policy) as twin:
        for each in (running, twin):
            await tenancy.put_tenant(each.core, "kept", TenantSettings(weight=2))
            once = [each.submit(f"once {n}", f"once {n}", queue="done") for n in range(6)]
            names = ["kept", "kept", "deep", "deep", "once 3"]
            deep = [each.submit(name, f"{name} {n}") for n, name in enumerate(names)]
            await in_one_group(each.core, *once, *deep)
            for job in await each.claim(8, "done", "default", start=True):
                await each.complete(job)
        rows = "SELECT count(*) FROM lanes"
        before = await database.value(rows)

        await running.tick(after=11)  # memory forgets
        assert len(list(running.core.order.snapshot().lanes)) < before == await database.value(rows)
        await running.tick(after=11)  # and so does the database

        assert await database.value(rows) == len(list(running.core.order.snapshot().lanes)) < before
        assert "once 0" not in {tenant.name for tenant in running.core.order.snapshot().tenants}
        await assert_memory_equals_sql(running.core)
        monkeypatch.setattr(tick, "FORGET_EVERY_SEC", 1e9)
        await twin.tick(after=22)
        assert await portrait(running.core) == await portrait(twin.core)
        for each in (running, twin):
            names = ["once 3", "deep", "new", "once 3", "kept", "once 1"]
            again = [(queue, name) for queue in ("default", "done") for name in names]
            await in_one_group(
                each.core, *(each.submit(name, f"again {n}", queue=queue) for n, (queue, name) in enumerate(again))
            )
        assert await drained(running, "default", "done") == await drained(twin, "default", "done")
        await assert_memory_equals_sql(running.core)


async def test_a_lane_that_is_used_again_before_its_row_is_deleted_keeps_it(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit("once")
        await running.submit("deep")
        await running.claim(2)
        await running.tick(after=11)
        forgotten = set(core.forgotten_lanes)
        assert forgotten
        await running.submit("once", "again")

        await running.tick(after=11)

        await assert_memory_equals_sql(core)
        found = set(await database.fetch("SELECT queue, tenant FROM lanes"))
        assert ("default", "once") in found
        assert {("default", "once")} == found & forgotten


async def test_buckets_that_are_full_again_are_forgotten(database: Database) -> None:
    async with service(database, default_rate_per_sec="0.1", default_burst="2") as running:
        admission = running.core.admission
        await running.submit("once")
        await running.submit("twice")
        await running.submit("twice")

        await running.tick(after=11)

        assert set(admission._buckets) == {"twice"}
        await running.tick(after=11)
        assert admission._buckets == {}


async def test_names_that_need_no_row_any_more_do_not_pile_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "KNOWN_NAMES", 3)
    async with service(database) as running:
        core = running.core
        for n in range(4):
            await running.submit(f"tenant {n}", queue=f"queue {n // 2}")
        assert (len(core.known_tenants), len(core.known_queues)) == (4, 2)

        await running.tick(after=11)

        assert (len(core.known_tenants), len(core.known_queues)) == (0, 2)
        await running.submit("tenant 1")
        await assert_memory_equals_sql(core)


# --- The loop ----------------------------------------------------------------------------------------------


async def test_a_tick_that_raises_is_told_of_waited_out_and_made_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, faults = tick.Ticker.tick, [RuntimeError("one"), KeyError("two")]

    async def faulty(ticker: tick.Ticker) -> float:
        if faults:
            raise faults.pop(0)
        return await real(ticker)

    monkeypatch.setattr(tick.Ticker, "tick", faulty)
    async with service(database, clock=Clock(), ticking=True, tick_ms=50) as running:
        await running.submit(name="soon", delay_sec=1)
        await running.heard.wait_for(JobPromoted)

    failed = running.heard.all(LoopFailed)
    assert [(event.loop, event.retry_sec) for event in failed] == [("ticker", 0.1), ("ticker", 0.2)]
    assert "RuntimeError: one" in failed[0].error
    assert "KeyError: 'two'" in failed[1].error
    assert len(running.heard.all(SchedulerStopped)) == 1


async def test_a_delay_ends_when_it_says_however_seldom_the_ticks(database: Database) -> None:
    async with service(database, clock=Clock(), ticking=True, tick_ms=60_000) as running:
        await running.submit(name="soon", delay_sec=1)

        [promoted] = await running.heard.wait_for(JobPromoted)

        assert promoted.late_ms < 20_000


async def test_what_is_submitted_while_a_tick_ends_does_not_wait_for_the_one_after_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick has looked for what is due next, and has not gone to sleep yet."""
    next_due, looked, go_on = jobs_store.next_due, asyncio.Event(), asyncio.Event()
    calls = 0

    async def slow(*args: object, **kw: object) -> object:
        nonlocal calls
        calls += 1
        found = await next_due(*args, **kw)  # type: ignore[arg-type]
        if calls == 2:  # the first asks whether anything is due
            looked.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(jobs_store, "next_due", slow)
    async with service(database, clock=Clock(), ticking=True, tick_ms=60_000) as running:
        async with asyncio.timeout(PATIENCE_SEC):
            await looked.wait()
        await running.submit(name="soon", delay_sec=1)
        go_on.set()

        [promoted] = await running.heard.wait_for(JobPromoted)

        assert promoted.late_ms < 20_000


@pytest.mark.parametrize("tick_ms", [1, 100, 500])
async def test_who_does_not_tick_for_ten_periods_and_five_seconds_is_not_alive(
    database: Database, tick_ms: int
) -> None:
    async with service(database, tick_ms=tick_ms) as running:
        core = running.core
        assert (core.health().live, core.health().ready) == (True, True)
        running.clock.advance(4.9)
        assert core.health().live
        running.clock.advance(0.2)
        health = core.health()
        assert (health.live, health.ready) == (False, False)
        assert "5.1 s old" in health.why


async def test_the_pause_that_a_database_is_given_to_come_back_is_no_delay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(database, clock=Clock(), ticking=True, tick_ms=20) as running:
        core, tick, ages = running.core, running.ticker.tick, list[float]()

        async def told() -> float:
            ages.append(core.clock.monotonic() - core.last_tick_at)
            return await tick()

        with failing(core, "after commit", times=1), pytest.raises(Unavailable):
            await running.submit()
        monkeypatch.setattr(running.ticker, "tick", told)
        with failing(core, "begin", times=3):
            await running.heard.wait_for(LoopFailed, 3)
        assert len(ages) >= 3
        assert max(ages[1:]) < 0.1


async def test_a_loop_whose_database_is_away_is_alive_and_not_ready(database: Database) -> None:
    async with service(database, clock=Clock(), ticking=True, tick_ms=20) as running:
        core = running.core
        with failing(core, "after commit", times=1), pytest.raises(Unavailable):
            await running.submit()
        with failing(core, "begin", times=3):
            failed = await running.heard.wait_for(LoopFailed, 3)
        assert [event.retry_sec for event in failed][:3] == [0.1, 0.2, 0.4]
        assert core.health().live
        await running.heard.wait_for(JobPromoted, 0)
        await running.submit()
        assert replace(core.health(), why="") == replace(core.health(), live=True, ready=True, why="")
