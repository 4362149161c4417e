"""Workers claim at once, and somebody types SQL between them: every job has one fate, no cap is passed, and what
was proposed in vain has left no trace."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.errors import LeaseLost
from app.events import ProposalRefused
from app.flow import tenancy
from app.flow.look import get_job, stats
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from tests.databases import Database
from tests.flow.harness import Running, by_hand, cancel_sql, gate, service
from tests.flow.views import assert_memory_equals_sql, drained, portrait

CAPS = {"one": 1, "three": 3, "free": None}


async def set_up(running: Running, jobs: int) -> list[Job]:
    """Jobs of tenants with caps, in two queues."""
    for name, cap in CAPS.items():
        await tenancy.put_tenant(running.core, name, TenantSettings(max_running=cap))
    names = list(CAPS)
    return await running.submit_all(
        JobRequest(tenant=names[n % 3], test_suite=f"job {n}", queue=("default", "other")[n // 3 % 2], priority=n % 5)
        for n in range(jobs)
    )


async def test_workers_that_claim_at_once_share_the_jobs_out_and_pass_no_cap(database: Database) -> None:
    async with service(database) as running:
        jobs = await set_up(running, 300)
        claims: Counter[str] = Counter()
        held: Counter[str] = Counter()
        highest: Counter[str] = Counter()
        full = asyncio.Event()  # every cap is reached; until then nobody gives a job back

        async def work(number: int) -> None:
            queues = ("default", "other") if number % 2 else ("other", "default")
            while len(claims) < len(jobs):
                got = await running.claim(1 + number % 3, *queues, start=True)
                claims.update(job.id for job in got)
                held.update(job.tenant for job in got)
                highest.update({tenant: n - highest[tenant] for tenant, n in held.items() if n > highest[tenant]})
                if all(held[tenant] >= cap for tenant, cap in CAPS.items() if cap is not None):
                    full.set()
                await full.wait()
                for job in got:
                    held[job.tenant] -= 1
                    await running.complete(job)
                if not got:
                    await asyncio.sleep(0.002)

        async with asyncio.timeout(60):
            await asyncio.gather(*(work(number) for number in range(20)))

        assert claims == Counter({job.id: 1 for job in jobs})
        assert {tenant: highest[tenant] for tenant in ("one", "three")} == {"one": 1, "three": 3}
        assert stats(running.core).state_counts[State.COMPLETED] == 300
        await assert_memory_equals_sql(running.core)


async def test_a_job_is_cancelled_by_hand_or_claimed_and_never_both(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        jobs = await set_up(running, 60)
        by_id = {job.id: job for job in jobs}
        claimed: list[Job] = []

        async def work() -> None:
            while got := await running.claim(2, "default", "other", start=True):
                claimed.extend(got)
                await asyncio.gather(*(running.complete(job) for job in got))

        async def type_sql() -> None:
            for job in jobs[::3]:
                guarded = cancel_sql(job) + " AND state = 'queued'"
                await by_hand(database, guarded)

        async with asyncio.timeout(60):
            await asyncio.gather(work(), work(), work(), type_sql())
            await work()

        states = dict(await database.fetch("SELECT id, state FROM jobs"))
        fates = {str(job_id).replace("-", ""): state for job_id, state in states.items()}
        assert {job.id for job in claimed} == {job_id for job_id, state in fates.items() if state == "completed"}
        assert len(claimed) == len({job.id for job in claimed})
        assert set(fates.values()) <= {"completed", "cancelled"}
        assert fates.keys() == by_id.keys()
        await running.tick()
        await assert_memory_equals_sql(core)


@pytest.mark.parametrize("policy", ["virtual-time", "penalty"])
async def test_what_was_proposed_in_vain_leaves_no_trace_in_the_order(
    database: Database, other_database: Database, policy: str
) -> None:
    async with service(database, policy=policy) as raced, service(other_database, policy=policy) as twin:
        jobs, twins_jobs = await set_up(raced, 24), await set_up(twin, 24)
        gone = [0, 1, 5, 9, 23]
        for n in gone:
            await by_hand(database, cancel_sql(jobs[n]))
            await twin.cancel(twins_jobs[n])

        claimed = await raced.claim(4, start=True)
        twins = await twin.claim(4, start=True)
        assert [job.test_suite for job in claimed] == [job.test_suite for job in twins]
        assert [job.charge for job in claimed] == [job.charge for job in twins]

        for job, twins_job in zip(claimed, twins, strict=True):
            await raced.complete(job)
            await twin.complete(twins_job)
        assert await drained(raced, "default", "other") == await drained(twin, "default", "other")
        assert {event.job for event in raced.heard.all(ProposalRefused)} == {jobs[n].id for n in gone}
        assert twin.heard.all(ProposalRefused) == []
        await raced.tick()
        await assert_memory_equals_sql(raced.core)
        assert await portrait(raced.core) == await portrait(twin.core)


async def test_a_cancel_by_hand_that_waits_for_a_claim_takes_the_job_from_its_worker(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit()
        with gate(core, "commit") as stopped:
            claiming = asyncio.create_task(running.claim(start=True))
            await stopped.reached()
            typing = asyncio.create_task(by_hand(database, cancel_sql(job)))
            stopped.open()
            [claimed], _ = await asyncio.gather(claiming, typing)

        assert claimed.id == job.id
        assert (await get_job(core, job.id)).state is State.CANCELLED
        with pytest.raises(LeaseLost):
            await running.complete(claimed)


@pytest.mark.parametrize("start", [False, True], ids=["scheduled", "running"])
async def test_a_leased_job_that_is_cancelled_by_hand_makes_room_for_another_when_its_lease_ends(
    database: Database,
    start: bool,  # noqa: FBT001
) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(max_running=1))
        for n in range(2):
            await running.submit(name=f"job {n}")
        held = await running.claim_one(start=start)

        await by_hand(database, cancel_sql(held))
        await running.tick()
        assert await running.claim() == []  # nobody has noticed
        await running.tick(after=31)

        await assert_memory_equals_sql(core)
        assert (await running.claim_one()).test_suite == "job 1"
