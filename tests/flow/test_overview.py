"""What an operator sees on one screen: counted, in order, and the same as the rows say."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from app.errors import NotFound
from app.flow.dispatch import ClaimRequest, claim
from app.flow.tenancy import put_queue, put_tenant
from app.flow.watch.division import divide_given
from app.flow.watch.overview import SHOWN_QUEUES, QueueLine, WorkerLine, overview, queue_line, tenant_line
from app.scheduling.job import State
from app.scheduling.tenant import TenantSettings
from app.store import queues
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, hang_up, service


async def test_jobs_that_are_queued_the_longest_come_first(database: Database) -> None:
    async with service(database) as running:
        delayed = await running.submit(delay_sec=60)
        first = await running.submit(queue="gpu")
        second = await running.submit()
        third = await running.submit(queue="gpu")
        await running.tick(after=61)
        await running.claim_one("default")
        seen = await overview(running.core)
        assert [job.id for job in seen.longest_queued] == [first.id, third.id, delayed.id]
        assert [job.id for job in seen.newest] == [third.id, second.id, first.id, delayed.id]
        assert (seen.states[State.QUEUED], seen.states[State.SCHEDULED]) == (3, 1)


async def test_it_survives_a_restart_but_for_the_last_hour(database: Database) -> None:
    async with service(database) as running:
        waiting = await running.submit()
        await running.submit("globex", queue="gpu")
        await running.claim_one("gpu")
        await put_tenant(running.core, "acme", TenantSettings(weight=3, paused=True))
        before = await overview(running.core)
    async with service(database) as running:
        after = await overview(running.core)
    assert [job.id for job in after.longest_queued] == [waiting.id]
    assert (after.queues, after.workers, after.states) == (before.queues, before.workers, before.states)
    assert sum(minute.submitted for minute in before.minutes) == 2
    assert sum(minute.submitted for minute in after.minutes) == 0
    assert sorted((line.name, line.weight, line.paused) for line in after.tenants) == [
        ("acme", 3, True),
        ("globex", 1, False),
    ]


async def test_queues_stand_by_how_much_is_in_them(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await put_queue(core, "empty", paused=True)
        for _ in range(3):
            await running.submit(queue="full")
        await running.submit(queue="full", delay_sec=60)
        await running.claim_one("full")
        seen = await overview(core)
        assert [line for line in seen.queues if line.name != "default"] == [
            QueueLine("full", paused=False, pending=1, queued=2, running=1),
            QueueLine("empty", paused=True, pending=0, queued=0, running=0),
        ]
        assert await queue_line(core, "full") == seen.queues[0]
        with pytest.raises(NotFound):
            await queue_line(core, "none")


async def test_no_look_and_no_tick_reads_every_queue_that_was_ever_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are named by whoever submits, and stay. A tick that read them all would read for ever longer."""

    async def refuse(_connection: object) -> NoReturn:
        raise AssertionError("every queue is read")

    async with service(database) as running:
        core = running.core
        for n in range(SHOWN_QUEUES + 5):
            await running.submit(queue=f"busy {n:02}")
            await put_queue(core, f"an idle one {n:02}", paused=False)
        await running.submit(queue="busy 24")
        monkeypatch.setattr(queues, "every", refuse)

        await database.execute("UPDATE queues SET paused = true WHERE name IN ('busy 24', 'an idle one 03')")
        await running.tick()
        seen = await overview(core)
        assert seen.queue_count == await database.value("SELECT count(*) FROM queues")
        assert [line.name for line in seen.queues] == ["busy 24", *(f"busy {n:02}" for n in range(SHOWN_QUEUES - 1))]
        assert [line.name for line in seen.queues if line.paused] == ["busy 24"]
        idle = await queue_line(core, "an idle one 03")
        assert idle == QueueLine("an idle one 03", paused=True, pending=0, queued=0, running=0)

        await database.execute("UPDATE queues SET paused = false")
        await running.tick()
        assert core.order.paused_queues() == set()


async def test_workers_that_hold_jobs_and_workers_that_wait(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one()
        idle = asyncio.create_task(claim(core, ClaimRequest(worker="idle", queues=("a", "b"), wait_sec=30)))
        async with asyncio.timeout(PATIENCE_SEC):
            while not core.waiting.workers():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        seen = await overview(core)
        assert seen.workers == [
            WorkerLine("w", 1, held.scheduled_at, waits=False),
            WorkerLine("idle", 0, None, waits=True),
        ]
        assert seen.worker_count == 2
        await hang_up(idle)
        assert (await overview(core)).worker_count == 1


async def test_a_tenant_that_nobody_heard_of_has_nothing(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        line = tenant_line(core, "nobody")
        assert (line.weight, line.queued, line.running, line.due, line.given) == (1, 0, 0, None, None)
        await running.submit()
        await running.claim_one()
        await divide_given(core)
        assert tenant_line(core, "nobody").given == 0
        assert tenant_line(core, "acme").given == 1
