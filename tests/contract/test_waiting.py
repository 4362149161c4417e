"""`wait_sec`: a job that is submitted while claims wait reaches one of them by its own commit, in order of waiting,
never two; a client that hung up is skipped and its job stays queued."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args
from urllib.parse import urlsplit

import msgspec
import pytest

from app.errors import Unavailable
from app.events import LoopFailed
from app.flow import dispatch, tenancy
from app.flow.bulk import Report, finish_many
from app.flow.cancel import CancelFilter, cancel_many
from app.flow.core import Core, Phase
from app.flow.dispatch import ClaimRequest
from app.flow.lease import heartbeat
from app.flow.look import get_job, list_attempts
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.flow.waiting import Waiting
from app.scheduling.job import Job, Outcome, State
from app.scheduling.policies import SHARE
from app.store import writer
from tests.databases import Database
from tests.flow.harness import (
    PATIENCE_SEC,
    Backlog,
    Moment,
    Running,
    answers_of,
    busy,
    by_hand,
    commits_of,
    failing,
    gate,
    hang_up,
    in_one_group,
    service,
    token_of,
    until,
    until_idle,
)
from tests.flow.views import assert_memory_equals_sql
from tests.served import Served, serving

LONG: Final = 30
"""Seconds that nobody here waits in fact."""

Claiming = asyncio.Task[list[Job]]


def in_line(core: Core) -> list[Waiting]:
    """The claims that wait, the first first."""
    lines = core.waiting._by_queue.values()
    return sorted({id(w): w for line in lines for w in line.values()}.values(), key=lambda w: w.arrival)


async def wait_in_line(
    running: Running, *queues: str, limit: int = 1, wait_sec: int = LONG, start: bool = False, lease_sec: int = 30
) -> Claiming:
    """A claim that has come in, behind all others."""
    request = ClaimRequest(
        worker="w", queues=queues or ("default",), limit=limit, wait_sec=wait_sec, start=start, lease_sec=lease_sec
    )
    before = len(in_line(running.core))
    claiming = asyncio.create_task(dispatch.claim(running.core, request))
    await until(lambda: len(in_line(running.core)) != before)
    return claiming


async def got(claiming: Claiming) -> list[str]:
    """The test suites of what it was given."""
    async with asyncio.timeout(PATIENCE_SEC):
        return [job.test_suite for job in await claiming]


async def is_about_to_be_served(wanted: ClaimRequest, core: Core) -> None:
    """Jobs are being leased to this claim, or it has been answered."""
    await asyncio.sleep(0)
    await until(lambda: not any(w.request is wanted and w.proposed_in is None for w in in_line(core)))


async def all_hang_up(claims: Sequence[Claiming]) -> None:
    for claiming in claims:
        await hang_up(claiming)


# --- Who gets what -----------------------------------------------------------------------------------------


async def test_jobs_that_come_one_by_one_reach_claims_in_the_order_of_waiting(database: Database) -> None:
    async with service(database) as running:
        claims = [await wait_in_line(running) for _ in range(5)]
        for n in range(5):
            await running.submit(name=f"job {n}")
            assert await got(claims[n]) == [f"job {n}"]
            assert not any(claiming.done() for claiming in claims[n + 1 :])
        assert in_line(running.core) == []


async def test_a_batch_serves_as_many_as_it_can_in_one_commit(database: Database) -> None:
    async with service(database) as running:
        claims = [await wait_in_line(running, start=n % 2 == 0) for n in range(12)]
        requests = [JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(10)]
        with commits_of(running.core) as commits:
            await running.submit_all(requests)
            answers = [await got(claiming) for claiming in claims[:10]]
        assert answers == [[f"job {n}"] for n in range(10)]
        assert len(commits) <= 2
        assert [claiming.result()[0].state for claiming in claims[:2]] == [State.RUNNING, State.SCHEDULED]
        assert not claims[10].done()
        await all_hang_up(claims[10:])
        await assert_memory_equals_sql(running.core)


@dataclass(frozen=True)
class Wish:
    """What a claim wants, in the oracle's words."""

    queues: tuple[str, ...]
    limit: int


