"""Leases outlive the service and every clock but their own: a restart costs no worker its lease, a wall clock that
jumps lapses nothing, and a lapsed lease makes room for the next job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from app.errors import LeaseLost
from app.events import LeaseLapsed
from app.flow import lease, tenancy
from app.flow.bulk import Report, finish_many, heartbeat_many
from app.flow.look import get_job, list_attempts
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, Outcome, State
from tests.databases import Database
from tests.flow.harness import HOUR, Mortal, Running, answers_of, gate, mortal, service, token_of
from tests.flow.views import assert_memory_equals_sql

LEASE: Final = 30.0
BEAT: Final = LEASE / 3
MANY: Final = 100


async def hundred_running(running: Running, timeout_sec: int | None = None) -> list[Job]:
    """They run, of ten tenants, half of which may run no more than they do."""
    for n in range(5):
        await tenancy.put_tenant(running.core, f"tenant {n}", TenantSettings(max_running=MANY // 10))
    await running.submit_all(
        JobRequest(tenant=f"tenant {n % 10}", test_suite=f"job {n}", timeout_sec=timeout_sec) for n in range(MANY)
    )
    return await running.claim(MANY, start=True)


async def come_again(killed: Mortal, *, down: float) -> Running:
    """The service was away for so long, by every clock there is."""
    return await killed.restart(wall_jumped=down)


async def beat_for(running: Running, held: Sequence[Job]) -> None:
    judged = await heartbeat_many(running.core, [(job.id, token_of(job)) for job in held])
    assert all(each.ok for each in judged)


async def assert_all_complete(running: Running, held: Sequence[Job]) -> None:
    """Under the tokens of their first claims."""
    judged = await finish_many(running.core, [Report(id=job.id, token=token_of(job)) for job in held])
    assert all(each.ok for each in judged)
    for job in held[::10]:
        found = await get_job(running.core, job.id)
        assert (found.state, found.attempt) == (State.COMPLETED, 1)
    await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("down", [0.5, BEAT + 2, LEASE + 5, 600], ids=str)
@pytest.mark.parametrize("timeout_sec", [None, 12], ids=["", "its time is limited"])
async def test_a_restart_amid_a_hundred_running_jobs_costs_no_worker_its_lease(
    database: Database, down: float, timeout_sec: int | None
) -> None:
    """Killed as a third of them report, which nobody hears. Each worker tries again within a beat."""
    async with mortal(database) as killed:
        held = await hundred_running(killed.running, timeout_sec)
        await killed.running.tick(after=BEAT)
        with gate(killed.running.core, "commit") as stopped:
            unheard = [asyncio.ensure_future(killed.running.complete(job)) for job in held[::3]]
            await stopped.reached()
            await killed.running.crash()
        for task in unheard:
            task.cancel()
        await answers_of(unheard)

        running = await come_again(killed, down=down)

        for _ in range(9):  # a whole beat long, tick by tick
            await running.tick(after=BEAT / 9 - 0.01)
        assert len(running.core.leases) == MANY
        if timeout_sec is None:
            await beat_for(running, held)
            await running.tick(after=LEASE - 0.1)
        assert running.heard.all(LeaseLapsed) == []
        await assert_all_complete(running, held)


async def test_workers_outlast_a_service_that_comes_and_goes(database: Database) -> None:
    async with mortal(database) as killed:
        held = await hundred_running(killed.running)
        for _ in range(4):
            running = await come_again(killed, down=BEAT + 5)
            await running.tick(after=BEAT - 0.1)
            await beat_for(running, held)
            await running.tick(after=BEAT)
        await assert_all_complete(killed.running, held)


async def test_who_does_not_come_back_after_a_restart_loses_its_lease_and_frees_the_cap(database: Database) -> None:
    async with mortal(database) as killed:
        held = await hundred_running(killed.running)
        await killed.running.submit("tenant 0", "next")
        assert await killed.running.claim() == []  # its tenant runs all it may
        running = await come_again(killed, down=600)
        assert await running.claim() == []
        await beat_for(running, held[1:])
        await running.tick(after=BEAT + 0.1)
        assert [event.job for event in running.heard.all(LeaseLapsed)] == [held[0].id]
        [attempt] = await list_attempts(running.core, held[0].id)
        assert (attempt.outcome, attempt.error) == (Outcome.LAPSED, "lease expired")
        assert (await running.claim_one()).test_suite == "next"
        with pytest.raises(LeaseLost):
            await running.complete(held[0])
        await assert_all_complete(running, held[1:])


@pytest.mark.parametrize("jumps", [(HOUR,), (-HOUR,), (HOUR, -2 * HOUR, HOUR)], ids=str)
async def test_a_wall_clock_that_jumps_lapses_nothing(database: Database, jumps: tuple[float, ...]) -> None:
    async with service(database) as running:
        held = await hundred_running(running, 25)
        await running.submit("scheduled", max_attempts=1)
        scheduled = await running.claim_one()
        for jump in jumps:
            running.clock.jump(jump)
            await running.tick(after=1)
        assert len(running.core.leases) == MANY + 1
        await beat_for(running, [*held, scheduled])
        await running.tick(after=1)
        assert running.heard.all(LeaseLapsed) == []
        running.clock.flow(24)  # and what ends, ends by the clock that does not jump
        await running.tick()
        assert {event.outcome for event in running.heard.all(LeaseLapsed)} == {Outcome.TIMED_OUT}
        running.clock.flow(7)
        while await running.tick() == 0:
            pass
        assert running.heard.all(LeaseLapsed)[-1].outcome == Outcome.LAPSED
        assert len(running.core.leases) == 0
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("jumped", [HOUR, -HOUR], ids=str)
async def test_a_wall_clock_that_jumps_while_the_service_is_away_lapses_nothing(
    database: Database, jumped: float
) -> None:
    async with mortal(database) as killed:
        held = await hundred_running(killed.running, 600)
        running = await killed.restart(wall_jumped=jumped)
        await running.tick(after=BEAT - 0.1)
        await beat_for(running, held)
        running = await killed.restart(wall_jumped=-jumped)
        await running.tick(after=BEAT - 0.1)
        await assert_all_complete(running, held)


async def test_times_in_answers_follow_a_wall_clock_that_jumps_back_without_falling(database: Database) -> None:
    async with service(database) as running:
        before = await running.submit(name="before")
        [held] = await running.claim(1, start=True)
        running.clock.jump(-HOUR)
        done = await running.complete(held)
        after = await running.submit(name="after")
        times = [before.submitted_at, held.started_at, done.completed_at, after.submitted_at]
        assert times == sorted(time for time in times if time)
        assert len(set(times)) == 4
        assert (await running.claim_one()).id == after.id


async def test_a_late_beat_is_taken_as_long_as_nobody_has_looked(database: Database) -> None:
    """A lease ends when a tick finds that it has; whoever beats before keeps it, also over the tick that follows."""
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one(start=True)
        running.clock.advance(LEASE + 5)
        await lease.heartbeat(running.core, held.id, token_of(held))
        await running.tick(after=LEASE - 0.1)
        assert (await running.complete(held)).state is State.COMPLETED
        await assert_memory_equals_sql(running.core)
