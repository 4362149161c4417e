"""Claims that wait: whatever makes a job pickable serves them, first come first served, and nobody who has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

import pytest

from app.errors import Unavailable
from app.flow import dispatch, tenancy
from app.flow.core import Phase
from app.flow.dispatch import ClaimRequest
from app.flow.look import get_job, list_attempts
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, Outcome, State
from app.store.transaction import Transaction
from tests.databases import Database
from tests.flow.harness import (
    PATIENCE_SEC,
    Moment,
    Running,
    answers_of,
    by_hand,
    commits_of,
    failing,
    gate,
    hang_up,
    in_one_group,
    service,
)
from tests.flow.views import assert_memory_equals_sql

LONG = 30
"""Seconds that no claim here waits in fact."""


def waiting_claim(running: Running, *queues: str, limit: int = 1, wait_sec: int = LONG) -> asyncio.Task[list[Job]]:
    wanted = ClaimRequest(worker="w", queues=queues or ("default",), limit=limit, wait_sec=wait_sec)
    return asyncio.create_task(dispatch.claim(running.core, wanted))


async def line_of(running: Running, count: int) -> None:
    """So many claims stand in line."""
    async with asyncio.timeout(PATIENCE_SEC):
        while sum(map(len, running.core.waiting._by_queue.values())) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def served(task: asyncio.Task[list[Job]]) -> list[Job]:
    async with asyncio.timeout(PATIENCE_SEC):
        return await task


Event = Callable[[Running, Job], Awaitable[object]]


async def _let_it_lapse(running: Running, _held: Job) -> None:
    await running.tick(after=31)


async def _make_it_due(running: Running, _held: Job) -> None:
    await running.submit("other", "due", delay_sec=5)
    await running.tick(after=6)


async def _lift_the_cap(running: Running, _held: Job) -> None:
    await tenancy.put_tenant(running.core, "acme", TenantSettings())


async def _unpause(running: Running, _held: Job) -> None:
    await tenancy.put_tenant(running.core, "paused", TenantSettings())


@pytest.mark.parametrize(
    "event",
    [
        lambda running, _held: running.submit("other"),
        _make_it_due,
        lambda running, held: running.complete(held),
        lambda running, held: running.fail(held),
        lambda running, held: running.release(held),
        lambda running, held: running.cancel(held),
        _let_it_lapse,
        _lift_the_cap,
        _unpause,
        lambda running, _held: tenancy.put_queue(running.core, "shut", paused=False),
    ],
    ids=["submit", "due", "complete", "fail", "release", "cancel", "lapse", "cap", "pause", "queue"],
)
async def test_whatever_makes_a_job_pickable_serves_who_waits(database: Database, event: Event) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(max_running=1))
        await tenancy.put_tenant(core, "paused", TenantSettings(paused=True))
        await tenancy.put_queue(core, "shut", paused=True)
        await in_one_group(core, running.submit(), running.submit(), running.submit("paused"))
        await running.submit("other", queue="shut")
        held = await running.claim_one(start=True)
        waiting = waiting_claim(running, "default", "shut")
        await line_of(running, 2)
        assert not waiting.done()

        await event(running, held)

        assert len(await served(waiting)) == 1
        await assert_memory_equals_sql(core)


async def test_what_plain_sql_makes_pickable_serves_who_waits_with_the_next_tick(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(paused=True))
        await running.submit()
        waiting = waiting_claim(running)
        await line_of(running, 1)
        await by_hand(database, f"UPDATE tenants SET paused = {'0' if database.kind == 'sqlite' else 'false'}")

        await running.tick()

        assert len(await served(waiting)) == 1


async def test_who_waits_longest_is_served_first_and_each_with_what_it_wants(database: Database) -> None:
    async with service(database) as running:
        claims = []
        for number, (queues, limit) in enumerate([(("a",), 1), (("b", "a"), 2), (("a", "b"), 1), (("c",), 1)]):
            claims.append(waiting_claim(running, *queues, limit=limit))
            await line_of(running, [1, 3, 5, 6][number])

        await in_one_group(
            running.core,
            running.submit(name="b 1", queue="b"),
            *(running.submit(name=f"a {n}", queue="a") for n in (1, 2, 3)),
        )

        answers = [[job.test_suite for job in await served(claim)] for claim in claims[:3]]
        assert answers == [["a 1"], ["b 1", "a 2"], ["a 3"]]
        assert not claims[3].done()
        await hang_up(claims[3])
        await assert_memory_equals_sql(running.core)
        assert await database.value("SELECT count(*) FROM job_attempts") == 0


async def test_who_hangs_up_while_it_waits_is_given_nothing(database: Database) -> None:
    async with service(database) as running:
        first, second = waiting_claim(running), waiting_claim(running)
        await line_of(running, 2)
        await hang_up(first)

        job = await running.submit()

        assert [leased.id for leased in await served(second)] == [job.id]
        assert await database.value("SELECT count(*) FROM job_attempts") == 0


async def test_who_hangs_up_in_the_moment_it_is_served_leaves_its_jobs_to_others(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        leaving = waiting_claim(running)
        await line_of(running, 1)

        def leave() -> None:
            leaving.cancel()

        async def hang_up_with_the_commit(tx: Transaction) -> None:
            tx.after_commit(leave)

        _, job = await in_one_group(core, core.write(hang_up_with_the_commit), running.submit())
        await answers_of([leaving])
        await core.spawned_work()

        assert leaving.cancelled()
        found = await get_job(core, job.id)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        assert [attempt.outcome for attempt in await list_attempts(core, job.id)] == [Outcome.RELEASED]
        await assert_memory_equals_sql(core)


async def test_who_has_waited_long_enough_comes_back_empty(database: Database) -> None:
    async with service(database) as running:
        assert await served(waiting_claim(running, wait_sec=1)) == []
        assert running.core.waiting._by_queue == {}
        job = await running.submit()
        assert [leased.id for leased in await running.claim()] == [job.id]


async def test_who_waits_when_the_service_drains_comes_back_empty_and_later_ones_are_refused(
    database: Database,
) -> None:
    async with service(database) as running:
        waiting = waiting_claim(running)
        await line_of(running, 1)

        running.core.phase = Phase.DRAINING
        dispatch.end_waiting(running.core)

        assert await served(waiting) == []
        with pytest.raises(Unavailable, match="draining"):
            await running.claim()


async def test_who_waits_while_jobs_are_leased_to_it_as_the_service_drains_gets_them(database: Database) -> None:
    async with service(database) as running:
        waiting = waiting_claim(running)
        await line_of(running, 1)
        with gate(running.core, "commit") as stopped:
            submitting = asyncio.create_task(running.submit())
            await stopped.reached()
            running.core.phase = Phase.DRAINING
            dispatch.end_waiting(running.core)
            stopped.open()

            [job] = await served(waiting)
        await submitting

        assert (await get_job(running.core, job.id)).state is State.SCHEDULED
        await assert_memory_equals_sql(running.core)


# How many begin or are committed before the one that serves who waits, behind a group with a bad row in it.
BEFORE_SERVING = {"begin": 2, "statement": 0, "commit": 1, "after commit": 1}


@pytest.mark.parametrize("moment", get_args(Moment))
async def test_a_failure_while_who_waits_is_served_does_not_make_it_wait_for_ever(
    database: Database, moment: Moment
) -> None:
    async with service(database) as running:
        core = running.core
        waiting = waiting_claim(running)
        await line_of(running, 1)
        await tenancy.put_tenant(core, "acme", TenantSettings(paused=True))
        await running.submit()
        await running.submit()
        with failing(core, moment, statement="UPDATE jobs", after=BEFORE_SERVING[moment]):
            await in_one_group(core, tenancy.put_tenant(core, "acme", TenantSettings()), running.submit("a/b"))
            await core.spawned_work()
        assert not waiting.done()

        await running.tick()

        assert len(await served(waiting)) == 1
        await assert_memory_equals_sql(core)


@pytest.mark.parametrize("moment", get_args(Moment))
async def test_a_failure_of_what_would_have_served_who_waits_leaves_it_waiting(
    database: Database, moment: Moment
) -> None:
    async with service(database) as running:
        waiting = waiting_claim(running)
        await line_of(running, 1)
        with failing(running.core, moment, statement="UPDATE jobs"), pytest.raises(Unavailable):
            await running.submit(name="first")
        assert not waiting.done()

        await running.submit(name="second")

        [job] = await served(waiting)
        # After a commit that was not heard of, the first job is leased to nobody, and lapses.
        assert job.test_suite == "second"
        await assert_memory_equals_sql(running.core)
        await running.tick(after=31)
        again = [job.test_suite for job in await running.claim(9)]
        assert again == (["first", "second"] if moment == "after commit" else ["second"])


async def test_many_that_wait_share_a_batch_in_few_commits(database: Database) -> None:
    async with service(database) as running:
        claims = [waiting_claim(running) for _ in range(30)]
        await line_of(running, 30)
        before = running.core.writer.commits

        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(20))

        done, _ = await asyncio.wait(claims, timeout=PATIENCE_SEC, return_when=asyncio.FIRST_COMPLETED)
        await running.core.spawned_work()
        done, pending = await asyncio.wait(claims, timeout=0)
        assert len(done) == 20
        assert running.core.writer.commits - before <= 3
        assert [job.seq for claim in claims[:20] for job in claim.result()] == list(range(1, 21))
        for claim in pending:
            claim.cancel()
        await answers_of(list(pending))
        await assert_memory_equals_sql(running.core)


async def test_a_claim_that_anothers_transaction_has_served_asks_for_none_of_its_own(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all([JobRequest(tenant="acme", test_suite="unit")] * 2)
        with commits_of(running.core) as commits, gate(running.core, "statement") as claimed:
            first = waiting_claim(running)
            await claimed.reached()
            second = waiting_claim(running, wait_sec=0)
            await line_of(running, 2)
            claimed.open()
            assert len(await served(first)) == len(await served(second)) == 1
            assert len(commits) == 1
        await assert_memory_equals_sql(running.core)