def shared_out(line: list[Wish], waiting: dict[str, list[str]]) -> list[list[str]]:
    """The oracle: the first in line that can get anything takes all it can, then the next. What is taken leaves
    `waiting`; an empty answer has to go on waiting."""
    answers = []
    for wish in line:
        answer: list[str] = []
        for queue in wish.queues:
            taken = wish.limit - len(answer)
            answer += waiting[queue][:taken]
            del waiting[queue][:taken]
        answers.append(answer)
    return answers


async def test_whatever_they_want_the_first_that_can_get_a_job_gets_it(database: Database) -> None:
    chance, queues = random.Random(7), ("a", "b", "c")
    async with service(database) as running:
        line: list[tuple[Wish, Claiming]] = []
        for round_ in range(40):
            waiting: dict[str, list[str]] = {queue: [] for queue in queues}
            for _ in range(chance.randint(1, 4)):
                wish = Wish(tuple(chance.sample(queues, chance.randint(1, 3))), chance.randint(1, 2))
                line.append((wish, await wait_in_line(running, *wish.queues, limit=wish.limit)))
            batch = [(f"{round_} {n}", chance.choice(queues)) for n in range(chance.randint(1, 5))]
            for name, queue in batch:
                waiting[queue].append(name)
            expected = shared_out([wish for wish, _ in line], waiting)
            await running.submit_all(JobRequest(tenant="acme", test_suite=name, queue=queue) for name, queue in batch)
            for (_, claiming), names in zip(line, expected, strict=True):
                if names:
                    assert await got(claiming) == names
            line = [each for each, names in zip(line, expected, strict=True) if not names]
            assert not any(claiming.done() for _, claiming in line)
            left = [job.test_suite for job in await running.claim(9, *queues)]
            assert left == [name for queue in queues for name in waiting[queue]]
        await all_hang_up([claiming for _, claiming in line])
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "each by itself"])
async def test_200_claims_share_200_jobs(database: Database, at_once: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        claims = [await wait_in_line(running, lease_sec=300) for _ in range(200)]
        requests = [JobRequest(tenant=f"t{n % 7}", test_suite=f"job {n}") for n in range(200)]
        if at_once:
            await running.submit_all(requests)
        else:
            await asyncio.gather(*(running.submit_all([request]) for request in requests))
        answers = [await got(claiming) for claiming in claims]
        assert Counter(name for names in answers for name in names) == Counter(r.test_suite for r in requests)
        assert {len(names) for names in answers} == {1}
        if at_once:  # who came first was served first
            leased = [claiming.result()[0] for claiming in claims]
            times = [job.scheduled_at for job in leased if job.scheduled_at]
            assert times == sorted(times)
        assert running.core.writer.commits < 100
        await assert_memory_equals_sql(running.core)


async def test_a_claim_that_does_not_wait_never_jumps_ahead_of_one_that_does(database: Database) -> None:
    """Where the job is in memory and the one that waits is not served yet: behind a group with a bad write in it."""
    async with service(database) as running:
        core = running.core
        waits = await wait_in_line(running)
        with gate(core, "commit") as stopped:
            bad = asyncio.create_task(core.write(_raise))
            submitting = asyncio.create_task(running.submit(name="it"))
            await stopped.reached()
            assert core.order.can_pick("default")
            asks = asyncio.create_task(running.claim())
            await asyncio.sleep(0)
            stopped.open()
            await answers_of([bad, submitting])
        assert await got(waits) == ["it"]
        assert await got(asks) == []
        await assert_memory_equals_sql(core)


async def _raise(_tx: object) -> None:
    raise ZeroDivisionError


async def test_claims_of_one_group_are_served_in_the_order_in_which_they_came(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(3))
        claims = [running.claim() for _ in range(5)]
        answers = await in_one_group(running.core, *claims)
        assert [[job.test_suite for job in answer] for answer in answers] == [["job 0"], ["job 1"], ["job 2"], [], []]


# --- What wakes them ---------------------------------------------------------------------------------------

Cause = Callable[[Running, Job], Awaitable[object]]


async def _promotion(running: Running, _held: Job) -> None:
    await running.submit("due", delay_sec=5)
    await running.tick(after=6)


async def _lapse(running: Running, _held: Job) -> None:
    await running.tick(after=31)


async def _time_out(running: Running, held: Job) -> None:
    for _ in range(3):
        running.clock.advance(20)
        await heartbeat(running.core, held.id, token_of(held))
    await running.tick(after=1)


CAUSES: Final[dict[str, Cause]] = {
    "submit": lambda running, _: running.submit("new"),
    "promotion": _promotion,
    "the tenant goes on": lambda running, _: tenancy.patch_tenant(running.core, "paused", {"paused": False}),
    "the queue goes on": lambda running, _: tenancy.put_queue(running.core, "shut", paused=False),
    "a raised cap": lambda running, _: tenancy.patch_tenant(running.core, "capped", {"max_running": 2}),
    "no cap": lambda running, _: tenancy.patch_tenant(running.core, "capped", {"max_running": None}),
    "completed": lambda running, held: running.complete(held),
    "failed": lambda running, held: running.fail(held),
    "failed for good": lambda running, held: running.fail(held, retry=False),
    "released": lambda running, held: running.release(held),
    "reported in bulk": lambda running, held: finish_many(running.core, [Report(id=held.id, token=token_of(held))]),
    "cancelled": lambda running, held: running.cancel(held),
    "cancelled with others": lambda running, _: cancel_many(
        running.core, CancelFilter(tenant="capped", state=State.RUNNING)
    ),
    "lapsed": _lapse,
    "timed out": _time_out,
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
async def test_whatever_lets_a_job_go_wakes_who_waits_for_it(database: Database, cause: Cause) -> None:
    async with service(database) as running:
        core = running.core
        await in_one_group(
            core,
            tenancy.put_tenant(core, "capped", TenantSettings(max_running=1)),
            tenancy.put_tenant(core, "paused", TenantSettings(paused=True)),
            tenancy.put_queue(core, "shut", paused=True),
        )
        for tenant, queue in (("capped", "default"), ("capped", "default"), ("paused", "default"), ("free", "shut")):
            await running.submit(tenant, queue=queue, timeout_sec=60)
        held = await running.claim_one(start=True)
        assert await running.claim(9, "default", "shut") == []
        claiming = await wait_in_line(running, "default", "shut")
        await until_idle(core)
        assert not claiming.done()

        await cause(running, held)

        assert len(await got(claiming)) == 1
        await assert_memory_equals_sql(core)


async def test_what_is_typed_by_hand_wakes_who_waits_at_the_next_tick(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(paused=True))
        await running.submit(name="typed free")
        claims = [await wait_in_line(running), await wait_in_line(running)]
        await by_hand(
            database,
            f"UPDATE tenants SET paused = {'0' if database.kind == 'sqlite' else 'false'}",
            "INSERT INTO jobs (tenant, test_suite, run_at) SELECT tenant, 'typed in', submitted_at FROM jobs",
        )
        await running.tick()
        assert sorted([await got(claims[0]), await got(claims[1])]) == [["typed free"], ["typed in"]]


async def test_a_job_reaches_who_waits_without_a_tick(database: Database) -> None:
    """Ticks stand still: nothing but the submit's own commit can have brought it."""
    async with service(database) as running:
        for n in range(40):
            claiming = await wait_in_line(running, start=True)
            await running.submit(name=f"job {n}")
            assert await got(claiming) == [f"job {n}"]


# --- Nothing is done in vain -------------------------------------------------------------------------------


async def test_claims_for_what_cannot_be_had_cost_no_commit(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_queue(core, "shut", paused=True)
        await tenancy.put_tenant(core, "paused", TenantSettings(paused=True))
        await tenancy.put_tenant(core, "capped", TenantSettings(max_running=1))
        for tenant, queue in (("free", "shut"), ("paused", "default"), ("capped", "default"), ("capped", "default")):
            await running.submit(tenant, queue=queue)
        await running.claim_one()
        claims = [await wait_in_line(running, *queues) for queues in (("default",), ("shut", "default"), ("none",))]
        await until_idle(core)

        before = core.writer.commits
        for n in range(10):
            await running.submit("paused", f"paused {n}")
        for _ in range(200):
            await asyncio.sleep(0)
        await core.spawned_work()
        assert core.writer.commits == before + 10  # one for each submit, none for those that wait
        for _ in range(10):
            await running.tick()
        assert core.writer.commits == before + 10
        assert not any(claiming.done() for claiming in claims)
        await all_hang_up(claims)


async def test_a_job_that_the_database_refuses_to_lease_does_not_keep_the_service_busy(sqlite: Database) -> None:
    async with service(sqlite) as running:
        core = running.core
        await by_hand(
            sqlite,
            "CREATE TRIGGER not_this_one BEFORE UPDATE OF state ON jobs WHEN NEW.test_suite = 'poison'"
            " AND NEW.state = 'scheduled' BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        claiming = await wait_in_line(running)
        before = core.writer.commits
        job = await running.submit(name="poison")
        for _ in range(100):  # a loop that feeds itself would turn as often as this one
            await get_job(core, job.id)
        assert core.writer.commits <= before + 3
        assert len(running.heard.all(LoopFailed)) <= 2
        await hang_up(claiming)


# --- Who hangs up ------------------------------------------------------------------------------------------

UNDER_WAY: Final = get_args(Moment)


async def assert_given_back(running: Running, job: Job, times: int = 1) -> None:
    """It waits again as if it had not been claimed, which it was so many times, and is the next to go."""
    core = running.core
    await until_idle(core)
    found = await get_job(core, job.id)
    assert (found.state, found.attempt, found.effective_priority) == (State.QUEUED, 0, job.effective_priority)
    assert (found.worker, found.token, found.charge) == (None, None, None)
    assert [attempt.outcome for attempt in await list_attempts(core, job.id)] == [Outcome.RELEASED] * times
    assert core.order.running(job.tenant) == 0
    await assert_memory_equals_sql(core)
    assert (await running.claim_one()).id == job.id


@pytest.mark.parametrize("start", [False, True], ids=["scheduled", "running"])
@pytest.mark.parametrize("moment", UNDER_WAY)
async def test_who_hangs_up_while_a_submit_serves_it_loses_nothing(
    database: Database,
    moment: Moment,
    start: bool,  # noqa: FBT001
) -> None:
    async with service(database) as running:
        claiming = await wait_in_line(running, start=start)
        with gate(running.core, moment, statement="UPDATE jobs") as stopped:
            submitting = asyncio.create_task(running.submit(priority=4, max_attempts=1))
            await stopped.reached()
            await hang_up(claiming)
            stopped.open()
            job = await submitting
        await assert_given_back(running, job, times=moment != "begin")


@pytest.mark.parametrize("moment", UNDER_WAY)
async def test_who_hangs_up_while_its_own_claim_is_written_loses_nothing(database: Database, moment: Moment) -> None:
    async with service(database) as running:
        job = await running.submit(priority=4, max_attempts=1)
        with gate(running.core, moment, statement="UPDATE jobs") as stopped:
            claiming = await wait_in_line(running)
            await stopped.reached()
            await hang_up(claiming)
            stopped.open()
            await until_idle(running.core)
        await assert_given_back(running, job, times=moment != "begin")


async def test_who_hangs_up_before_its_claim_is_written_is_not_served(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit()
        async with busy(running.core) as backlog:
            claiming = await wait_in_line(running)
            await backlog.grows_to(1)
            await hang_up(claiming)
        await assert_given_back(running, job, times=0)


@pytest.mark.parametrize("served_by", ["a submit", "its own claim"])
async def test_who_hangs_up_with_its_answer_on_the_way_loses_nothing(database: Database, served_by: str) -> None:
    """After the commit, when the answer is there and the claim has not been given the loop yet."""
    async with service(database) as running:
        core = running.core
        if served_by == "its own claim":
            job = await running.submit(priority=4, max_attempts=1)
        with gate(core, "commit") as stopped:
            claiming = await wait_in_line(running)
            if served_by == "a submit":
                submitting = asyncio.create_task(running.submit(priority=4, max_attempts=1))
            await stopped.reached()
            [waiting] = in_line(core)
            waiting.answer.add_done_callback(lambda _: claiming.cancel())
            stopped.open()
            if served_by == "a submit":
                job = await submitting
            [ended] = await answers_of([claiming])
        assert isinstance(ended, asyncio.CancelledError)
        await assert_given_back(running, job)


async def test_what_is_given_back_goes_to_the_next_in_line_at_once(database: Database) -> None:
    async with service(database) as running:
        first, second = await wait_in_line(running), await wait_in_line(running)
        with gate(running.core, "commit") as stopped:
            submitting = asyncio.create_task(running.submit(name="it"))
            await stopped.reached()
            await hang_up(first)
            stopped.open()
            await submitting
        assert await got(second) == ["it"]
        [job] = second.result()
        assert job.attempt == 1  # the first never counted
        await assert_memory_equals_sql(running.core)


async def test_who_hangs_up_is_given_back_its_charge(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit_all(JobRequest(tenant=t, test_suite=t, cost=5) for t in ("acme", "acme", "other", "other"))
        seen = []

        def leave(_: object) -> None:
            seen.append((core.order.lane("default", "acme"), core.order.queue("default").clock))
            claiming.cancel()

        async with busy(core):
            claiming = await wait_in_line(running)
            [waiting] = in_line(core)
            waiting.answer.add_done_callback(leave)
        await answers_of([claiming])
        [(charged, clock)] = seen
        assert charged is not None
        assert charged.virtual_time == 5 * SHARE
        await until_idle(core)
        lane = core.order.lane("default", "acme")
        assert lane is not None
        assert lane.virtual_time == clock < charged.virtual_time  # what is given back costs nothing
        await assert_memory_equals_sql(core)


async def test_many_jobs_that_nobody_took_are_given_back_in_few_commits(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        jobs = await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(100))
        with gate(core, "commit") as stopped:
            claiming = await wait_in_line(running, limit=100)
            await stopped.reached()
            await hang_up(claiming)
            before = core.writer.commits
            stopped.open()
            await until_idle(core)
        assert core.writer.commits <= before + 5
        assert [job.id for job in await running.claim(100)] == [job.id for job in jobs]


async def test_in_a_storm_of_hang_ups_every_job_is_done_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ANSWER_SEC", PATIENCE_SEC)  # a disk may be busy, and a worker here asks once
    chance, count = random.Random(11), 120
    async with service(database) as running:
        core, done = running.core, Counter[str]()

        async def work() -> None:
            while True:
                wanted = ClaimRequest(worker="w", limit=chance.randint(1, 3), wait_sec=LONG, start=True)
                claiming = asyncio.create_task(dispatch.claim(core, wanted))
                if chance.random() < 0.5:
                    await is_about_to_be_served(wanted, core)
                    for _ in range(chance.randrange(60)):
                        await asyncio.sleep(0)
                    claiming.cancel()
                for answer in await answers_of([claiming]):
                    for job in answer if isinstance(answer, list) else ():
                        await running.complete(job)
                        done[job.id] += 1

        workers = [asyncio.create_task(work()) for _ in range(20)]
        jobs = [await running.submit(name=f"job {n}", max_attempts=1) for n in range(count)]
        async with asyncio.timeout(2 * PATIENCE_SEC):
            while len(done) < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        for worker in workers:
            worker.cancel()
        await answers_of(workers)
        await until_idle(core)
        assert done == Counter(job.id for job in jobs)
        outcomes = Counter(dict(await database.fetch("SELECT outcome, count(*) FROM job_attempts GROUP BY outcome")))
        assert outcomes["completed"] == count
        assert outcomes.keys() <= {"completed", "released"}  # the latter of those who hung up too late to be left out
        await assert_memory_equals_sql(core)


# --- Time runs out, or the database ------------------------------------------------------------------------


async def _set_free(running: Running) -> None:
    await tenancy.patch_tenant(running.core, "acme", {"paused": False})


async def _held_back(running: Running) -> Job:
    """A job that a claim can get only once its tenant goes on."""
    await tenancy.put_tenant(running.core, "acme", TenantSettings(paused=True))
    return await running.submit()


async def test_a_long_line_is_served_in_several_commits_and_in_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "LEASED_AT_ONCE", 4)
    async with service(database) as running:
        core, leased = running.core, list[int]()
        await tenancy.put_tenant(core, "acme", TenantSettings(paused=True))
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"{n}") for n in range(20))
        claims = [await wait_in_line(running, limit=3) for _ in range(5)]
        core.moves.listen(lambda moves: leased.append(sum(moved.new is State.SCHEDULED for moved in moves)))

        await _set_free(running)

        names = [[f"{n}" for n in range(3 * first, 3 * first + 3)] for first in range(5)]
        assert [await got(claiming) for claiming in claims] == names
        assert leased == [6, 6, 3]
        await assert_memory_equals_sql(core)


async def test_who_asks_at_once_behind_a_long_line_gets_its_jobs_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "LEASED_AT_ONCE", 4)
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"{n}") for n in range(20))
        async with busy(running.core) as backlog:
            claims = [asyncio.create_task(running.claim(3)) for _ in range(7)]
            await backlog.grows_to(7)
        answers = await answers_of(claims)
        names = [[f"{n}" for n in range(3 * first, min(20, 3 * first + 3))] for first in range(7)]
        assert [[job.test_suite for job in answer] for answer in answers] == names
        await assert_memory_equals_sql(running.core)


