"""What is counted and timed is what happened, once each, on both databases."""

from __future__ import annotations

import asyncio
import gc
import sys
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import event as sql

from app.errors import FairlaneError, RateLimited, TooManyQueued
from app.flow import tenancy
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest, claim
from app.flow.housekeeping import Housekeeper, Round
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.metrics.meter import Meter
from app.scheduling.job import State
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, Running, busy, by_hand, cancel_sql, failing, hang_up, mortal, service
from tests.metrics.scraped import scrape


async def test_the_life_of_jobs(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        later = await running.submit(delay_sec=10)
        await running.submit(queue="gpu", max_attempts=1)
        running.clock.advance(3)
        first = await running.claim_one(start=True)
        gpu = await running.claim_one("gpu", lease_sec=60)
        running.clock.advance(4)
        held = await scrape(running.meter)
        await running.complete(first)
        await running.release(gpu)
        gpu = await running.claim_one("gpu", start=True)
        await running.fail(gpu)
        await running.tick(after=3.5)
        late = await running.claim_one(start=True, lease_sec=1)
        await running.tick(after=2)
        await running.tick(after=10)
        seen = await scrape(running.meter)

        assert held("leases") == 2
        assert held("jobs", queue="default", state="running") == 1
        assert held("jobs", queue="gpu", state="scheduled") == 1
        assert held("jobs", queue="default", state="pending") == 1

        assert late.id == later.id
        moves = seen.samples["fairlane_job_moves_total"]
        assert {tuple(dict(labels)[name] for name in ("queue", "from", "to")): n for labels, n in moves.items()} == {
            ("default", "new", "queued"): 1,
            ("default", "new", "pending"): 1,
            ("default", "pending", "queued"): 2,
            ("default", "queued", "scheduled"): 2,
            ("default", "scheduled", "running"): 2,
            ("default", "running", "completed"): 1,
            ("default", "running", "pending"): 1,
            ("gpu", "new", "queued"): 1,
            ("gpu", "queued", "scheduled"): 2,
            ("gpu", "scheduled", "queued"): 1,
            ("gpu", "scheduled", "running"): 1,
            ("gpu", "running", "failed"): 1,
        }
        assert seen("attempts_total", queue="default", outcome="completed") == 1
        assert seen("attempts_total", queue="default", outcome="lapsed") == 1
        assert seen("attempts_total", queue="default", outcome="timed out") == 0
        assert seen("attempts_total", queue="gpu", outcome="released") == 1
        assert seen("attempts_total", queue="gpu", outcome="failed") == 1
        assert seen("wait_seconds_count", queue="gpu") == 2
        assert seen("wait_seconds_sum", queue="gpu") == pytest.approx(3, abs=0.01)
        assert seen("run_seconds_count", queue="default") == 2
        assert seen("run_seconds_sum", queue="default") == pytest.approx(4 + 2, abs=0.01)
        assert seen("run_seconds_count", queue="gpu") == 1  # what was released had not been started
        assert seen("promotion_lateness_seconds_count") == 2
        assert 0.5 <= seen("promotion_lateness_seconds_sum") < 10
        assert seen("leases") == 0
        assert seen("jobs", queue="default", state="queued") == 1
        assert seen.total("jobs") == 3


async def test_the_longest_wait_is_that_of_the_job_queued_first_however_it_goes_on(database: Database) -> None:
    async with mortal(database) as lives:
        running = lives.running

        async def oldest(queue: str = "default") -> float:
            return (await scrape(lives.running.meter))("oldest_wait_seconds", queue=queue)

        assert await oldest() == 0
        unloved = await running.submit(priority=10)
        running.clock.advance(5)
        await running.submit(priority=0)
        running.clock.advance(5)
        assert await oldest() == pytest.approx(10, abs=0.01)
        urgent = await running.claim_one()
        assert await oldest() == pytest.approx(10, abs=0.01)
        await running.cancel(unloved)
        assert await oldest() == 0
        await running.release(urgent)  # it is queued anew
        running.clock.advance(7)
        assert await oldest() == pytest.approx(7, abs=0.01)
        await lives.restart()
        assert await oldest() == pytest.approx(7, abs=0.01)

        await by_hand(database, f"DELETE FROM jobs WHERE id = '{urgent.id}'")
        assert await lives.running.claim(1) == []  # finds out
        await lives.running.tick()
        assert await oldest() == 0


async def test_what_goes_wrong_is_counted(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "fast", TenantSettings(rate_per_sec=0.001, burst=1))
        await tenancy.put_tenant(core, "many", TenantSettings(max_queued=1))
        for tenant, refusal in (("fast", RateLimited), ("many", TooManyQueued)):
            await running.submit(tenant)
            with pytest.raises(refusal):
                await running.submit(tenant)
        doomed = await running.submit("third", queue="doomed")
        await by_hand(database, cancel_sql(doomed))
        assert await running.claim(1, "doomed") == []
        before = await scrape(running.meter)
        with failing(core, "after commit"), pytest.raises(FairlaneError):
            await running.submit()
        doubtful = await scrape(running.meter)
        await running.submit()
        after = await scrape(running.meter)

        assert before("submit_refusals_total", reason="rate") == 1
        assert before("submit_refusals_total", reason="max_queued") == 1
        assert before("refused_proposals_total") == 1
        assert (before("writer_in_doubt"), before("ready"), before("writer_failures_total")) == (0, 1, 0)
        assert (doubtful("writer_in_doubt"), doubtful("ready"), doubtful("writer_failures_total")) == (1, 0, 1)
        assert (after("writer_in_doubt"), after("ready"), after("recoveries_total")) == (0, 1, 2)
        assert after("jobs", queue="default", state="queued") == 4  # the doubtful one had been stored
        assert after("jobs", queue="doomed", state="cancelled") == 1


async def test_groups_and_commits_are_timed(database: Database) -> None:
    async with service(database) as running:
        before = await scrape(running.meter)
        async with busy(running.core) as backlog:
            waiting = asyncio.gather(*(running.submit() for _ in range(3)))
            await backlog.grows_to(3)
            running.clock.flow(2)
            during = await scrape(running.meter)  # it waits for no writer
        await waiting
        after = await scrape(running.meter)

        assert (before("waiting_writes"), before("writer_busy_seconds")) == (0, 0)
        assert during("waiting_writes") == 3
        assert during("writer_busy_seconds") == pytest.approx(2, abs=0.01)
        assert (after("waiting_writes"), after("writer_busy_seconds")) == (0, 0)
        groups = after("group_writes_count") - before("group_writes_count")
        assert after("group_writes_sum") - before("group_writes_sum") == 1 + 3
        assert after("group_seconds_count") - before("group_seconds_count") == groups == 2
        assert after("commit_seconds_count") - before("commit_seconds_count") == groups
        assert after("group_seconds_sum") - before("group_seconds_sum") == pytest.approx(2, abs=0.1)
        assert after("commit_seconds_sum") - before("commit_seconds_sum") < 1


async def test_claims_that_wait_are_counted_once_however_many_queues_they_name(sqlite: Database) -> None:
    async with service(sqlite) as running:
        wish = ClaimRequest(worker="w", queues=("a", "b", "a"), wait_sec=30)
        claims = [asyncio.create_task(claim(running.core, wish)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await scrape(running.meter))("waiting_claims") == 2
        await hang_up(claims[0])
        assert (await scrape(running.meter))("waiting_claims") == 1
        await running.submit(queue="b")
        assert len(await claims[1]) == 1
        assert (await scrape(running.meter))("waiting_claims") == 0


async def test_each_service_has_figures_of_its_own(sqlite: Database, other_database: Database) -> None:
    async with service(sqlite) as one, service(other_database) as other:
        await one.submit()
        assert (await scrape(one.meter)).total("job_moves_total") == 1
        assert (await scrape(other.meter)).total("job_moves_total") == 0


class TestNames:
    async def test_queues_beyond_the_setting_share_one_label(self, sqlite: Database) -> None:
        async with service(sqlite, metrics_queues=3) as running:
            await running.submit(queue="gpu")
            for n in range(50):
                await running.submit(queue=f"invented {n}")
                running.clock.advance(1)
            await running.claim(3, "invented 0", "invented 30", "gpu", start=True)
            await running.submit(queue="other")  # a name like any other, and no way into the figures of the rest
            seen = await scrape(running.meter)

            assert seen.values("queue") == {"default", "gpu", "invented 0", "other"}
            assert seen("job_moves_total", queue="other", from_="new", to="queued") == 50
            assert seen("job_moves_total", queue="other", from_="queued", to="scheduled") == 1
            assert seen("jobs", queue="other", state="queued") == 49
            assert seen("jobs", queue="other", state="running") == 1
            assert seen("jobs", queue="gpu", state="running") == 1
            assert seen("oldest_wait_seconds", queue="other") == pytest.approx(49, abs=0.1)  # `invented 1` waits
            assert seen("oldest_wait_seconds", queue="gpu") == 0

    async def test_no_room_at_all_and_names_that_look_like_syntax(
        self, sqlite: Database, other_database: Database
    ) -> None:
        odd = 'a"} 1\\n{b="ü€'
        async with service(sqlite, metrics_queues=0) as running:
            await running.submit(queue=odd)
            assert (await scrape(running.meter)).values("queue") == {"other"}
        async with service(other_database, metrics_queues=2, metrics_tenants=1) as running:
            await running.submit(odd, queue=odd)
            seen = await scrape(running.meter)
            assert seen.values("queue") == {"default", odd, "other"}
            assert seen("tenant_jobs", tenant=odd, state="queued") == 1

    async def test_after_a_start_the_queues_with_most_work_have_labels(self, sqlite: Database) -> None:
        async with mortal(sqlite, metrics_queues=2) as lives:
            for n in range(9):
                await lives.running.submit(queue=f"invented {n}")
            await lives.running.submit(queue="busy")
            await lives.running.submit(queue="busy")
            assert "busy" not in (await scrape(lives.running.meter)).values("queue")
            await lives.restart()
            seen = await scrape(lives.running.meter)
            assert seen.values("queue") == {"default", "busy", "other"}
            assert seen("jobs", queue="busy", state="queued") == 2
            assert seen("jobs", queue="other", state="queued") == 9

    async def test_a_queue_whose_jobs_have_all_ended_has_its_label_from_the_start(self, sqlite: Database) -> None:
        async with mortal(sqlite) as lives:
            await lives.running.submit(queue="idle")
            await lives.running.complete(await lives.running.claim_one("idle", start=True))
            await lives.restart()
            seen = await scrape(lives.running.meter)
            assert seen("jobs", queue="idle", state="completed") == 1
            assert seen("jobs", queue="other", state="completed") == 0

    async def test_no_tenant_is_named_unless_asked_for(self, sqlite: Database) -> None:
        async with service(sqlite) as running:
            await running.submit("acme")
            seen = await scrape(running.meter)
            assert "acme" not in seen.text
            assert "tenant" not in seen.text

    async def test_after_a_start_the_tenants_with_most_work_have_labels(self, sqlite: Database) -> None:
        async with mortal(sqlite, metrics_tenants=1) as lives:
            for tenant in ("invented", "busy", "busy"):
                await lives.running.submit(tenant)
            await lives.restart()
            seen = await scrape(lives.running.meter)
            assert seen("tenant_jobs", tenant="busy", state="queued") == 2
            assert seen("tenant_jobs", tenant="other", state="queued") == 1

    async def test_tenants_that_were_set_up_come_first(self, sqlite: Database) -> None:
        async with mortal(sqlite, metrics_tenants=2) as lives:
            await tenancy.put_tenant(lives.running.core, "acme", TenantSettings(weight=3, max_queued=4))
            running = await lives.restart()
            for n in range(5):
                await running.submit(f"invented {n}")
            for _ in range(4):
                await running.submit("acme", cost=7)
            with pytest.raises(TooManyQueued):
                await running.submit("acme")
            running.clock.advance(6)
            claimed = await running.claim(6)
            seen = await scrape(running.meter)

            assert seen.values("tenant") == {"acme", "invented 0", "other"}
            assert seen("tenant_moves_total", tenant="acme", to="queued") == 4
            assert seen("tenant_moves_total", tenant="other", to="queued") == 4
            mine = [job for job in claimed if job.tenant == "acme"]
            assert seen("tenant_dispatched_cost_total", tenant="acme") == 7 * len(mine) > 0
            assert seen("tenant_wait_seconds_sum", tenant="acme") == pytest.approx(6 * len(mine), abs=0.1)
            assert seen("tenant_submit_refusals_total", tenant="acme", reason="max_queued") == 1
            assert seen("tenant_jobs", tenant="acme", state="queued") == 4 - len(mine)
            assert seen.total("tenant_jobs", state="queued") == 3
            assert seen.total("tenant_jobs", state="scheduled") == 6


class TestCost:
    async def test_a_look_asks_no_database_and_counts_no_rows(self, database: Database) -> None:
        async with service(database, metrics_tenants=2) as running:
            statements: list[str] = []

            def note(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
                statements.append(text)

            await running.submit("one")
            await running.submit("two")
            few = calls_of_a_look(running.meter)
            for n in range(30):
                await running.submit_all(JobRequest(tenant=f"tenant {n}", test_suite="unit") for _ in range(20))
            engines = [engine.sync_engine for engine in (running.core.engines.reader, running.core.engines.writer)]
            for engine in engines:
                sql.listen(engine, "before_cursor_execute", note)
            many = calls_of_a_look(running.meter)
            await scrape(running.meter)
            for engine in engines:
                sql.remove(engine, "before_cursor_execute", note)

            assert statements == []
            assert many == few
            assert running.core.counts.of_queue("default")[State.QUEUED] == 602


def calls_of_a_look(meter: Meter) -> int:
    """How many calls it takes in the loop, Python's and C's."""
    calls = 0

    def count(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # what it would end calls too
    sys.setprofile(count)
    try:
        list(meter._gauges())
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


class TestLoops:
    async def test_the_age_of_a_loop_grows_while_it_is_stuck_or_fails_and_liveness_is_the_tickers(
        self, sqlite: Database
    ) -> None:
        stuck, fails, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def get_stuck(_: Core) -> bool:
            stuck.set()
            await may_end.wait()
            return False

        async def fail(_: Core) -> bool:
            fails.set()
            raise RuntimeError("a fault")

        async with service(sqlite) as running:
            rounds = [Round("slow", 0.001, get_stuck), Round("broken", 0.001, fail), Round("idle", 600, fail)]
            housekeeper = Housekeeper(running.core, rounds)
            meter = metered(running, housekeeper)
            housekeeper.start()
            async with asyncio.timeout(PATIENCE_SEC):
                await stuck.wait()
                await fails.wait()
            running.clock.flow(500)
            running.core.last_tick_at = running.clock.monotonic()
            seen = await scrape(meter)

            assert {loop: seen("loop_period_seconds", loop=loop) for loop in ("ticker", "slow", "broken", "idle")} == {
                "ticker": 60,
                "slow": 0.001,
                "broken": 0.001,
                "idle": 600,
            }
            for loop in ("slow", "broken", "idle"):
                assert seen("loop_age_seconds", loop=loop) == pytest.approx(500, abs=1)
            assert seen("loop_age_seconds", loop="ticker") < 1
            assert running.core.health().live
            may_end.set()
            await housekeeper.stop()
            assert (await scrape(meter))("loop_age_seconds", loop="slow") < 1

    async def test_failures_are_counted_from_zero_on(self, sqlite: Database) -> None:
        async with service(sqlite) as running:
            before = await scrape(running.meter)
            running.core.moves.listen(broken)
            await running.submit()
            after = await scrape(running.meter)
            assert {loop: before("loop_failures_total", loop=loop) for loop in ("ticker", "writer", "moves")} == {
                "ticker": 0,
                "writer": 0,
                "moves": 0,
            }
            assert after("loop_failures_total", loop="moves") == 1


def broken(_: object) -> None:
    """A listener with a fault."""
    raise RuntimeError("a fault")


def metered(running: Running, housekeeper: Housekeeper) -> Meter:
    """One more meter on a service, for other rounds than its own."""
    meter = Meter(running.core.settings)
    meter.watch(running.core, housekeeper)
    return meter
