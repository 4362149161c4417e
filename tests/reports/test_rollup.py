"""Each hour that is over is rolled up exactly once: as it ends, after hours of downtime, after a crash in the middle;
and what comes late changes nothing that is closed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from app.clock import parse_rfc3339, rfc3339
from app.errors import Unavailable
from app.events import HoursRolledUp
from app.flow import rollup
from app.store import rollups
from app.store.schema import HOURLY
from tests.databases import Database
from tests.flow.harness import FakeClock, Running, busy, by_hand, failing, gate, mortal, service
from tests.reports.looking import BY_HOUR, said, view

HOUR = 3600.0
NOON = datetime(2026, 3, 2, 12, 10, tzinfo=UTC)
TENANTS = "SELECT hour, tenant, submitted, dispatched, finished FROM report_tenants_by_hour ORDER BY hour, tenant"


def at(hour: int, day: int = 2) -> str:
    return f"2026-03-{day:02}T{hour:02}:00:00.000000Z"


def ten_past(running: Running) -> datetime:
    """Let time pass until ten minutes after a full hour; that hour. For services that know times newer than `NOON`."""
    hour = rollups.hour_of(running.clock.now()) + rollups.HOUR
    running.clock.advance((hour - running.clock.now()).total_seconds() + 600)
    return hour


async def roll_all_up(running: Running) -> list[str]:
    """Do rounds until none has anything left to do; the hours that were rolled up since the start."""
    await running.roll_all_up()
    hours: list[str] = []
    for told in running.heard.all(HoursRolledUp):
        hour = parse_rfc3339(told.hour)
        while rfc3339(hour) != told.until:
            hours.append(rfc3339(hour))
            hour += rollups.HOUR
    return hours


async def rolled(database: Database) -> dict[str, int]:
    """How many rows are kept of each kind."""
    return {table.name: await database.value(f"SELECT count(*) FROM {table.name}") for table in HOURLY}


async def test_an_hour_is_rolled_up_when_it_is_over_and_not_before(database: Database) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        assert not await rollup.roll_up(running.core)  # nothing has ever happened
        await running.submit()
        await running.complete(await running.claim_one(start=True))
        running.clock.advance(50 * 60 + 59)  # 13:00:59
        assert await roll_all_up(running) == []

        running.clock.advance(1)
        assert await roll_all_up(running) == [at(12)]
        assert await roll_all_up(running) == [at(12)]  # and only once

        assert await said(database, TENANTS) == [(at(12), "acme", 1, 1, 1)]
        assert await rolled(database) == {
            "hourly_tenants": 1,
            "hourly_fairness": 1,
            "hourly_suites": 1,
            "hourly_workers": 1,
            "minutely_queues": 1,
        }


async def test_what_ends_later_counts_in_the_hour_in_which_it_ends(database: Database) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        waiting = await running.submit("globex")
        held = await running.claim_one(start=True, lease_sec=3600)
        running.clock.advance(HOUR)
        await roll_all_up(running)
        closed = {name: await view(database, name, at(13)) for name in BY_HOUR}

        await running.complete(held)
        await running.cancel(waiting)
        running.clock.advance(HOUR)
        before = {name: await view(database, name, at(14)) for name in BY_HOUR}
        assert await roll_all_up(running) == [at(12), at(13)]

        assert {name: await view(database, name, at(13)) for name in BY_HOUR} == closed
        assert {name: await view(database, name, at(14)) for name in BY_HOUR} == before
        assert await said(database, TENANTS) == [
            (at(12), "acme", 1, 1, 0),
            (at(12), "globex", 1, 0, 0),
            (at(13), "acme", 0, 0, 1),
            (at(13), "globex", 0, 0, 1),
        ]
        fairness = "SELECT hour, tenant, weight_share, cost_share FROM report_fairness_by_hour ORDER BY hour, tenant"
        assert await said(database, fairness) == [
            (at(12), "acme", 0.5, 1.0),
            (at(12), "globex", 0.5, 0.0),
            (at(13), "globex", 1.0, None),
        ]


async def test_after_hours_of_downtime_each_hour_is_rolled_up_once(database: Database) -> None:
    async with mortal(database) as process:
        first = ten_past(process.running)
        await process.running.submit()

        running = await process.restart(wall_jumped=4 * HOUR)
        hours = [rfc3339(first + number * rollups.HOUR) for number in range(4)]
        assert await roll_all_up(running) == hours

        waiting = "SELECT hour, queue, tenant, cost_share FROM report_fairness_by_hour WHERE hour < '{}'"
        assert await said(database, waiting.format(rfc3339(first + 4 * rollups.HOUR))) == [
            (hour, "default", "acme", None) for hour in hours
        ]


async def test_a_long_quiet_time_is_passed_over_at_once(database: Database) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.cancel(await running.submit())
        running.clock.advance(24 * 365 * HOUR)
        await running.cancel(await running.submit())
        running.clock.advance(2 * HOUR)

        hours = await roll_all_up(running)

        told = [(told.hour, told.until) for told in running.heard.all(HoursRolledUp)]
        year_later = "2027-03-02T12:00:00.000000Z"
        assert told[:3] == [(at(12), at(13)), (at(13), year_later), (year_later, "2027-03-02T13:00:00.000000Z")]
        assert len(hours) == len(set(hours)) == 24 * 365 + 2
        assert await said(database, TENANTS) == [(at(12), "acme", 1, 0, 1), (year_later, "acme", 1, 0, 1)]


async def test_who_waits_through_a_quiet_time_waits_in_each_hour(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "_ROWS_OF_A_QUIET_TIME", 10)
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        await running.submit("globex", delay_sec=25 * 3600)
        running.clock.advance(27 * HOUR)
        await running.tick()  # queued only now, for nobody was there to tick
        await running.claim(2)
        running.clock.advance(HOUR)
        fairness = "SELECT hour, tenant, waiting_weight, cost FROM report_fairness_by_hour ORDER BY hour, tenant"
        before = await said(database, fairness)

        assert len(await roll_all_up(running)) == 28

        assert await said(database, fairness) == before
        assert [row for row in before if row[1] == "acme"] == [
            (rfc3339(NOON.replace(minute=0) + n * rollups.HOUR), "acme", 1 if n < 27 else 2, 0 if n < 27 else 1)
            for n in range(28)
        ]
        assert [row[0] for row in before if row[1] == "globex"] == [at(15, 3)]
        assert len(running.heard.all(HoursRolledUp)) == 5  # the first, 10, 10, 6, and the last


async def test_a_crash_in_the_middle_leaves_no_trace_and_the_hour_is_rolled_up_again(database: Database) -> None:
    async with mortal(database) as process:
        running = process.running
        first = rfc3339(ten_past(running))
        for tenant in ("acme", "globex"):
            await running.submit(tenant)
        await running.claim_one(start=True)
        running.clock.advance(HOUR)
        before = {name: await view(database, name) for name in BY_HOUR}
        with gate(running.core, "statement", statement="UPDATE rollups") as reached:
            rolling = asyncio.create_task(rollup.roll_up(running.core))
            await reached.reached()
            rolling.cancel()
            running = await process.restart()

        assert (await rolled(database))["hourly_tenants"] == 2
        assert {name: await view(database, name) for name in BY_HOUR} == before
        await by_hand(database, "DELETE FROM jobs WHERE tenant = 'globex'")

        assert await roll_all_up(running) == [first]
        assert await said(database, TENANTS) == [(first, "acme", 1, 1, 0)]


@pytest.mark.parametrize("moment", ["commit", "after commit"])
async def test_a_database_that_is_away_at_the_last_write_costs_nothing(database: Database, moment: str) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        running.clock.advance(HOUR)
        with failing(running.core, moment, after=4), pytest.raises(Unavailable):  # type: ignore[arg-type]
            await rollup.roll_up(running.core)

        await roll_all_up(running)

        assert await said(database, TENANTS) == [(at(12), "acme", 1, 0, 0)]
        assert await database.value("SELECT until FROM rollups") is not None


async def test_a_great_hour_is_written_in_portions(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.rollups.ROWS_AT_ONCE", 3)
    async with service(database, clock=FakeClock(NOON)) as running:
        for number in range(10):
            await running.submit(f"t{number}")
        running.clock.advance(HOUR)
        before = {name: await view(database, name, at(13)) for name in BY_HOUR}
        commits = running.core.writer.commits

        await roll_all_up(running)

        # What was in flight, 4 portions of tenants and 4 of shares, one of minutes, the mark.
        assert running.core.writer.commits - commits == 1 + 4 + 4 + 1 + 1
        assert {name: await view(database, name, at(13)) for name in BY_HOUR} == before


async def test_what_is_written_as_an_hour_ends_is_counted(database: Database) -> None:
    """A submit has its time when it is in the middle of its transaction, and the hour ends before the commit."""
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        async with busy(running.core) as backlog:
            submitting = asyncio.create_task(running.submit("late"))
            await backlog.grows_to(1)
            running.clock.advance(HOUR)
            rolling = asyncio.create_task(rollup.roll_up(running.core))
            await backlog.grows_to(2)
        job = await submitting
        await rolling

        counted = {(hour, tenant) for hour, tenant, *_ in await said(database, TENANTS)}
        assert counted == {(at(12), "acme"), (at(job.submitted_at.hour), "late")}


async def test_a_mark_that_was_set_by_hand_stands(database: Database) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        running.clock.advance(HOUR)
        async with running.core.reading() as connection:
            figures = await rollups.figures(connection, rollups.hour_of(NOON))
        await by_hand(database, f"UPDATE rollups SET until = '{at(9)}'")

        await rollup._write(running.core, figures, None)

        assert await said(database, "SELECT until FROM rollups") == [(at(9),)]
        assert await roll_all_up(running) == [at(9), at(10), at(11), at(12)]
        assert await said(database, TENANTS) == [(at(12), "acme", 1, 0, 0)]


async def test_without_a_mark_nothing_is_said_to_be_rolled_up_and_the_round_rests(database: Database) -> None:
    async with service(database, clock=FakeClock(NOON)) as running:
        await running.submit()
        running.clock.advance(HOUR)
        await by_hand(database, "DELETE FROM rollups")
        try:
            assert await rollup.roll_up(running.core) is False
            assert running.heard.all(HoursRolledUp) == []
            assert await said(database, TENANTS) == [(at(12), "acme", 1, 0, 0)]
        finally:
            await by_hand(database, "INSERT INTO rollups (name, until) VALUES ('hours', NULL)")