async def test_time_that_runs_out_while_a_lease_is_written_does_not_lose_the_job(database: Database) -> None:
    async with service(database) as running:
        job = await _held_back(running)
        claiming = await wait_in_line(running, wait_sec=1)
        with gate(running.core, "commit") as stopped:
            freeing = asyncio.create_task(_set_free(running))
            await stopped.reached()
            await Backlog(running.core).grows_to(1)  # it waits no longer for a job, but for what is being written
            stopped.open()
            await freeing
        [leased] = await claiming
        assert (leased.id, leased.attempt) == (job.id, 1)
        await assert_memory_equals_sql(running.core)


async def test_time_that_runs_out_while_a_lease_is_written_in_vain_ends_the_wait(database: Database) -> None:
    async with service(database) as running:
        job = await _held_back(running)
        claiming = await wait_in_line(running, wait_sec=1)
        with gate(running.core, "commit") as stopped, failing(running.core, "commit"):
            freeing = asyncio.create_task(_set_free(running))
            await stopped.reached()
            await Backlog(running.core).grows_to(1)
            stopped.open()
            [refused] = await answers_of([freeing])
        assert isinstance(refused, Unavailable)
        assert await got(claiming) == []
        await _set_free(running)
        await assert_given_back(running, job, times=0)


async def test_time_that_runs_out_just_before_a_job_comes_leaves_it_queued(database: Database) -> None:
    async with service(database) as running:
        claiming = await wait_in_line(running, wait_sec=1)
        assert await got(claiming) == []
        job = await running.submit()
        await assert_given_back(running, job, times=0)


