"""The service is killed, at any instant, and comes again: nothing that was acknowledged is lost, workers go on,
and what comes out is what a twin gives that never died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import get_args

import pytest

from app.events import Recovered
from app.flow import lease, tenancy
from app.flow.look import get_job
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from tests.databases import Database
from tests.flow.harness import HOUR, Moment, Running, gate, in_one_group, mortal, service, token_of
from tests.flow.scenes import POLICIES, assert_twins, much_at_once, set_up
from tests.flow.views import assert_memory_equals_sql, drained, portrait

Held = dict[str, Job]
"""What workers hold, by test suite: they outlive the service."""

Step = Callable[[Running, Held], Awaitable[object]]


def requests(tenant: str, count: int, **asked: int | str) -> list[JobRequest]:
    queue = str(asked.get("queue", "default"))
    delay, start = int(asked.get("delay_sec", 0)), int(asked.get("first", 0))
    return [
        JobRequest(
            tenant=tenant,
            test_suite=f"{tenant} {queue} {n}",
            queue=queue,
            priority=n % 4,
            cost=1 + n % 3,
            delay_sec=delay,
            max_attempts=2,
        )
        for n in range(start, start + count)
    ]


async def set_tenants(s: Running, _held: Held) -> None:
    for name, settings in {
        "heavy": TenantSettings(weight=3),
        "capped": TenantSettings(max_running=2),
        "paused": TenantSettings(paused=True),
    }.items():
        await tenancy.put_tenant(s.core, name, settings)


async def submit_some(s: Running, _held: Held) -> None:
    await s.submit_all(
        [
            *requests("heavy", 6),
            *requests("capped", 5),
            *requests("capped", 3, queue="other"),
            *requests("paused", 3),
            *requests("light", 4),
            *requests("light", 2, queue="other"),
            *requests("late", 3, delay_sec=3),
        ]
    )


def claim(count: int, *queues: str, start: bool = True) -> Step:
    async def step(s: Running, held: Held) -> None:
        held.update({job.test_suite: job for job in await s.claim(count, *queues, start=start)})

    return step


async def report_some(s: Running, held: Held) -> None:
    names = sorted(held)
    await s.complete(held.pop(names[0]))
    await s.fail(held.pop(names[1]))
    await s.release(held.pop(names[2]))


async def come_anew(s: Running, _held: Held) -> None:
    await s.submit_all([*requests("new", 2), *requests("heavy", 1, queue="other")])


async def cancel_some(s: Running, held: Held) -> None:
    await s.cancel(held.pop(min(held)))
    [waiting] = [job for job in s.core.order.snapshot().jobs if job.tenant == "light" and job.queue == "other"][-1:]
    await s.cancel(await get_job(s.core, waiting.id))


def tick(after: float) -> Step:
    return lambda s, _held: s.tick(after)


async def set_otherwise(s: Running, _held: Held) -> None:
    await tenancy.put_tenant(s.core, "paused", TenantSettings(weight=2))
    await tenancy.put_tenant(s.core, "heavy", TenantSettings(weight=5, max_running=3))
    await tenancy.put_queue(s.core, "other", paused=True)


async def let_lapse(s: Running, held: Held) -> None:
    await s.tick(after=30.5)
    held.clear()


async def open_queue(s: Running, _held: Held) -> None:
    await tenancy.put_queue(s.core, "other", paused=False)


async def complete_all(s: Running, held: Held) -> None:
    for name in sorted(held):
        await s.complete(held.pop(name))


DAY: list[Step] = [
    set_tenants,
    submit_some,
    claim(6),
    report_some,
    come_anew,
    claim(4, "other", "default", start=False),
    cancel_some,
    tick(3.1),
    set_otherwise,
    claim(5, "default", "other"),
    let_lapse,
    open_queue,
    claim(4, "other", "default"),
    complete_all,
    tick(5),
]


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_service_that_is_killed_after_every_step_ends_where_its_twin_does(
    database: Database, other_database: Database, policy: str
) -> None:
    async with mortal(database, policy=policy) as killed, service(other_database, policy=policy) as twin:
        held: tuple[Held, Held] = ({}, {})
        for step in DAY:
            await step(twin, held[0])
            await step(killed.running, held[1])
            await killed.restart()
            for running in (twin, killed.running):
                running.clock.advance(0.01)
            assert await portrait(killed.running.core) == await portrait(twin.core), step
            assert held[0].keys() == held[1].keys()
        await assert_twins(killed.running, twin)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("moment", get_args(Moment))
async def test_a_kill_in_a_transaction_leaves_no_trace_of_it_or_all(
    database: Database, other_database: Database, moment: Moment, policy: str
) -> None:
    async with mortal(database, policy=policy) as killed, service(other_database, policy=policy) as twin:
        running = killed.running
        scene, twins_scene = await set_up(running), await set_up(twin)
        with gate(running.core, moment, statement="UPDATE jobs") as stopped:
            tasks = [asyncio.ensure_future(request) for request in much_at_once(running, scene)]
            await stopped.reached()
            await running.crash()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if moment == "after commit":
            await in_one_group(twin.core, *much_at_once(twin, twins_scene))

        await killed.restart()

        await assert_twins(killed.running, twin)


async def test_what_was_sent_when_the_service_died_may_be_sent_again(database: Database) -> None:
    for moment in get_args(Moment):
        async with mortal(database) as killed:
            running = killed.running
            for n in range(3):
                await running.submit(name=f"{moment} {n}")
            claimed = [await running.claim_one(start=True) for _ in range(3)]

            def much(s: Running, name: str, held: list[Job]) -> list[asyncio.Future[Job]]:
                return [
                    asyncio.ensure_future(request)
                    for request in (
                        s.submit(name=name, idempotency_key=name),
                        s.complete(held[0], "done"),
                        s.fail(held[1], retry=False),
                        s.release(held[2]),
                    )
                ]

            with gate(running.core, moment, statement="INSERT INTO jobs") as stopped:
                tasks = much(running, moment, claimed)
                await stopped.reached()
                await running.crash()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await killed.restart()

            submitted, completed, failed, released = await asyncio.gather(*much(killed.running, moment, claimed))

            assert [submitted.state, released.state] == [State.QUEUED, State.QUEUED]
            assert (completed.state, completed.result, failed.state) == (State.COMPLETED, "done", State.FAILED)
            assert await database.value(f"SELECT count(*) FROM jobs WHERE test_suite = '{moment}'") == 1
            assert await database.value(f"SELECT count(*) FROM job_attempts WHERE job_id = '{released.id}'") == 1
            await assert_memory_equals_sql(killed.running.core)
            await drained(killed.running)


async def test_leases_end_in_the_order_in_which_they_were_given_wherever_their_rows_are(database: Database) -> None:
    """The second to be given is the last that is read, and each that is read before it takes a moment."""
    stored = [("a", 0), ("b", 2), ("b", 3), ("b", 4), ("b", 5), ("c", 1)]
    async with mortal(database) as killed:
        for tenant, priority in stored:
            await killed.running.submit(tenant, str(priority), priority=priority)
        given = [job.id for job in await killed.running.claim(len(stored))]
        await killed.restart()
        killed.running.clock.flow(HOUR)
        ended = killed.running.core.leases.take_ended(killed.running.clock.monotonic_ns(), len(stored))
        assert [lease.job_id for lease in ended] == given


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_service_that_goes_in_peace_comes_again_alike(
    database: Database, other_database: Database, policy: str
) -> None:
    async with service(other_database, policy=policy) as twin:
        async with service(database, policy=policy) as first:
            for each in (first, twin):
                scene = await set_up(each)
                await in_one_group(each.core, *much_at_once(each, scene))
        async with service(database, policy=policy) as second:
            await assert_twins(second, twin)


async def test_the_policy_may_change_at_a_start(database: Database) -> None:
    async with mortal(database) as killed:
        await set_up(killed.running)
        for policy in ("penalty", "virtual-time"):
            running = await killed.restart(policy=policy)
            await assert_memory_equals_sql(running.core)
            assert len(await running.claim(2)) == 2
            await running.submit("light", policy)
            await assert_memory_equals_sql(running.core)


async def test_a_start_tells_what_it_found(database: Database) -> None:
    async with mortal(database) as killed:
        await set_up(killed.running)
        core = killed.running.core
        states = {state: sum(core.counts.of_queue(q)[state] for q in core.counts.queues()) for state in State}

        await killed.restart(policy="penalty")

        [found] = killed.running.heard.all(Recovered)
        assert (found.queued, found.pending) == (states[State.QUEUED], states[State.PENDING])
        assert found.leased == states[State.SCHEDULED] + states[State.RUNNING] == 5
        assert found.policy == "penalty"


# --- Leases and times over a start -------------------------------------------------------------------------


async def lasts(running: Running, job: Job) -> float:
    """How many seconds a lease has."""
    lease_ = running.core.leases.get(job.id)
    assert lease_ is not None
    return (lease_.expires_at - running.core.clock.monotonic_ns()) / 1e9


@pytest.mark.parametrize(
    ("away", "wall_jumped", "left"),
    [
        (0, 0, 27),
        (20, 0, 10),  # what is left is less than a third
        (1000, 0, 10),
        (0, HOUR, 10),
        (0, -HOUR, 30),  # as far as the times given out tell, it is the moment of the last write
    ],
)
async def test_a_lease_lasts_a_beat_at_least_after_a_start_and_its_token_goes_on(
    database: Database, away: float, wall_jumped: float, left: float
) -> None:
    async with mortal(database) as killed:
        running = killed.running
        jobs = [await running.submit(name=f"job {n}", timeout_sec=[None, 28, None][n]) for n in range(3)]
        held = await running.claim(3, start=True)
        scheduled = await running.submit(name="scheduled")
        claimed = await running.claim_one()
        running.clock.advance(3 + away)

        running = await killed.restart(wall_jumped=wall_jumped)

        core = running.core
        assert [abs(await lasts(running, job) - left) < 0.001 for job in (*jobs, scheduled)] == [True] * 4
        timed = core.leases.get(jobs[1].id)
        assert timed is not None
        assert timed.timeout_at is not None
        assert abs((timed.timeout_at - core.clock.monotonic_ns()) / 1e9 - max(10, left - 2)) < 0.001
        await running.tick(after=left - 2.1)
        assert len(core.leases) == 4
        await lease.start(core, scheduled.id, token_of(claimed))
        await lease.heartbeat(core, jobs[0].id, token_of(held[0]))
        assert (await running.complete(held[1])).state is State.COMPLETED
        await running.tick(after=2.2)
        assert (await get_job(core, jobs[2].id)).error == "lease expired"
        assert (await running.complete(held[0])).state is State.COMPLETED
        await assert_memory_equals_sql(core)


async def all_times(database: Database) -> list[object]:
    """Every time that was given out and is in the database."""
    columns = ("submitted_at", "queued_at", "scheduled_at", "started_at", "completed_at")
    wanted = [f"SELECT {column} FROM jobs WHERE {column} IS NOT NULL" for column in columns]
    wanted.append("SELECT ended_at FROM job_attempts")
    return [time for sql in wanted for (time,) in await database.fetch(sql)]


@pytest.mark.parametrize("wall_jumped", [0, -HOUR, HOUR])
async def test_times_never_fall_over_a_start(database: Database, wall_jumped: float) -> None:
    async with mortal(database) as killed:
        for n in range(3):
            running = killed.running
            await in_one_group(running.core, *(running.submit(name=f"job {n} {m}") for m in range(30)))
            claimed = await running.claim(20, start=True)
            await in_one_group(running.core, *(running.complete(job) for job in claimed))
            newest = max(await all_times(database), key=str)

            running = await killed.restart(wall_jumped=wall_jumped)

            job = await running.submit(name=f"first after start {n}")
            [(first,)] = await database.fetch(f"SELECT submitted_at FROM jobs WHERE id = '{job.id}'")
            assert str(first) > str(newest)
        times = await database.fetch("SELECT submitted_at FROM jobs ORDER BY seq")
        assert times == sorted(set(times))


async def test_the_order_by_time_is_kept_over_a_start_with_an_earlier_clock(
    database: Database, other_database: Database
) -> None:
    """Both go by a time and only then by number: due times under virtual time, submit times under penalty."""
    async with mortal(database, policy="penalty") as killed, service(other_database, policy="penalty") as twin:
        for each in (killed.running, twin):
            await in_one_group(each.core, *(each.submit(f"tenant {n}", f"before {n}") for n in range(20)))
        await killed.restart(wall_jumped=-HOUR)
        for each in (killed.running, twin):
            each.clock.advance(1)
            await in_one_group(each.core, *(each.submit(f"tenant {n + 20}", f"after {n}") for n in range(20)))

        await assert_twins(killed.running, twin)


async def test_what_became_due_while_nobody_served_is_queued_by_the_first_tick(database: Database) -> None:
    async with mortal(database) as killed:
        late = await killed.running.submit(name="late", delay_sec=60)
        later = await killed.running.submit(name="later", delay_sec=600)
        killed.running.clock.advance(100)

        running = await killed.restart()
        await running.tick()

        assert (await get_job(running.core, late.id)).state is State.QUEUED
        assert (await get_job(running.core, later.id)).state is State.PENDING
        assert later.run_at - late.run_at == timedelta(seconds=540) + (later.submitted_at - late.submitted_at)
        await assert_memory_equals_sql(running.core)
