"""The audit: whatever was typed by hand is found, mended and told once, and nothing else is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from app.errors import FairlaneError
from app.events import DifferenceMended, LoopFailed, WriterFailed
from app.flow import cancel, finish, tenancy
from app.flow.audit import mend
from app.flow.audit.audit import audit
from app.flow.audit.mend import What
from app.flow.core import Core, Phase
from app.flow.dispatch import ClaimRequest, claim
from app.flow.reprioritize import reprioritize
from app.flow.tally import Tally
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from tests.databases import Database
from tests.flow.harness import (
    PATIENCE_SEC,
    Running,
    busy,
    by_hand,
    cancel_sql,
    enqueue_sql,
    gate,
    in_one_group,
    lease_sql,
    requeue_sql,
    service,
    token_of,
)
from tests.flow.scenes import POLICIES, Scene, assert_twins, set_up
from tests.flow.views import assert_memory_equals_sql

Told = list[tuple[str, int, tuple[str, ...]]]


async def audited(running: Running) -> Told:
    """Look until there is nothing more to do; what was told of it."""
    before = len(running.heard.all(DifferenceMended))
    async with asyncio.timeout(PATIENCE_SEC):
        while await audit(running.core):
            pass
    return [(each.what, each.count, each.which) for each in running.heard.all(DifferenceMended)[before:]]


@dataclass(frozen=True)
class Planted:
    """What somebody types, and what is told of it; `scene` has the jobs it may be about."""

    name: str
    sql: Callable[[Scene], list[str]]
    told: Callable[[Scene], Told]


def _delete(job: Job) -> str:
    # SQLite's sessions by hand hold no foreign keys; the attempts follow by a trigger there.
    return f"DELETE FROM jobs WHERE id = '{job.id}'"


def _insert_queued(tenant: str) -> str:
    return (
        "INSERT INTO jobs (id, tenant, test_suite, state, queued_at, effective_priority) VALUES"
        f" ('{HEX}', '{tenant}', 'typed', 'queued', '2026-01-31T12:00:00.000000Z', 0)"
    )


def _one(what: str, which: str) -> Callable[[Scene], Told]:
    """One thing is told: the job that the scene has under this name, or else what is called so."""

    def told(scene: Scene) -> Told:
        job = getattr(scene, which, None)
        return [(what, 1, (job.id if job else which,))]

    return told


HEX: Final = "0" * 31 + "1"
PLANTED: Final = (
    Planted(
        "a queued job is cancelled",
        lambda scene: [cancel_sql(scene.queued)],
        _one(What.NOT_TO_COME, "queued"),
    ),
    Planted(
        "a queued job is deleted",
        lambda scene: [_delete(scene.queued)],
        _one(What.NOT_TO_COME, "queued"),
    ),
    Planted(
        "a pending job is cancelled",
        lambda scene: [cancel_sql(scene.pending)],
        lambda _: [
            (What.NUMBERS, 3, ("queue default cancelled +1", "queue default pending -1", "tenant light pending -1"))
        ],
    ),
    Planted(
        "a pending job is inserted",
        lambda _: [
            "INSERT INTO jobs (tenant, test_suite, run_at) VALUES ('light', 'typed', '2126-01-31T12:00:00.000000Z')"
        ],
        lambda _: [(What.NUMBERS, 2, ("queue default pending +1", "tenant light pending +1"))],
    ),
    Planted(
        "a pending job is queued",
        lambda scene: [enqueue_sql(scene.pending)],
        _one(What.TO_COME, "pending"),
    ),
    Planted(
        "a queued job is inserted, of a tenant who is not known",
        lambda _: [
            "INSERT INTO tenants (name) VALUES ('typed')",
            _insert_queued("typed"),
        ],
        _one(What.TO_COME, HEX),
    ),
    Planted(
        "a queued job becomes urgent",
        lambda scene: [f"UPDATE jobs SET priority = 0, effective_priority = 0 WHERE id = '{scene.queued.id}'"],
        _one(What.PLACE, "queued"),
    ),
    Planted(
        "a queued job is leased",
        lambda scene: [lease_sql(scene.queued)],
        _one(What.LEASED, "queued"),
    ),
    Planted(
        "a pending job is queued and leased",
        lambda scene: [enqueue_sql(scene.pending), lease_sql(scene.pending)],
        _one(What.LEASED, "pending"),
    ),
    Planted(
        "a scheduled job is leased to somebody else",
        lambda scene: [requeue_sql(scene.scheduled), lease_sql(scene.scheduled)],
        _one(What.LEASED, "scheduled"),
    ),
    Planted(
        "a running job is cancelled",
        lambda scene: [cancel_sql(scene.running)],
        _one(What.NOT_LEASED, "running"),
    ),
    Planted(
        "a scheduled job is cancelled",
        lambda scene: [cancel_sql(scene.scheduled)],
        _one(What.NOT_LEASED, "scheduled"),
    ),
    Planted(
        "a running job is queued",
        lambda scene: [requeue_sql(scene.running)],
        _one(What.NOT_LEASED, "running"),
    ),
    Planted(
        "a running job is pending again",
        lambda scene: [
            requeue_sql(scene.running).replace("'queued'", "'pending', queued_at = NULL, effective_priority = NULL")
        ],
        _one(What.NOT_LEASED, "running"),
    ),
    Planted(
        "a running job is deleted",
        lambda scene: [_delete(scene.running)],
        _one(What.NOT_LEASED, "running"),
    ),
    Planted(
        "a scheduled job runs",
        lambda scene: [
            f"UPDATE jobs SET state = 'running', started_at = scheduled_at WHERE id = '{scene.scheduled.id}'"
        ],
        lambda scene: [
            (
                What.NUMBERS,
                4,
                (
                    "queue default running +1",
                    "queue default scheduled -1",
                    f"tenant {scene.scheduled.tenant} running +1",
                    f"tenant {scene.scheduled.tenant} scheduled -1",
                ),
            )
        ],
    ),
    Planted(
        "a lane's time is set",
        lambda _: ["UPDATE lanes SET virtual_time = 77 WHERE queue = 'default' AND tenant = 'light'"],
        _one(What.LANES, "light in default"),
    ),
    Planted(
        "a lane is deleted",
        lambda _: ["DELETE FROM lanes WHERE queue = 'default' AND tenant = 'light'"],
        _one(What.LANES, "light in default"),
    ),
    Planted(
        "a lane is inserted",
        lambda _: [
            "INSERT INTO tenants (name) VALUES ('typed')",
            "INSERT INTO lanes (queue, tenant, virtual_time) VALUES ('default', 'typed', 999999999)",
        ],
        _one(What.LANES, "typed in default"),
    ),
    Planted(
        "a clock is set",
        lambda _: ["UPDATE queues SET clock = 5, since_move = 9, horizon = 1 WHERE name = 'default'"],
        _one(What.CLOCKS, "default"),
    ),
    Planted(
        "a queue is inserted with a clock",
        lambda _: ["INSERT INTO queues (name, clock) VALUES ('typed', 5)"],
        _one(What.CLOCKS, "typed"),
    ),
)


@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
async def test_what_was_typed_is_mended_and_told_once(database: Database, planted: Planted) -> None:
    async with service(database) as running:
        scene = await set_up(running)
        running.core.feed.watch()
        assert await audited(running) == []

        await by_hand(database, *planted.sql(scene))

        assert await audited(running) == planted.told(scene)
        await assert_memory_equals_sql(running.core)
        assert await audited(running) == []
        assert running.heard.all(LoopFailed) == []  # whoever listens to moves takes those, too


async def test_a_finished_job_that_was_deleted_is_counted_no_longer(database: Database) -> None:
    async with service(database) as running:
        jobs = [await running.submit(name=str(n), queue="ab"[n % 2]) for n in range(4)]
        for job in await running.claim(4, "a", "b", start=True):
            await running.complete(job)

        await by_hand(database, _delete(jobs[0]))
        assert await audited(running) == [(What.NUMBERS, 1, ("queue a completed -1",))]
        # Two that cancel out: totals of states alone would not tell.
        pending = await running.submit(name="later", queue="a", delay_sec=600)
        await by_hand(database, "DELETE FROM jobs WHERE queue = 'b'", cancel_sql(pending))

        assert await audited(running) == [
            (
                What.NUMBERS,
                4,
                (
                    "queue a cancelled +1",
                    "queue a pending -1",
                    "queue b completed -2",
                    "tenant acme pending -1",
                ),
            )
        ]
        await assert_memory_equals_sql(running.core)


async def test_a_tenant_and_a_queue_that_were_deleted_are_made_again(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit("short", queue="brief")
        await running.cancel(job)
        await by_hand(
            database,
            _delete(job),
            "DELETE FROM lanes",
            "DELETE FROM tenants WHERE name = 'short'",
            "DELETE FROM queues WHERE name = 'brief'",
        )

        told = {what: which for what, _, which in await audited(running)}

        # The lane's row is written again, and the rows it refers to with it.
        assert told == {What.LANES: ("short in brief",), What.NUMBERS: ("queue brief cancelled -1",)}
        assert await audited(running) == []
        assert (await running.submit("short", queue="brief")).state is State.QUEUED
        await assert_memory_equals_sql(running.core)


async def test_a_name_whose_row_was_deleted_gets_one_again(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit("short", delay_sec=60, queue="brief")
        await by_hand(
            database,
            _delete(job),
            "DELETE FROM tenants WHERE name = 'short'",
            "DELETE FROM queues WHERE name = 'brief'",
        )

        told = {what: which for what, _, which in await audited(running)}

        assert told[What.NAMES] == ("tenant short", "queue brief")
        assert (await running.submit("short", queue="brief")).state is State.QUEUED


async def test_a_running_count_that_is_wrong_is_set_right(database: Database) -> None:
    """A lease that lapsed after its job had been put back by hand leaves one."""
    async with service(database) as running:
        await set_up(running)
        [capped] = await running.claim(1, "other", start=True)
        assert capped.tenant == "light"
        running.core.order.set_running("light", 7)

        assert await audited(running) == [(What.RUNNING, 1, ("light",))]
        await assert_memory_equals_sql(running.core)


async def test_a_cap_that_was_full_in_memory_alone_opens(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "capped", TenantSettings(max_running=1))
        _, waiting = await running.submit("capped"), await running.submit("capped", queue="other")
        holder = await running.claim_one()
        assert await running.claim(1, "other") == []

        await by_hand(database, cancel_sql(holder))
        await audited(running)

        assert (await running.claim_one("other")).id == waiting.id


@pytest.mark.parametrize("policy", POLICIES)
async def test_afterwards_the_order_is_as_if_the_api_had_been_asked(
    database: Database, other_database: Database, policy: str
) -> None:
    async with (
        service(database, policy=policy) as running,
        service(other_database, policy=policy) as twin,
    ):
        scene, twins = await set_up(running), await set_up(twin)
        urgent, twins_urgent = (
            await running.submit("late", "more", priority=9),
            await twin.submit("late", "more", priority=9),
        )

        await by_hand(
            database,
            *(cancel_sql(job) for job in (scene.running, scene.scheduled, scene.queued, scene.pending)),
            f"UPDATE jobs SET priority = 1, effective_priority = effective_priority - 8 WHERE id = '{urgent.id}'",
        )
        told = await audited(running)
        for job in (twins.running, twins.scheduled, twins.queued, twins.pending):
            await twin.cancel(job)
        await reprioritize(twin.core, twins_urgent.id, 1)

        assert sum(count for _, count, _ in told) == 4 + 3
        await assert_twins(running, twin)


async def test_what_a_claim_or_a_lapse_found_first_is_not_told_again(database: Database) -> None:
    async with service(database) as running:
        first, other = await running.submit(name="first"), await running.submit(name="other")
        leased = await running.claim_one(start=True)
        assert leased.id == first.id
        await by_hand(database, cancel_sql(other), cancel_sql(leased))

        assert await running.claim() == []  # the claim drops the one, the tick counts it
        await running.tick(after=31)  # and the lapse finds the other

        assert await audited(running) == []
        await assert_memory_equals_sql(running.core)


async def test_what_a_claim_found_meanwhile_is_counted_once(database: Database) -> None:
    """It was at odds at the moment of the comparison, and is not when it is looked at again."""
    async with service(database) as running:
        job = await running.submit()
        await by_hand(database, cancel_sql(job))
        async with busy(running.core):
            auditing = asyncio.create_task(audited(running))
            await asyncio.sleep(0)
            claiming = asyncio.create_task(running.claim())
        assert await claiming == []
        await running.tick()
        await auditing

        await assert_memory_equals_sql(running.core)
        assert await audited(running) == []


async def test_nothing_is_told_of_what_moves_meanwhile(database: Database) -> None:
    """The storm: submits, claims, reports, cancels, new priorities and lapses, while the audit never rests."""
    async with service(database, default_rate_per_sec="none") as running:
        core, rounds, storming = running.core, 0, True

        async def look() -> None:
            nonlocal rounds
            while storming or rounds <= 3:
                rounds += not await audit(core)

        looking = asyncio.create_task(look())
        await asyncio.gather(*(_storm(running, random.Random(seed)) for seed in range(8)))
        storming = False
        async with asyncio.timeout(PATIENCE_SEC):
            await looking

        assert running.heard.all(DifferenceMended) == []
        assert not running.heard.all(LoopFailed)
        assert not running.heard.all(WriterFailed)
        await running.tick()
        await assert_memory_equals_sql(core)
        assert await audited(running) == []


async def test_it_looks_again_in_a_transaction_that_it_shares_with_nobody(database: Database) -> None:
    """In the middle of one that others have begun, a lease is still held whose job is completed."""
    async with service(database) as running:
        core = running.core
        await in_one_group(core, running.submit(name="one"), running.submit(name="two"))
        before, after = await running.claim(2, start=True)
        look_again = partial(mend.jobs_if_they_differ, core, [before.id, after.id], Tally())

        async with busy(core) as backlog:
            completing = [asyncio.create_task(running.complete(before))]
            await backlog.grows_to(1)
            looking = asyncio.create_task(core.write(look_again, alone=True))
            await backlog.grows_to(2)
            completing.append(asyncio.create_task(running.complete(after)))
            await backlog.grows_to(3)

        assert await looking == []
        await asyncio.gather(*completing)
        await assert_memory_equals_sql(core)


async def _storm(running: Running, chance: random.Random) -> None:
    core = running.core
    for _ in range(8):
        tenant, queue = chance.choice("abcdef"), chance.choice(("default", "other"))
        delay = chance.choice((0, 0, 0, 600))
        jobs = await asyncio.gather(
            *(running.submit(tenant, priority=chance.randrange(11), queue=queue, delay_sec=delay) for _ in range(6))
        )
        with suppress(FairlaneError):
            await asyncio.gather(
                cancel.cancel(core, chance.choice(jobs).id),
                reprioritize(core, chance.choice(jobs).id, chance.randrange(11)),
            )
        start = chance.random() < 0.7
        request = ClaimRequest(worker="w", queues=("default", "other"), limit=5, start=start, lease_sec=30)
        for job in await claim(core, request):
            with suppress(FairlaneError):
                await _end_somehow(core, job, chance)
        if chance.random() < 0.1:
            running.clock.advance(40)
            await running.ticker.tick()


async def _end_somehow(core: Core, job: Job, chance: random.Random) -> None:
    token = token_of(job)
    match chance.randrange(5):
        case 0:
            await finish.complete(core, job.id, token)
        case 1:
            await finish.fail(core, job.id, token, "no")
        case 2:
            await finish.release(core, job.id, token)
        case 3:
            await cancel.cancel(core, job.id)


async def test_lanes_that_are_being_forgotten_are_no_difference(database: Database) -> None:
    async with service(database) as running:
        for name in ("one", "two", "three"):
            await running.submit(name)
        for job in await running.claim(3, start=True):
            await running.complete(job)
        await running.tick(after=11)  # memory forgets them; the rows go with the next such tick
        assert await database.value("SELECT count(*) FROM lanes") == 3

        assert await audited(running) == []
        await running.tick(after=11)
        assert await audited(running) == []


async def test_a_start_that_mended_lanes_is_no_difference(database: Database) -> None:
    async with service(database) as running:
        await running.submit("acme")
    await by_hand(database, "DELETE FROM lanes")

    async with service(database) as running:
        assert await audited(running) == []
        assert await database.value("SELECT count(*) FROM lanes") == 1


async def test_the_end_of_the_service_does_not_wait_for_a_long_look(database: Database) -> None:
    async with service(database) as running:
        job, _ = await running.submit(), await running.submit()
        await by_hand(database, cancel_sql(job))
        with gate(running.core, "begin") as writer:
            looking = asyncio.create_task(audit(running.core))
            await writer.reached()
            running.core.phase = Phase.DRAINING
            writer.open()

            assert await looking is False
        assert running.heard.all(DifferenceMended) == []


async def test_jobs_of_one_look_are_mended_in_steps_and_named_up_to_a_few(database: Database) -> None:
    async with service(database) as running:
        await in_one_group(running.core, *(running.submit(name=str(n)) for n in range(250)))
        await by_hand(
            database, "UPDATE jobs SET state = 'cancelled', completed_at = run_at WHERE state = 'queued' AND seq > 10"
        )

        [(what, count, which)] = await audited(running)

        assert (what, count, len(which)) == (What.NOT_TO_COME, 240, 20)
        await assert_memory_equals_sql(running.core)


async def test_the_service_looks_by_itself(database: Database) -> None:
    async with service(database, ticking=True, audit_sec=1) as running:
        job = await running.submit()
        await by_hand(database, cancel_sql(job))

        [told] = await running.heard.wait_for(DifferenceMended)

        assert told.which == (job.id,)