@pytest.mark.parametrize("moment", UNDER_WAY)
async def test_what_fails_leaves_claims_waiting_and_the_next_commit_serves_them(
    database: Database, moment: Moment
) -> None:
    async with service(database) as running:
        core = running.core
        job = await _held_back(running)
        claims = [await wait_in_line(running) for _ in range(2)]
        with failing(core, moment, statement="UPDATE jobs"), pytest.raises(Unavailable):
            await _set_free(running)
        await core.spawned_work()
        assert not any(claiming.done() for claiming in claims)
        await _set_free(running)
        await running.submit(name="later", priority=9)
        if moment == "after commit":  # nobody heard who had been given the first, so it waits for its lease to end
            assert await got(claims[0]) == ["later"]
            await running.tick(after=31)
            assert [attempt.outcome for attempt in await list_attempts(core, job.id)] == [Outcome.LAPSED]
            assert await got(claims[1]) == [job.test_suite]
        else:
            assert [await got(claiming) for claiming in claims] == [[job.test_suite], ["later"]]
        await assert_memory_equals_sql(core)


# --- The service drains ------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [None, *UNDER_WAY])
async def test_a_drain_sends_who_waits_home_at_once(database: Database, moment: Moment | None) -> None:
    """Also if the service has once tried in vain to give them jobs."""
    async with service(database) as running:
        core = running.core
        await _held_back(running)
        claims = [await wait_in_line(running) for _ in range(3)]
        if moment:
            with failing(core, moment, statement="UPDATE jobs"), pytest.raises(Unavailable):
                await _set_free(running)
        core.phase = Phase.DRAINING
        dispatch.end_waiting(core)
        assert [await got(claiming) for claiming in claims] == [[], [], []]


