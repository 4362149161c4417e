"""How fast a tenant may submit: a bucket of tokens by the monotonic clock."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from app.errors import InvalidRequest, KeyReused, RateLimited, TooManyQueued, Unavailable
from app.flow import tenancy
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from tests.databases import Database
from tests.flow.harness import Moment, Running, answers_of, failing, mortal, service
from tests.flow.views import assert_memory_equals_sql


async def admitted(running: Running, tenant: str = "acme", upto: int = 20) -> int:
    """How many single submits are admitted now."""
    for n in range(upto):
        try:
            await running.submit(tenant)
        except RateLimited:
            return n
    return upto


def batch(*tenants: str) -> list[JobRequest]:
    return [JobRequest(tenant=tenant, test_suite="unit") for tenant in tenants]


async def test_a_burst_is_admitted_at_once_and_the_rate_after_it(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.5, burst=3))

        assert await admitted(running) == 3
        with pytest.raises(RateLimited) as refused:
            await running.submit()
        assert (refused.value.tenant, refused.value.retry_after) == ("acme", 2)
        running.clock.jump(3600)  # the wall clock means nothing here
        assert await admitted(running) == 0
        running.clock.flow(1.5)
        with pytest.raises(RateLimited) as refused:
            await running.submit()
        assert refused.value.retry_after == 1
        running.clock.flow(refused.value.retry_after)
        assert await admitted(running) == 1
        running.clock.flow(1000)
        assert await admitted(running) == 3
        assert await database.value("SELECT count(*) FROM jobs") == 7
        await assert_memory_equals_sql(running.core)


async def test_who_comes_when_told_to_is_admitted(database: Database) -> None:
    async with service(database) as running:
        for rate in (0.3, 7.0, 1e-3):
            await tenancy.put_tenant(running.core, f"at {rate}", TenantSettings(rate_per_sec=rate, burst=1))
            await running.submit(f"at {rate}")
            with pytest.raises(RateLimited) as refused:
                await running.submit(f"at {rate}")
            running.clock.flow(refused.value.retry_after)
            await running.submit(f"at {rate}")


async def test_many_at_once_get_no_more_than_the_burst(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=1, burst=5))

        answers = await answers_of([asyncio.ensure_future(running.submit()) for _ in range(12)])

        assert sum(isinstance(answer, RateLimited) for answer in answers) == 7
        assert await database.value("SELECT count(*) FROM jobs") == 5


async def test_a_batch_takes_a_token_a_job_of_each_tenant_or_none_at_all(database: Database) -> None:
    async with service(database) as running:
        for tenant, burst in (("acme", 4), ("other", 1)):
            await tenancy.put_tenant(running.core, tenant, TenantSettings(rate_per_sec=0.01, burst=burst))
        await running.submit_all(batch("acme", "other", "acme", "free", "free"))
        with pytest.raises(RateLimited) as refused:
            await running.submit_all(batch("acme", "free", "acme", "other"))
        assert refused.value.tenant == "other"
        assert await admitted(running) == 2  # what was taken of acme is there again
        assert await admitted(running, "other") == 0
        assert await admitted(running, "free") == 20


async def test_a_batch_that_no_wait_could_admit_is_invalid(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=2.5))

        with pytest.raises(InvalidRequest, match="burst is 3"):
            await running.submit_all(batch("free", *["acme"] * 4))

        assert await admitted(running) == 3  # the rate rounded up, and nothing of it was taken
        assert await database.value("SELECT count(*) FROM jobs WHERE tenant = 'free'") == 0


async def test_what_is_not_stored_gives_its_token_back(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit(idempotency_key="key")
        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=0.01, burst=2))
        moments: tuple[Moment, ...] = ("begin", "statement", "commit")

        for moment in moments:
            with failing(core, moment), pytest.raises(Unavailable):
                await running.submit_all(batch("acme", "acme"))
        with pytest.raises(IntegrityError):
            await running.submit_all(batch("acme", "acme", "a/b"))
        with pytest.raises(KeyReused):
            await running.submit(name="another", idempotency_key="key")
        await running.submit(idempotency_key="key")  # known already: it takes none

        assert await admitted(running) == 2
        await assert_memory_equals_sql(core)


async def test_a_submit_over_the_limit_of_waiting_jobs_takes_no_token(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.01, burst=2, max_queued=1))
        await running.submit(delay_sec=60)
        for _ in range(3):
            with pytest.raises(TooManyQueued, match="already has 1 waiting"):
                await running.submit()

        await tenancy.patch_tenant(running.core, "acme", {"max_queued": None})

        assert await admitted(running) == 1


async def test_the_default_is_for_tenants_without_a_rate_of_their_own(database: Database) -> None:
    async with service(database, default_rate_per_sec="0.1", default_burst="2") as running:
        core = running.core
        await tenancy.put_tenant(core, "own", TenantSettings(rate_per_sec=1, burst=4))
        await tenancy.put_tenant(core, "deep", TenantSettings(burst=5))
        await tenancy.put_tenant(core, "free", TenantSettings(unlimited=True))

        found = {name: await admitted(running, name) for name in ("nobody", "own", "deep", "free")}

        assert found == {"nobody": 2, "own": 4, "deep": 5, "free": 20}
        seen = {view.name: (view.rate_per_sec, view.burst) for view in await tenancy.list_tenants(core)}
        assert seen == {"nobody": (0.1, 2), "own": (1.0, 4), "deep": (0.1, 5), "free": (None, None)}


async def test_a_rate_is_changed_while_its_bucket_is_in_use(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=0.1, burst=4))
        assert await admitted(running, upto=1) == 1

        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=1, burst=2))
        assert await admitted(running) == 2  # of the three that were left, as many as fit
        running.clock.flow(1)
        assert await admitted(running) == 1
        await tenancy.put_tenant(core, "acme", TenantSettings())
        assert await admitted(running) == 20
        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=1, burst=2))
        assert await admitted(running) == 2


async def test_buckets_are_full_after_a_restart(database: Database) -> None:
    async with mortal(database) as killed:
        await tenancy.put_tenant(killed.running.core, "acme", TenantSettings(rate_per_sec=0.01, burst=3))
        assert await admitted(killed.running) == 3

        assert await admitted(await killed.restart()) == 3
