"""All that can be asked of the service, and all that it does by itself, each so that it can be asked twice: what must
be there first, the asking, and what must be so once it has succeeded, however often it was tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.errors import NotFound
from app.flow import bulk, cancel, dispatch, lease, look, tenancy
from app.flow.audit.audit import audit
from app.flow.bulk import Report
from app.flow.cancel import CancelFilter
from app.flow.dispatch import ClaimRequest
from app.flow.erase import erase_tenant
from app.flow.look import JobFilter
from app.flow.reprioritize import reprioritize
from app.flow.retention import retire
from app.flow.retry import retry
from app.flow.submit import JobRequest, submit
from app.flow.tenancy import TenantSettings
from app.flow.watch.explain import explain
from app.flow.watch.overview import overview
from app.scheduling.job import Job, Outcome, State
from tests.databases import Database
from tests.flow.harness import (
    HOUR,
    PATIENCE_SEC,
    Running,
    by_hand,
    cancel_sql,
    failing,
    hang_up,
    token_of,
    until,
)


@dataclass(frozen=True)
class Trial:
    """One operation, tried in a queue and for a tenant that nobody else uses: both are called `name`."""

    running: Running
    database: Database
    name: str

    async def submit(self, **asked: Any) -> Job:
        """One new job."""
        return await self.running.submit(self.name, **{"name": self.name, "queue": self.name, **asked})

    async def held(self, *, start: bool = True, **asked: Any) -> Job:
        """A new job that is leased."""
        await self.submit(**asked)
        return await self.running.claim_one(self.name, start=start)

    async def jobs(self) -> list[Job]:
        """All of them, as they are now, oldest first."""
        wanted = JobFilter(queue=self.name, newest_first=False)
        return (await look.list_jobs(self.running.core, wanted)).jobs

    async def now(self, job: Job) -> Job:
        """The job as it is now."""
        return await look.get_job(self.running.core, job.id)

    async def outcomes(self, job: Job) -> list[Outcome]:
        """How its attempts ended."""
        return [attempt.outcome for attempt in await look.list_attempts(self.running.core, job.id)]


Act: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
Operation: TypeAlias = Callable[[Trial], AbstractAsyncContextManager[Act]]

# --- A job's life ------------------------------------------------------------------------------------------


@asynccontextmanager
async def submitting(trial: Trial) -> AsyncIterator[Act]:
    yield lambda: trial.submit(idempotency_key=trial.name)
    [job] = await trial.jobs()
    assert job.state is State.QUEUED


@asynccontextmanager
async def submitting_a_batch(trial: Trial) -> AsyncIterator[Act]:
    requests = [
        JobRequest(
            tenant=f"{trial.name} {n % 2}",
            test_suite="unit",
            queue=trial.name,
            delay_sec=HOUR_SEC * (n % 2),
            idempotency_key=f"{n}",
        )
        for n in range(3)
    ]
    yield lambda: submit(trial.running.core, requests)
    assert [job.idempotency_key for job in await trial.jobs()] == ["0", "1", "2"]


@asynccontextmanager
async def submitting_again(trial: Trial) -> AsyncIterator[Act]:
    first = await trial.submit(idempotency_key=trial.name)
    yield lambda: trial.submit(idempotency_key=trial.name)
    assert await trial.jobs() == [first]


@asynccontextmanager
async def claiming(trial: Trial) -> AsyncIterator[Act]:
    async with _claiming(trial, start=False) as act:
        yield act


@asynccontextmanager
async def claiming_with_start(trial: Trial) -> AsyncIterator[Act]:
    async with _claiming(trial, start=True) as act:
        yield act


@asynccontextmanager
async def _claiming(trial: Trial, *, start: bool) -> AsyncIterator[Act]:
    told = list[Job]()
    for _ in range(2):
        await trial.submit()

    async def act() -> None:
        told.extend(await trial.running.claim(2, trial.name, start=start))

    yield act
    leased = {job.id: job.token for job in await trial.jobs()}
    assert len(leased) == 2
    assert None not in leased.values()
    for job in told:  # no lease was given twice
        assert leased.pop(job.id) == job.token
        await trial.running.release(job)
    await trial.running.tick(after=31)  # and what nobody was told of comes back
    assert {(job.state, job.attempt) for job in await trial.jobs()} <= {
        (State.QUEUED, 0),
        (State.QUEUED, 1),
        (State.PENDING, 1),
    }


@asynccontextmanager
async def claiming_ahead(trial: Trial) -> AsyncIterator[Act]:
    """A claim that waits, and the submit that it waits for."""
    running, told = trial.running, list[Job]()
    wanted = ClaimRequest(worker="w", queues=(trial.name,), wait_sec=30)

    async def act() -> None:
        waiting = asyncio.create_task(dispatch.claim(running.core, wanted))
        try:
            await until(lambda: running.core.waiting.has(trial.name) or waiting.done())
            submitted = await trial.submit(idempotency_key=trial.name)
            await running.tick(after=31 if submitted.token is not None and not waiting.done() else 0)
            async with asyncio.timeout(PATIENCE_SEC):
                told.extend(await waiting)
        finally:
            await hang_up(waiting)

    yield act
    [job] = await trial.jobs()
    assert [each.token for each in told][-1:] == [job.token]


@asynccontextmanager
async def starting(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held(start=False)
    yield lambda: lease.start(trial.running.core, job.id, token_of(job))
    assert (await trial.now(job)).state is State.RUNNING


@asynccontextmanager
async def beating(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    trial.running.clock.advance(5)
    yield lambda: lease.heartbeat(trial.running.core, job.id, token_of(job), 60, 0.5)
    assert (await trial.now(job)).progress == 0.5


@asynccontextmanager
async def beating_for_many(trial: Trial) -> AsyncIterator[Act]:
    jobs = [await trial.held(), await trial.held()]
    trial.running.clock.advance(5)
    leases = [(job.id, token_of(job)) for job in jobs]
    yield lambda: bulk.heartbeat_many(trial.running.core, leases)
    for before, after in zip(jobs, await trial.jobs(), strict=True):
        assert before.lease_expires_at is not None
        assert after.lease_expires_at is not None
        assert after.lease_expires_at > before.lease_expires_at


@asynccontextmanager
async def completing(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    yield lambda: trial.running.complete(job, "done")
    assert ((await trial.now(job)).result, await trial.outcomes(job)) == ("done", [Outcome.COMPLETED])


@asynccontextmanager
async def failing_with_a_retry(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    yield lambda: trial.running.fail(job)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.PENDING, [Outcome.FAILED])


@asynccontextmanager
async def failing_before_the_start(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held(start=False)
    yield lambda: trial.running.fail(job)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.QUEUED, [Outcome.FAILED])


@asynccontextmanager
async def failing_for_good(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    yield lambda: trial.running.fail(job, retry=False)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.FAILED, [Outcome.FAILED])


@asynccontextmanager
async def releasing(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    yield lambda: trial.running.release(job)
    now = await trial.now(job)
    assert (now.state, now.attempt, await trial.outcomes(job)) == (State.QUEUED, 0, [Outcome.RELEASED])


@asynccontextmanager
async def finishing_many(trial: Trial) -> AsyncIterator[Act]:
    good, bad = await trial.held(), await trial.held()
    reports = [
        Report(id=good.id, token=token_of(good), result=1),
        Report(id=bad.id, token=token_of(bad), error="it broke"),
        Report(id=bad.id, token="no token"),  # noqa: S106  # of no lease
    ]
    yield lambda: bulk.finish_many(trial.running.core, reports)
    assert [await trial.outcomes(job) for job in (good, bad)] == [[Outcome.COMPLETED], [Outcome.FAILED]]


# --- What is changed meanwhile -----------------------------------------------------------------------------


@asynccontextmanager
async def cancelling(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.submit()
    yield lambda: trial.running.cancel(job)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.CANCELLED, [])


@asynccontextmanager
async def cancelling_what_runs(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    yield lambda: trial.running.cancel(job)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.CANCELLED, [Outcome.CANCELLED])


@asynccontextmanager
async def cancelling_many(trial: Trial) -> AsyncIterator[Act]:
    await trial.held()
    await trial.submit()
    await trial.submit(delay_sec=HOUR_SEC)
    yield lambda: cancel.cancel_many(trial.running.core, CancelFilter(tenant=trial.name))
    assert [job.state for job in await trial.jobs()] == [State.CANCELLED] * 3


@asynccontextmanager
async def reprioritizing(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.submit(priority=5)
    yield lambda: reprioritize(trial.running.core, job.id, 2)
    assert (await trial.now(job)).priority == 2


@asynccontextmanager
async def retrying(trial: Trial) -> AsyncIterator[Act]:
    """It has no key: who was told nothing, and asks again, may get two."""
    job, told = await trial.submit(), list[Job]()
    await trial.running.cancel(job)

    async def act() -> None:
        told.append(await retry(trial.running.core, job.id))

    yield act
    new = (await trial.jobs())[1:]
    assert {each.id for each in told} <= {each.id for each in new}
    assert len(told) <= len(new) <= 2


@asynccontextmanager
async def putting_a_tenant(trial: Trial) -> AsyncIterator[Act]:
    settings = TenantSettings(weight=3, max_running=2)
    yield lambda: tenancy.put_tenant(trial.running.core, trial.name, settings)
    assert trial.running.core.admission.settings(trial.name) == settings


@asynccontextmanager
async def patching_a_tenant(trial: Trial) -> AsyncIterator[Act]:
    await trial.submit()
    yield lambda: tenancy.patch_tenant(trial.running.core, trial.name, {"paused": True})
    assert await trial.running.claim(1, trial.name) == []


@asynccontextmanager
async def pausing_a_queue(trial: Trial) -> AsyncIterator[Act]:
    await trial.submit()
    yield lambda: tenancy.put_queue(trial.running.core, trial.name, paused=True)
    assert await trial.running.claim(1, trial.name) == []


# --- What time does ----------------------------------------------------------------------------------------


@asynccontextmanager
async def promoting(trial: Trial) -> AsyncIterator[Act]:
    for _ in range(2):
        await trial.submit(delay_sec=5)
    trial.running.clock.advance(6)
    yield trial.running.tick
    assert [job.state for job in await trial.jobs()] == [State.QUEUED] * 2


@asynccontextmanager
async def lapsing(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held()
    trial.running.clock.advance(31)
    yield lambda: trial.running.tick(after=11)  # after a doubt a lease lasts a third of its length
    assert await trial.outcomes(job) == [Outcome.LAPSED]


@asynccontextmanager
async def timing_out(trial: Trial) -> AsyncIterator[Act]:
    job = await trial.held(timeout_sec=10, max_attempts=1)
    trial.running.clock.advance(11)
    yield lambda: trial.running.tick(after=11)
    assert ((await trial.now(job)).state, await trial.outcomes(job)) == (State.FAILED, [Outcome.TIMED_OUT])


@asynccontextmanager
async def reading_settings_again(trial: Trial) -> AsyncIterator[Act]:
    await trial.submit()
    await by_hand(trial.database, f"UPDATE tenants SET weight = 7 WHERE name = '{trial.name}'")
    yield trial.running.tick
    assert trial.running.core.admission.settings(trial.name).weight == 7


@asynccontextmanager
async def forgetting_lanes(trial: Trial) -> AsyncIterator[Act]:
    await trial.held()
    yield lambda: trial.running.tick(after=11)
    await trial.running.tick(after=11)


@asynccontextmanager
async def recovering(trial: Trial) -> AsyncIterator[Act]:
    """The outcome of a commit is not known, and memory is read again."""
    core = trial.running.core
    await trial.held()
    await trial.submit()
    with failing(core, "after commit"), suppress(Exception):
        await trial.submit()
    yield trial.running.tick
    assert not core.writer.is_in_doubt
    assert len(await trial.jobs()) == 3


@asynccontextmanager
async def auditing(trial: Trial) -> AsyncIterator[Act]:
    core = trial.running.core
    job = await trial.submit()
    await by_hand(trial.database, cancel_sql(job))

    async def act() -> None:
        async with asyncio.timeout(PATIENCE_SEC):
            while await audit(core):
                pass

    yield act
    assert core.order.queued_job(job.id) is None


@asynccontextmanager
async def rolling_up(trial: Trial) -> AsyncIterator[Act]:
    await trial.running.complete(await trial.held())
    trial.running.clock.advance(2 * HOUR)
    yield trial.running.roll_all_up
    counted = f"SELECT sum(dispatched) FROM hourly_fairness WHERE tenant = '{trial.name}'"
    assert await trial.database.value(counted) == 1


@asynccontextmanager
async def retiring(trial: Trial) -> AsyncIterator[Act]:
    running = trial.running
    await running.complete(await trial.held())
    running.clock.advance(26 * HOUR)
    await running.roll_all_up()

    async def act() -> None:
        async with asyncio.timeout(PATIENCE_SEC):
            while await retire(running.core):
                pass

    yield act
    assert await trial.jobs() == []


@asynccontextmanager
async def erasing(trial: Trial) -> AsyncIterator[Act]:
    core = trial.running.core
    await trial.running.complete(await trial.held())
    await tenancy.put_tenant(core, trial.name, TenantSettings(weight=2))

    async def act() -> None:
        with suppress(NotFound):  # it is gone already, and the answer was lost
            assert (await erase_tenant(core, trial.name)).is_gone

    yield act
    assert await trial.jobs() == []
    assert trial.name not in core.admission.configured()


# --- Who only looks ----------------------------------------------------------------------------------------


@asynccontextmanager
async def looking(trial: Trial) -> AsyncIterator[Act]:
    core, job = trial.running.core, await trial.submit()

    async def act() -> None:
        await trial.jobs()
        assert await trial.now(job) == job
        assert await trial.outcomes(job) == []
        await tenancy.get_tenant(core, trial.name)
        await tenancy.list_tenants(core)
        await tenancy.list_queues(core)
        await explain(core, job.id)
        await overview(core)

    yield act


HOUR_SEC: Final = 3600

OPERATIONS: Final[tuple[Operation, ...]] = (
    submitting,
    submitting_a_batch,
    submitting_again,
    claiming,
    claiming_with_start,
    claiming_ahead,
    starting,
    beating,
    beating_for_many,
    completing,
    failing_with_a_retry,
    failing_before_the_start,
    failing_for_good,
    releasing,
    finishing_many,
    cancelling,
    cancelling_what_runs,
    cancelling_many,
    reprioritizing,
    retrying,
    putting_a_tenant,
    patching_a_tenant,
    pausing_a_queue,
    promoting,
    lapsing,
    timing_out,
    reading_settings_again,
    forgetting_lanes,
    recovering,
    auditing,
    rolling_up,
    retiring,
    erasing,
    looking,
)
