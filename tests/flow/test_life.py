"""What a job goes through, move by move: its row, its attempts, and who is told what."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.errors import Conflict, LeaseLost, NotFound
from app.flow import cancel, finish, lease, tenancy
from app.flow.look import get_job, list_attempts
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Attempt, Job, Outcome, State
from app.scheduling.scheduler import SHARE
from app.scheduling.shape import SHAPES, Cell
from tests.databases import Database
from tests.flow.harness import Running, service, token_of
from tests.flow.views import assert_memory_equals_sql

NO_JOB = "0" * 32


async def now_is(running: Running, job: Job) -> Job:
    """The job as its row says, which holds what its state wants, and memory agrees."""
    found = await get_job(running.core, job.id)
    for shape in SHAPES:
        cell = shape.cells[found.state]
        for column in shape.columns:
            if cell is not Cell.EITHER:
                assert (getattr(found, column) is not None) == (cell is Cell.SET), column
    await assert_memory_equals_sql(running.core)
    return found


async def attempts_of(running: Running, job: Job) -> list[Attempt]:
    return await list_attempts(running.core, job.id)


async def outcomes_of(running: Running, job: Job) -> list[tuple[int, Outcome, str | None]]:
    return [(attempt.number, attempt.outcome, attempt.error) for attempt in await attempts_of(running, job)]


# --- The straight way --------------------------------------------------------------------------------------


async def test_a_job_that_is_due_is_queued_claimed_started_and_completed(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        asked = {"priority": 4, "cost": 3, "payload": {"a": [1, None]}, "max_attempts": 2, "timeout_sec": 60}

        job = await running.submit("acme", "unit", queue="gpu", **asked)
        assert job == await now_is(running, job)
        assert {name: getattr(job, name) for name in asked} == asked
        assert (job.state, job.queue, job.tenant, job.test_suite) == (State.QUEUED, "gpu", "acme", "unit")
        assert (job.delay_sec, job.attempt, job.effective_priority, job.seq) == (0, 0, 4, 1)
        assert job.submitted_at == job.due_at == job.run_at == job.queued_at

        claimed = await running.claim_one("gpu")
        assert claimed == await now_is(running, job)
        assert (claimed.state, claimed.worker, claimed.attempt) == (State.SCHEDULED, "w", 1)
        assert (claimed.charge, claimed.dispatch_weight, claimed.lease_sec) == (3 * SHARE, 1, 30)
        assert claimed.scheduled_at is not None
        assert claimed.lease_expires_at == claimed.scheduled_at + timedelta(seconds=30)

        started = await lease.start(core, job.id, token_of(claimed))
        assert started == await now_is(running, job)
        assert (started.state, started.token) == (State.RUNNING, claimed.token)

        done = await running.complete(claimed, {"passed": 12})
        assert done == await now_is(running, job)
        assert (done.state, done.result, done.worker, done.attempt) == (State.COMPLETED, {"passed": 12}, "w", 1)
        times = [done.submitted_at, done.scheduled_at, done.started_at, done.completed_at]
        assert times == sorted(time for time in times if time is not None)
        assert await attempts_of(running, job) == [
            Attempt(
                job_id=job.id,
                number=1,
                token=token_of(claimed),
                worker="w",
                queued_at=job.submitted_at,
                scheduled_at=claimed.scheduled_at,
                started_at=started.started_at,
                ended_at=done.completed_at or job.submitted_at,
                outcome=Outcome.COMPLETED,
                error=None,
                weight=1,
                cost=3,
            )
        ]


async def test_a_claim_with_start_makes_both_moves(database: Database) -> None:
    async with service(database) as running:
        jobs = [await running.submit(name=f"job {n}") for n in range(3)]

        claimed = await running.claim(2, start=True)

        assert [job.id for job in claimed] == [job.id for job in jobs[:2]]
        for job in claimed:
            assert job == await now_is(running, job)
            assert job.state is State.RUNNING
            assert job.scheduled_at is not None
            assert job.started_at is not None
            assert job.scheduled_at < job.started_at
        scheduled = [job.scheduled_at for job in claimed if job.scheduled_at is not None]
        assert scheduled == sorted(set(scheduled))  # the order picked can be read off


async def test_a_job_for_later_is_pending_until_it_is_due(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit(delay_sec=60, priority=3)
        assert job == await now_is(running, job)
        assert (job.state, job.delay_sec) == (State.PENDING, 60)
        assert job.due_at == job.run_at == job.submitted_at + timedelta(seconds=60)

        await running.tick(after=59.9)
        assert (await now_is(running, job)).state is State.PENDING
        await running.tick(after=0.2)

        queued = await now_is(running, job)
        assert (queued.state, queued.effective_priority) == (State.QUEUED, 3)
        assert (queued.due_at, queued.run_at) == (job.due_at, job.run_at)
        assert queued.queued_at is not None
        assert queued.queued_at >= job.due_at


async def test_a_time_is_taken_as_asked_and_one_in_the_past_as_now(database: Database) -> None:
    async with service(database) as running:
        noon = running.clock.now()

        past = await running.submit(name="past", delay_sec=None, run_at=noon - timedelta(days=1))
        later = await running.submit(name="later", delay_sec=None, run_at=noon + timedelta(hours=1))

        assert (past.state, past.delay_sec) == (State.QUEUED, None)
        assert past.due_at == past.run_at == past.submitted_at
        assert (later.state, later.run_at, later.due_at) == (State.PENDING, noon + timedelta(hours=1), later.run_at)
        await running.tick(after=3601)
        assert (await now_is(running, later)).state is State.QUEUED


# --- Failed, and tried again -------------------------------------------------------------------------------


async def test_a_failed_job_comes_back_after_its_backoff_until_no_attempt_is_left(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit(max_attempts=3, priority=2)
        waits = []
        for attempt in (1, 2):
            held = await running.claim_one(start=True)
            assert held.attempt == attempt
            pending = await running.fail(held, f"error {attempt}")
            assert pending == await now_is(running, job)
            assert (pending.state, pending.error) == (State.PENDING, f"error {attempt}")
            assert (pending.attempt, pending.due_at) == (attempt, job.due_at)
            waits.append((pending.run_at - running.clock.now()).total_seconds())
            assert await running.claim() == []
            await running.tick(after=waits[-1] + 0.1)
            again = await now_is(running, job)
            assert (again.state, again.error, again.effective_priority) == (State.QUEUED, f"error {attempt}", 2)

        held = await running.claim_one(start=True)
        failed = await running.fail(held, "error 3")

        assert failed == await now_is(running, job)
        assert (failed.state, failed.error, failed.attempt) == (State.FAILED, "error 3", 3)
        assert failed.completed_at is not None
        assert 2 <= waits[0] <= 2.2
        assert 4 <= waits[1] <= 4.4
        assert await outcomes_of(running, job) == [(n, Outcome.FAILED, f"error {n}") for n in (1, 2, 3)]
        ended = await attempts_of(running, job)
        assert len({attempt.token for attempt in ended}) == 3
        assert [attempt.queued_at < attempt.scheduled_at < attempt.ended_at for attempt in ended] == [True] * 3


async def test_a_failure_without_retry_is_final(database: Database) -> None:
    async with service(database) as running:
        for start in (False, True):
            await running.submit(max_attempts=5)
            held = await running.claim_one(start=start)

            failed = await running.fail(held, "for good", retry=False)

            assert failed == await now_is(running, failed)
            assert (failed.state, failed.error, failed.attempt) == (State.FAILED, "for good", 1)
            assert (failed.started_at is not None) == start
            assert await outcomes_of(running, failed) == [(1, Outcome.FAILED, "for good")]


async def test_a_failure_before_the_start_goes_straight_back_and_costs_its_charge(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit("other", priority=9)
        job = await running.submit(max_attempts=2, priority=0, cost=3)
        held = await running.claim_one()
        assert held.id == job.id
        used = core.order.lane("default", "acme")
        assert used is not None
        assert used.virtual_time > core.order.queue("default").clock  # so there would be something to give back

        queued = await running.fail(held, "no room")

        assert queued == await now_is(running, job)
        assert (queued.state, queued.error, queued.attempt) == (State.QUEUED, "no room", 1)
        assert queued.effective_priority == job.effective_priority
        assert queued.queued_at is not None
        assert held.scheduled_at is not None
        assert queued.queued_at > held.scheduled_at
        assert core.order.lane("default", "acme") == used
        again = await running.claim_one()
        assert again.id == job.id
        failed = await running.fail(again, "no room at all")
        assert (failed.state, failed.attempt) == (State.FAILED, 2)
        await now_is(running, failed)


async def test_a_completed_job_keeps_no_error(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        await running.fail(await running.claim_one(), "once")
        held = await running.claim_one(start=True)
        assert (await now_is(running, held)).error == "once"

        done = await running.complete(held)

        assert (done.error, done.result) == (None, None)
        assert await outcomes_of(running, done) == [(1, Outcome.FAILED, "once"), (2, Outcome.COMPLETED, None)]


# --- Released ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [False, True], ids=["scheduled", "running"])
async def test_a_released_job_is_queued_as_if_it_had_not_been_claimed(database: Database, start: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        core = running.core
        job = await running.submit(priority=1, max_attempts=1, cost=5)
        await running.submit("other", priority=9)
        for number in (1, 2, 3):
            held = await running.claim_one(start=start)
            assert (held.id, held.attempt) == (job.id, 1)
            await lease.heartbeat(core, job.id, token_of(held), progress=0.5)

            released = await running.release(held)

            assert released == await now_is(running, job)
            assert (released.state, released.attempt, released.error) == (State.QUEUED, 0, None)
            assert released.progress is None
            assert released.effective_priority == job.effective_priority
            assert len(await attempts_of(running, job)) == number
        # The charge is given back, as far as that makes no credit: the clock has moved.
        lane = core.order.lane("default", "acme")
        assert lane is not None
        assert lane.virtual_time == core.order.queue("default").clock
        held = await running.claim_one(start=True)
        await running.complete(held)
        assert await outcomes_of(running, job) == [
            (1, Outcome.RELEASED, None),
            (2, Outcome.RELEASED, None),
            (3, Outcome.RELEASED, None),
            (4, Outcome.COMPLETED, None),
        ]
        await now_is(running, job)


async def test_attempts_remember_the_weight_and_the_cost_they_were_dispatched_with(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "acme", TenantSettings(weight=2))
        job = await running.submit(cost=6)
        held = await running.claim_one()
        await tenancy.put_tenant(core, "acme", TenantSettings(weight=5))
        await running.release(held)
        again = await running.claim_one(start=True)
        await running.complete(again)

        assert [(a.weight, a.cost) for a in await attempts_of(running, job)] == [(2, 6), (5, 6)]
        assert (held.charge, again.charge) == (6 * SHARE // 2, 6 * SHARE // 5)


# --- Said twice, said too late -----------------------------------------------------------------------------


async def test_a_report_that_is_repeated_is_answered_with_the_job_as_it_is(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit(max_attempts=9)
        released = await running.claim_one()
        await running.release(released)
        failed = await running.claim_one(start=True)
        await running.fail(failed)
        await running.tick(after=3)
        completed = await running.claim_one(start=True)
        assert (await running.release(released)).state is State.RUNNING
        assert (await running.fail(failed)).state is State.RUNNING
        done = await running.complete(completed, "first")

        for report in (
            running.release(released),
            running.fail(failed, "another error", retry=False),
            running.complete(completed, "another result"),
            running.complete(failed),
            running.fail(completed),
        ):
            assert await report == done
        assert done == await now_is(running, job)
        assert len(await attempts_of(running, job)) == 3
        with pytest.raises(LeaseLost):  # but nobody may go on
            await lease.heartbeat(core, job.id, token_of(completed))
        with pytest.raises(LeaseLost):
            await lease.start(core, job.id, token_of(completed))


@pytest.mark.parametrize("how", ["lapsed", "timed out", "cancelled", "never given", "another job's"])
async def test_any_other_token_is_refused_and_changes_nothing(database: Database, how: str) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit(name="other", priority=1)
        job = await running.submit(name="it", priority=0, timeout_sec=20)
        held = await running.claim_one(start=True)
        token, state = token_of(held), State.RUNNING
        if how == "lapsed":
            running.clock.advance(19)
            await running.tick(after=12)
            state = State.PENDING
        elif how == "timed out":
            await running.tick(after=20)
            state = State.PENDING
        elif how == "cancelled":
            await running.cancel(job)
            state = State.CANCELLED
        elif how == "never given":
            token = "0" * 32
        else:
            token = token_of(await running.claim_one())
        before = await now_is(running, job)
        assert before.state is state
        history = await attempts_of(running, job)

        for report in (
            lease.start(core, job.id, token),
            lease.heartbeat(core, job.id, token, progress=1),
            finish.complete(core, job.id, token, "late"),
            finish.fail(core, job.id, token, "late"),
            finish.release(core, job.id, token),
        ):
            with pytest.raises(LeaseLost) as refused:
                await report
            assert refused.value.state == state
            assert str(refused.value) == f"the lease is lost: the job is {state}"

        assert await now_is(running, job) == before
        assert await attempts_of(running, job) == history


async def test_of_a_job_that_is_not_there_everybody_is_told_so(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        for request in (
            lease.start(core, NO_JOB, "token"),
            lease.heartbeat(core, NO_JOB, "token"),
            finish.complete(core, NO_JOB, "token"),
            finish.fail(core, NO_JOB, "token", "error"),
            finish.release(core, NO_JOB, "token"),
            cancel.cancel(core, NO_JOB),
            get_job(core, NO_JOB),
            list_attempts(core, NO_JOB),
        ):
            with pytest.raises(NotFound, match=r"^job not found$"):
                await request


async def test_a_job_that_was_not_started_cannot_be_completed(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one()

        with pytest.raises(Conflict, match="the job is scheduled") as refused:
            await running.complete(held)

        assert refused.value.state == "scheduled"
        assert not isinstance(refused.value, LeaseLost)
        assert (await now_is(running, held)).state is State.SCHEDULED


async def test_a_start_that_is_repeated_is_answered_alike(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one()

        first = await lease.start(running.core, held.id, token_of(held))
        running.clock.advance(5)
        second = await lease.start(running.core, held.id, token_of(held))

        assert first == second == await now_is(running, held)


# --- Cancelled ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PENDING, State.QUEUED, State.SCHEDULED, State.RUNNING])
async def test_a_job_can_be_cancelled_whatever_it_does(database: Database, state: State) -> None:
    async with service(database) as running:
        job = await running.submit(delay_sec=60 if state is State.PENDING else 0)
        if state.is_leased:
            job = await running.claim_one(start=state is State.RUNNING)
        assert job.state is state

        gone = await running.cancel(job)

        assert gone == await now_is(running, job)
        assert gone.state is State.CANCELLED
        assert (gone.error, gone.result, gone.queued_at) == (None, None, job.queued_at)
        assert (gone.scheduled_at, gone.started_at, gone.worker) == (job.scheduled_at, job.started_at, job.worker)
        assert gone.charge == job.charge
        wanted = [(1, Outcome.CANCELLED, None)] if state.is_leased else []
        assert await outcomes_of(running, job) == wanted
        assert await running.cancel(job) == gone
        await running.tick(after=100)
        assert await now_is(running, job) == gone
        assert await running.claim() == []


async def test_a_job_that_failed_once_and_is_cancelled_keeps_its_error(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        pending = await running.fail(await running.claim_one(start=True), "it broke")

        gone = await running.cancel(pending)

        assert gone == await now_is(running, pending)
        assert (gone.error, gone.attempt) == ("it broke", 1)


async def test_what_is_completed_or_failed_cannot_be_cancelled(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        await running.submit()
        done = await running.complete(await running.claim_one(start=True))
        failed = await running.fail(await running.claim_one(), retry=False)

        for job in (done, failed):
            with pytest.raises(Conflict, match=f"the job is {job.state}") as refused:
                await running.cancel(job)
            assert refused.value.state == job.state
            assert await now_is(running, job) == job


# --- Beats, lapses, timeouts -------------------------------------------------------------------------------


async def test_a_beat_prolongs_the_lease_and_tells_the_progress(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one(start=True, lease_sec=10)
        token = token_of(held)
        for seconds, asked, progress, known in (
            (9, None, 0.25, 0.25),
            (9, None, None, 0.25),
            (9, 60, 1, 1),
            (59, 1, 0, 0),
        ):
            await running.tick(after=seconds)
            expires_at = await lease.heartbeat(core, held.id, token, asked, progress)
            renewed = await now_is(running, held)
            assert (renewed.state, renewed.lease_expires_at) == (State.RUNNING, expires_at)
            assert abs((expires_at - running.clock.now()).total_seconds() - (asked or 10)) < 0.001
            assert renewed.progress == known

        await running.tick(after=1)  # the last beat asked for no more

        assert (await now_is(running, held)).state is State.PENDING


async def test_a_lease_that_nobody_renews_before_the_start_is_refunded(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit("other", priority=9)
        job = await running.submit(cost=3, max_attempts=2)
        held = await running.claim_one()
        assert held.id == job.id
        charged = core.order.lane("default", "acme")
        assert charged is not None
        await running.tick(after=29.9)
        assert (await now_is(running, job)).state is State.SCHEDULED

        await running.tick(after=0.1)

        queued = await now_is(running, job)
        assert (queued.state, queued.error, queued.attempt) == (State.QUEUED, "lease expired", 1)
        assert queued.effective_priority == job.effective_priority
        lane, clock = core.order.lane("default", "acme"), core.order.queue("default").clock
        assert lane is not None
        assert lane.virtual_time == max(charged.virtual_time - 3 * SHARE, clock) < charged.virtual_time
        again = await running.claim_one()
        assert (again.id, again.attempt) == (job.id, 2)
        await running.tick(after=30)
        failed = await now_is(running, job)
        assert (failed.state, failed.error) == (State.FAILED, "lease expired")
        assert await outcomes_of(running, job) == [(n, Outcome.LAPSED, "lease expired") for n in (1, 2)]


async def test_a_lease_that_nobody_renews_after_the_start_is_not_refunded(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit("other", priority=9)
        job = await running.submit(cost=3, max_attempts=2)
        held = await running.claim_one(start=True)
        charged = core.order.lane("default", "acme")

        await running.tick(after=30)

        pending = await now_is(running, job)
        assert (pending.state, pending.error, pending.attempt) == (State.PENDING, "lease expired", 1)
        assert 2 <= (pending.run_at - running.clock.now()).total_seconds() <= 2.2
        assert core.order.lane("default", "acme") == charged
        await running.tick(after=2.2)
        assert (await running.claim_one(start=True)).id == held.id
        await running.tick(after=30)
        assert (await now_is(running, job)).state is State.FAILED


async def test_a_job_times_out_so_long_after_its_start_however_it_beats(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit(timeout_sec=40, max_attempts=2)
        held = await running.claim_one()
        running.clock.advance(25)
        await lease.start(core, job.id, token_of(held))  # which is when its time begins
        for _ in range(3):
            await lease.heartbeat(core, job.id, token_of(held))
            await running.tick(after=13)
        assert (await now_is(running, job)).state is State.RUNNING

        await running.tick(after=1)

        pending = await now_is(running, job)
        assert (pending.state, pending.error) == (State.PENDING, "timed out")
        await running.tick(after=3)
        await running.claim_one(start=True, lease_sec=3600)
        await running.tick(after=39)
        assert (await now_is(running, job)).state is State.RUNNING
        await running.tick(after=1)
        failed = await now_is(running, job)
        assert (failed.state, failed.error) == (State.FAILED, "timed out")
        assert await outcomes_of(running, job) == [(n, Outcome.TIMED_OUT, "timed out") for n in (1, 2)]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_wall_clock_that_jumps_lapses_nothing_and_gives_out_no_earlier_time(
    database: Database, hours: int
) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit(timeout_sec=50)
        held = await running.claim_one(start=True)

        running.clock.jump(hours * 3600)
        await running.tick()

        assert (await now_is(running, job)).state is State.RUNNING
        await running.tick(after=29)
        before = core.clock.now()
        expires_at = await lease.heartbeat(core, job.id, token_of(held))
        assert expires_at > before
        await running.tick(after=20)
        other = await running.submit()
        assert other.submitted_at > before > job.submitted_at
        assert (await now_is(running, job)).state is State.RUNNING
        await running.tick(after=1)  # 50 s of the other clock
        assert (await now_is(running, job)).error == "timed out"
        times = await database.fetch("SELECT submitted_at FROM jobs ORDER BY seq")
        assert times == sorted(times)
