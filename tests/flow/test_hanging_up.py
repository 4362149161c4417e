"""A client that hangs up says nothing about its commit: what has begun is finished, what has not is left out."""

from __future__ import annotations

import asyncio

import pytest

from app.flow import tenancy
from app.flow.look import get_job, list_attempts
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Outcome, State
from tests.databases import Database
from tests.flow.harness import Moment, busy, gate, hang_up, in_one_group, service, until_idle
from tests.flow.views import assert_memory_equals_sql

UNDER_WAY = pytest.mark.parametrize("moment", ["statement", "commit", "after commit"])


@UNDER_WAY
async def test_a_submit_whose_client_hangs_up_while_it_is_written_is_stored(database: Database, moment: Moment) -> None:
    async with service(database) as running:
        core = running.core
        with gate(core, moment, statement="INSERT INTO jobs") as stopped:
            submitting = asyncio.create_task(running.submit())
            await stopped.reached()
            await hang_up(submitting)
            stopped.open()
            await until_idle(core)

        await assert_memory_equals_sql(core)
        assert (await running.claim_one()).state is State.SCHEDULED


@UNDER_WAY
async def test_a_claim_whose_worker_hangs_up_while_it_is_written_is_given_back(
    database: Database, moment: Moment
) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit()
        with gate(core, moment, statement="UPDATE jobs") as stopped:
            claiming = asyncio.create_task(running.claim(start=True))
            await stopped.reached()
            await hang_up(claiming)
            stopped.open()
            await until_idle(core)

        await assert_memory_equals_sql(core)
        found = await get_job(core, job.id)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        assert [attempt.outcome for attempt in await list_attempts(core, job.id)] == [Outcome.RELEASED]


async def test_reports_whose_workers_hang_up_count_all_the_same(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        jobs = await in_one_group(core, *(running.submit() for _ in range(4)))
        held = await running.claim(3, start=True)
        with gate(core, "commit") as stopped:
            reports = [
                asyncio.create_task(report)
                for report in (
                    running.complete(held[0]),
                    running.fail(held[1]),
                    running.release(held[2]),
                    running.cancel(jobs[3]),
                )
            ]
            await stopped.reached()
            for report in reports:
                await hang_up(report)
            stopped.open()
            await until_idle(core)

        states = [(await get_job(core, job.id)).state for job in jobs]
        assert states == [State.COMPLETED, State.PENDING, State.QUEUED, State.CANCELLED]
        await assert_memory_equals_sql(core)


async def test_what_waits_for_the_writer_when_its_client_hangs_up_is_not_run(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=1, burst=3))
        await running.submit(name="old")
        async with busy(core) as backlog:
            submitting = asyncio.create_task(running.submit(name="lost", idempotency_key="key"))
            claiming = asyncio.create_task(running.claim())
            staying = asyncio.create_task(running.submit(name="kept"))
            await backlog.grows_to(3)
            await hang_up(submitting)
            await hang_up(claiming)
        kept = await staying

        await assert_memory_equals_sql(core)
        assert await database.fetch("SELECT test_suite FROM jobs ORDER BY seq") == [("old",), ("kept",)]
        assert kept.state is State.QUEUED
        # Its key is free, and so is its token, the last there is.
        assert (await running.submit(name="again", idempotency_key="key")).state is State.QUEUED


async def test_twins_of_a_submit_that_was_given_up_are_answered_with_what_it_stored(database: Database) -> None:
    async with service(database) as running:
        with gate(running.core, "commit") as stopped:
            first = asyncio.create_task(running.submit(idempotency_key="key"))
            await stopped.reached()
            twins = [asyncio.create_task(running.submit(idempotency_key="key")) for _ in range(3)]
            await hang_up(first)
            stopped.open()
            jobs = await asyncio.gather(*twins)

        assert len({job.id for job in jobs}) == 1
        assert await database.value("SELECT count(*) FROM jobs") == 1
        await assert_memory_equals_sql(running.core)
