"""The last hour in figures: each move counted once, in its minute, in a fixed amount of memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.flow.submit import JobRequest
from app.flow.tenancy import patch_tenant, put_tenant
from app.flow.watch import division, last_hour
from app.flow.watch.division import divide_given
from app.flow.watch.last_hour import LastHour, Minute, Waits
from app.scheduling.tenant import TenantSettings
from tests.databases import Database, Databases
from tests.flow.harness import FakeClock, Running, service

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _clock() -> FakeClock:
    return FakeClock(NOON)


async def _run(running: Running, jobs: int) -> None:
    for _ in range(jobs):
        await running.complete(await running.claim_one(start=True))


async def test_each_move_counts_in_its_minute(database: Database) -> None:
    async with service(database, clock=_clock()) as running:
        for _ in range(4):
            await running.submit()
        await running.submit(delay_sec=3600)
        running.clock.advance(90)
        await running.complete(await running.claim_one(start=True))
        await running.fail(await running.claim_one(start=True), retry=False)
        await running.cancel(await running.claim_one())
        running.clock.advance(60)
        await running.release(await running.claim_one(start=True))

        *_, first, second, third = running.core.last_hour.minutes()
        assert [minute.at for minute in (first, second, third)] == [NOON + timedelta(minutes=n) for n in range(3)]
        assert (first.submitted, first.started) == (5, 0)
        assert (second.submitted, second.started) == (0, 3)
        assert (second.completed, second.failed, second.cancelled) == (1, 1, 1)
        assert second.waits.percentile(50) == pytest.approx(90, rel=0.02)
        assert (third.started, third.completed) == (1, 0)


async def test_it_keeps_an_hour_however_long_it_runs(sqlite_databases: Databases) -> None:
    async with service(sqlite_databases.create(), clock=_clock()) as running:
        for _ in range(70):
            await running.submit()
            running.clock.advance(60)
        hour = running.core.last_hour
        minutes = hour.minutes()
        assert len(minutes) == 60
        assert [minute.submitted for minute in minutes] == [1] * 59 + [0]
        assert len(hour._minutes) <= 61


async def test_tenants_that_compete_are_due_by_weight_and_get_it(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await put_tenant(core, "acme", TenantSettings(weight=3))
        await running.submit_all(
            [JobRequest(tenant=tenant, test_suite="unit") for tenant in ("acme", "globex") for _ in range(40)]
        )
        await _run(running, 40)
        await divide_given(core)
        shares = core.last_hour.shares()
        assert shares.due == {"acme": 30, "globex": 10}
        assert shares.given["acme"] == pytest.approx(30, abs=1)
        assert sum(shares.given.values()) == 40


async def test_who_asks_for_little_is_due_little_and_who_may_not_run_nothing(sqlite_databases: Databases) -> None:
    async with service(sqlite_databases.create()) as running:
        core = running.core
        await running.submit_all([JobRequest(tenant="big", test_suite="unit")] * 30)
        await running.submit_all([JobRequest(tenant="paused", test_suite="unit")] * 30)
        await patch_tenant(core, "paused", {"paused": True})
        await running.submit("little")
        await _run(running, 11)
        await divide_given(core)
        shares = core.last_hour.shares()
        assert shares.due == {"big": 10, "little": 1}
        assert shares.given == {"big": 10, "little": 1}
        await divide_given(core)
        assert core.last_hour.shares().due == shares.due


async def test_queues_are_divided_each_by_itself(sqlite_databases: Databases) -> None:
    async with service(sqlite_databases.create()) as running:
        core = running.core
        await running.submit_all([JobRequest(tenant="a", test_suite="unit", queue="one", cost=5)] * 10)
        await running.submit_all([JobRequest(tenant="b", test_suite="unit", queue="two")] * 10)
        await running.claim(4, "one")
        await running.claim(2, "two")
        await divide_given(core)
        assert core.last_hour.shares().due == {"a": 20, "b": 2}


async def test_with_too_many_tenants_nobody_is_compared(
    sqlite_databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_MOST_COMPARED", 3)
    monkeypatch.setattr(last_hour, "NAMED_TENANTS", 2)
    async with service(sqlite_databases.create()) as running:
        core = running.core
        for n in range(5):
            await running.submit(f"t{n}")
        await running.claim(4)
        await divide_given(core)
        shares = core.last_hour.shares()
        assert shares.due == shares.given
        assert sorted(shares.given.values()) == [1, 1, 2]
        assert shares.given[None] == 2


def test_more_tenants_than_are_told_apart_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_hour, "NAMED_TENANTS", 2)
    minute = Minute(NOON)
    minute.divide({"a": 1, "b": 5, "c": 3}, {"d": 4, "c": 5})
    assert minute.given == {"c": 3, "b": 5, None: 1}
    assert minute.due == {"c": 5, "b": 0, None: 4}


def test_before_anything_happened_there_are_sixty_empty_minutes() -> None:
    hour = LastHour(_clock())
    assert [minute.at for minute in hour.minutes()] == [NOON - timedelta(minutes=n) for n in reversed(range(60))]
    assert hour.minutes()[0].waits.percentile(95) is None
    assert not hour.shares().given


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.integers(1, 100))
def test_percentiles_are_right_within_two_percent(waits: list[int], percent: int) -> None:
    counted, other = Waits(), Waits()
    for place, wait in enumerate(waits):
        (counted if place % 2 else other).add(wait)
    counted.join(other)
    nearest_rank = sorted(waits)[-(-len(waits) * percent // 100) - 1]
    found = counted.percentile(percent)
    assert found is not None
    assert found * 1_000_000 == pytest.approx(nearest_rank, rel=0.02, abs=0.5)
    assert max(counted._buckets) < 1 << 12