async def test_a_drain_gives_nothing_to_whose_claim_is_not_written_yet(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        job = await running.submit()
        async with busy(core) as backlog:
            claiming = await wait_in_line(running)
            await backlog.grows_to(1)
            core.phase = Phase.DRAINING
            dispatch.end_waiting(core)
        assert await got(claiming) == []
        await until_idle(core)
        assert (await get_job(core, job.id)).state is State.QUEUED
        assert await list_attempts(core, job.id) == []
        await assert_memory_equals_sql(core)


# --- Over TCP ----------------------------------------------------------------------------------------------


@dataclass
class Caller:
    """A worker on a connection of its own, who may hang up at any time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @staticmethod
    async def claims(served: Served, **wanted: Any) -> Caller:
        """One who has sent a claim and waits for the answer."""
        where = urlsplit(served.url)
        caller = Caller(*await asyncio.open_connection(where.hostname, where.port))
        body = msgspec.json.encode({"worker": "caller", "wait_sec": LONG} | wanted)
        head = "POST /jobs/claim HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: "
        caller.writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        await caller.writer.drain()
        async with served.client() as client:  # a whole request behind it, so that it has arrived
            await client.get("/health/live")
        return caller

    async def answer(self) -> list[str]:
        """The test suites it is given."""
        async with asyncio.timeout(PATIENCE_SEC):
            head = await self.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await self.reader.readexactly(int(length.partition(b":")[2]))
        self.hang_up()
        return [job["test_suite"] for job in msgspec.json.decode(body)["jobs"]]

    def hang_up(self) -> None:
        self.writer.close()


async def submit_to(served: Served, name: str) -> None:
    async with served.client() as client:
        # On a slow machine several callers in a row may hang up on the same job.
        answer = await client.post("/jobs", json={"tenant": "acme", "test_suite": name, "max_attempts": 100})
        assert answer.status_code == 201


async def test_who_closes_its_connection_is_skipped(database: Database) -> None:
    async with serving(database.url) as served:
        first, second = await Caller.claims(served), await Caller.claims(served)
        first.hang_up()
        gone = await served.logged("request_served", lambda event: event["path"] == "/jobs/claim")
        assert gone["status"] == 499
        await submit_to(served, "it")
        assert await second.answer() == ["it"]
        third = await Caller.claims(served)
        assert await database.value("SELECT count(*) FROM job_attempts") == 0
        served.signal(signal.SIGTERM)
        assert await third.answer() == []
        assert await served.exited() == 0


async def test_whoever_closes_a_connection_whenever_no_job_is_lost(database: Database) -> None:
    """The server cannot know of a connection that closes as it answers; the lease lapses then, and that is all."""
    chance = random.Random(3)
    async with serving(database.url) as served, served.client() as client:
        for n in range(15):
            caller = await Caller.claims(served, lease_sec=1)
            submitting = asyncio.create_task(submit_to(served, f"job {n}"))
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            caller.hang_up()
            await submitting
        done: list[str] = []
        while len(done) < 15:
            answer = await client.post("/jobs/claim", json={"worker": "w", "limit": 15, "wait_sec": 20, "start": True})
            assert answer.json()["jobs"], f"nothing came after {done}"
            for job in answer.json()["jobs"]:
                report = await client.post(f"/jobs/{job['id']}/complete", json={"token": job["lease"]["token"]})
                assert report.status_code == 200
                done.append(job["test_suite"])
    assert sorted(done) == sorted(f"job {n}" for n in range(15))
    assert await database.value("SELECT count(*) FROM jobs WHERE state = 'completed'") == 15
