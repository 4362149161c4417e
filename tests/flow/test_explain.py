"""Why a job waits, on both databases: the answer is held against what comes out when the queue is run on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import NotFound
from app.flow import dispatch, tenancy
from app.flow.core import Core
from app.flow.reprioritize import reprioritize
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.flow.watch.explain import MOST_AHEAD, QUIET_SEC, Change, Code, Explanation, Kind, explain
from app.flow.watch.pace import FEWEST
from app.scheduling.job import Job, State
from app.store import jobs
from tests.databases import Database
from tests.flow.harness import (
    Backlog,
    FakeClock,
    Mortal,
    Running,
    by_hand,
    gate,
    in_one_group,
    requeue_sql,
    service,
    until,
)
from tests.scheduling.workload import thorough

TENANTS = ("ada", "bob", "cyd")


def codes(explanation: Explanation) -> list[Code]:
    return [reason.code for reason in explanation.reasons]


def said(explanation: Explanation) -> str:
    return " ".join(reason.text for reason in explanation.reasons)


async def explained(running: Running, job: Job) -> Explanation:
    return await explain(running.core, job.id)


async def comes_out_before(running: Running, job: Job) -> Counter[str]:
    """Claim until the job comes out: by tenant, what came before it."""
    before: Counter[str] = Counter()
    while (claimed := await running.claim_one(job.queue)).id != job.id:
        before[claimed.tenant] += 1
    return before


# -- random scenes


@dataclass(frozen=True)
class Scene:
    """What has happened in a queue of its own, before somebody asks about one of its jobs."""

    submits: list[tuple[str, int, int]]
    weights: dict[str, int]
    claims: int
    ended: list[tuple[int, str]]
    late: list[tuple[str, int, int]]
    new_priorities: list[tuple[int, int]]
    at_cap: str | None
    paused: str | None
    is_queue_paused: bool
    asked: int
    is_restarted: bool


_jobs = st.tuples(st.sampled_from(TENANTS), st.integers(0, 10), st.sampled_from((1, 1, 2, 5)))
scenes = st.builds(
    Scene,
    submits=st.lists(_jobs, min_size=6, max_size=14),
    weights=st.fixed_dictionaries({name: st.sampled_from((1, 2, 7)) for name in TENANTS}),
    claims=st.integers(0, 5),
    ended=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(("complete", "release", "fail"))), max_size=3),
    late=st.lists(_jobs, max_size=6),
    new_priorities=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), max_size=2),
    at_cap=st.sampled_from((None, None, *TENANTS)),
    paused=st.sampled_from((None, None, *TENANTS)),
    is_queue_paused=st.sampled_from((False, False, False, True)),
    asked=st.integers(0, 20),
    is_restarted=st.booleans(),
)


class Stage:
    """A scene played on a service, with names that no other scene has."""

    def __init__(self, mortal: Mortal, scene: Scene, number: int) -> None:
        self.mortal = mortal
        self.scene = scene
        self.queue = f"q{number}"
        self.names = {name: f"{name}{number}" for name in TENANTS}
        self.settings = {name: TenantSettings(weight=weight) for name, weight in scene.weights.items()}

    @property
    def running(self) -> Running:
        return self.mortal.running

    @property
    def core(self) -> Core:
        return self.running.core

    async def set_up(self) -> list[Job]:
        """The jobs that wait in the end."""
        scene = self.scene
        await in_one_group(self.core, *(self._set(name) for name in TENANTS), *self._submits(scene.submits))
        leased = await self.running.claim(scene.claims, self.queue, start=True) if scene.claims else []
        for which, ending in scene.ended:
            if leased:
                await self._end(leased.pop(which % len(leased)), ending)
        await in_one_group(self.core, *self._submits(scene.late))
        waiting = await self._waiting()
        for which, priority in scene.new_priorities:
            if waiting:
                await reprioritize(self.core, waiting[which % len(waiting)].id, priority)
        for name in filter(None, (scene.at_cap, scene.paused)):
            running = self.core.order.running(self.names[name])
            if name == scene.at_cap and running:
                self.settings[name] = replace(self.settings[name], max_running=running)
            self.settings[name] = replace(self.settings[name], paused=name == scene.paused)
            await self._set(name)
        await tenancy.put_queue(self.core, self.queue, paused=scene.is_queue_paused)
        return await self._waiting()

    async def lift(self, tenant: str) -> None:
        """What holds the jobs of a tenant."""
        await tenancy.put_queue(self.core, self.queue, paused=False)
        [name] = [name for name in TENANTS if self.names[name] == tenant]
        self.settings[name] = replace(self.settings[name], paused=False, max_running=None)
        await self._set(name)

    def _submits(self, wanted: list[tuple[str, int, int]]) -> Iterator[Any]:
        for name, priority, cost in wanted:
            yield self.running.submit(self.names[name], queue=self.queue, priority=priority, cost=cost)

    async def _set(self, name: str) -> None:
        await tenancy.put_tenant(self.core, self.names[name], self.settings[name])

    async def _end(self, job: Job, ending: str) -> None:
        await {"complete": self.running.complete, "release": self.running.release, "fail": self.running.fail}[ending](
            job
        )

    async def _waiting(self) -> list[Job]:
        found = [job for job in self.core.order.snapshot().jobs if job.queue == self.queue]
        async with self.core.reading() as connection:
            rows = [await jobs.get(connection, job.id) for job in sorted(found, key=lambda job: job.seq)]
        return [row for row in rows if row is not None]


async def play(mortal: Mortal, scene: Scene, number: int) -> None:
    """The queue is run on, and what comes out before the job is what was said, by tenant."""
    stage = Stage(mortal, scene, number)
    waiting = await stage.set_up()
    if not waiting:
        return
    job = waiting[scene.asked % len(waiting)]
    told = await explained(stage.running, job)
    if scene.is_restarted:
        await mortal.restart()
        again = await explained(stage.running, job)
        assert (again.ahead_by_tenant, again.terms, again.to_be_next, again.bound) == (
            told.ahead_by_tenant,
            told.terms,
            told.to_be_next,
            told.bound,
        )
        assert [code for code in codes(again) if code is not Code.NO_WORKER] == [
            code for code in codes(told) if code is not Code.NO_WORKER
        ]
    await stage.lift(job.tenant)
    assert await comes_out_before(stage.running, job) == told.ahead_by_tenant
    assert told.ahead == sum(told.ahead_by_tenant.values())
    assert told.ahead_exact
    if told.bound is not None:
        assert all(told.ahead_by_tenant.get(name, 0) <= most for name, most in told.bound.by_tenant.items())


@contextmanager
def mortal_apart(database: Database, **settings: Any) -> Iterator[tuple[asyncio.Runner, Mortal]]:
    """A service on a loop that hypothesis can use again and again."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        mortal = Mortal(database, stack, settings)
        runner.run(_start(mortal))
        try:
            yield runner, mortal
        finally:
            runner.run(stack.aclose())


async def _start(mortal: Mortal) -> None:
    await mortal.start(FakeClock())


@pytest.mark.parametrize(("policy", "step"), [("virtual-time", "0.5"), ("penalty", "1")])
def test_what_is_said_to_go_first_comes_out_first(database: Database, policy: str, step: str) -> None:
    with mortal_apart(database, policy=policy, priority_step=step) as (runner, mortal):
        played = 0

        @thorough(10)
        @given(scenes)
        def check(scene: Scene) -> None:
            nonlocal played
            played += 1
            runner.run(play(mortal, scene, played))

        check()
        assert played >= 10


# -- what it says


async def test_the_only_job_is_the_next_one(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit()
        assert await running.claim(1, "default", start=False)
        second = await running.submit()
        told = await explained(running, second)
    assert (told.id, told.state, told.ahead, told.ahead_exact, told.ahead_by_tenant) == (
        second.id,
        State.QUEUED,
        0,
        True,
        {},
    )
    assert codes(told) == []
    assert told.to_be_next.changes == []
    assert told.estimate is None
    assert job.id != second.id


async def test_others_first(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "globex", TenantSettings(weight=2))
        await in_one_group(running.core, *(running.submit("globex", priority=0) for _ in range(4)))
        await running.submit("initech", priority=0)
        job = await running.submit("acme", priority=1, cost=3)
        told = await explained(running, job)
    assert (told.ahead, told.ahead_by_tenant) == (4, {"globex": 3, "initech": 1})
    assert codes(told) == [Code.OTHERS_FIRST, Code.NO_WORKER]
    assert "4 jobs go first: globex 3, initech 1." in said(told)
    assert told.terms is not None
    assert (told.terms.key, told.terms.virtual_time, told.terms.head_start, told.terms.charge) == (1.0, 0.0, 1.0, 3.0)
    assert (told.terms.seq, told.terms.due_at, told.terms.weight, told.terms.cost) == (job.seq, job.due_at, 1, 3)
    assert told.to_be_next.changes is None, "it came last"
    assert told.bound is not None
    assert (told.bound.credit, told.bound.of_weight_1) == (12.0, 13)
    assert told.bound.by_tenant == {"globex": 25, "initech": 13}


async def test_the_penalty_rule_has_other_terms_and_no_bound(database: Database) -> None:
    async with service(database, policy="penalty") as running:
        await running.submit("acme", priority=2)
        job = await running.submit("acme", priority=2)
        told = await explained(running, job)
    assert told.terms is not None
    assert (told.terms.policy, told.terms.key, told.terms.effective_priority) == ("penalty", 3, 3)
    assert (told.terms.virtual_time, told.terms.clock, told.terms.step, told.terms.charge) == (None, None, None, None)
    assert told.bound is None
    assert told.to_be_next.changes == [Change(Kind.PRIORITY, job.id, 0)]


async def test_what_holds_it_is_named_and_how_to_lift_it(database: Database) -> None:
    async with service(database) as running:
        await in_one_group(running.core, *(running.submit("acme", priority=n) for n in (0, 4)))
        await running.submit("globex", priority=1)
        held = await running.claim_one()
        [job] = [job for job in running.core.order.snapshot().jobs if job.tenant == "acme"]
        await tenancy.put_tenant(running.core, "acme", TenantSettings(max_running=1, paused=True))
        await tenancy.put_queue(running.core, "default", paused=True)
        told = await explain(running.core, job.id)
        assert codes(told) == [Code.PAUSED_QUEUE, Code.PAUSED_TENANT, Code.CAP, Code.OTHERS_FIRST]
        assert "acme has 1 jobs at work, over all queues, and may have 1" in said(told)
        assert told.to_be_next.changes == [
            Change(Kind.RESUME_QUEUE, "default", None),
            Change(Kind.RESUME_TENANT, "acme", None),
            Change(Kind.RAISE_CAP, "acme", 2),
            Change(Kind.PRIORITY, job.id, 0),
        ]
        assert told.to_be_next.text.startswith("Resume queue default, then resume tenant acme, then let acme have 2")
        assert (told.estimate, told.bound) == (None, None)
        await tenancy.put_queue(running.core, "default", paused=False)
        await tenancy.put_tenant(running.core, "acme", TenantSettings(max_running=2))
        await reprioritize(running.core, job.id, 0)
        assert (await explain(running.core, job.id)).to_be_next.changes == []
        assert (await running.claim_one()).id == job.id != held.id


async def test_a_delayed_job(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit(delay_sec=90)
        told = await explained(running, job)
        assert (codes(told), told.ahead, told.ahead_exact, told.terms) == ([Code.DELAYED], None, False, None)
        assert "in 90 s" in said(told)
        assert told.to_be_next.changes is None
        await running.tick(after=91)
        assert (await explained(running, job)).ahead == 0


async def test_a_job_that_failed_and_is_tried_again(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit()
        await running.fail(await running.claim_one(start=True))
        told = await explained(running, job)
    assert codes(told) == [Code.DELAYED]
    assert "is tried again at" in said(told)


@pytest.mark.parametrize("start", [False, True])
async def test_a_leased_job(database: Database, *, start: bool) -> None:
    async with service(database) as running:
        await running.submit()
        told = await explained(running, await running.claim_one(start=start))
    assert told.state is (State.RUNNING if start else State.SCHEDULED)
    assert (codes(told), told.ahead, told.to_be_next.changes) == ([Code.LEASED], None, None)
    assert "Worker w holds it since" in said(told)


async def test_a_job_that_has_ended(database: Database) -> None:
    async with service(database) as running:
        done = await running.submit()
        await running.complete(await running.claim_one(start=True))
        gone = await running.cancel(await running.submit())
        told = [await explained(running, job) for job in (done, gone)]
    assert [codes(each) for each in told] == [[Code.FINAL], [Code.FINAL]]
    assert [each.state for each in told] == [State.COMPLETED, State.CANCELLED]


async def test_a_job_that_is_not_there(database: Database) -> None:
    async with service(database) as running:
        with pytest.raises(NotFound, match="job not found"):
            await explain(running.core, "0" * 32)


async def test_a_queue_without_a_worker(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit(queue="linux")
        assert "since the service started" in said(await explained(running, job))
        assert await running.claim(1, "default") == []
        assert codes(await explained(running, job)) == [Code.NO_WORKER], "one of another queue does not count"
        claimed = await running.claim_one("linux")
        other = await running.submit(queue="linux")
        running.clock.flow(2 * QUIET_SEC)
        assert codes(await explained(running, other)) == [], "it is at work"
        await running.release(claimed)
        await running.cancel(job)
        assert codes(await explained(running, other)) == [Code.NO_WORKER]
        assert "for 120 s" in said(await explained(running, other))


async def test_one_that_waits_for_jobs_is_a_worker(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(paused=True))
        job = await running.submit("acme", queue="linux")
        waiting = asyncio.create_task(
            dispatch.claim(running.core, dispatch.ClaimRequest(worker="w", queues=("linux",), wait_sec=30))
        )
        await until(lambda: running.core.waiting.has("linux"))
        running.clock.flow(2 * QUIET_SEC)
        assert codes(await explained(running, job)) == [Code.PAUSED_TENANT]
        dispatch.end_waiting(running.core)
        assert await waiting == []


# -- when


async def test_the_estimate_follows_the_pace_of_its_queue(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"{n}") for n in range(FEWEST + 20))
        for _ in range(FEWEST):
            running.clock.advance(7)
            await running.complete(await running.claim_one(start=True))
        last = sorted(running.core.order.snapshot().jobs, key=lambda job: job.seq)[-1]
        told = await explain(running.core, last.id)
        now = running.clock.now()
    assert told.ahead == 19
    assert told.estimate is not None
    expected = now + timedelta(seconds=20 * 7)
    for moment in (told.estimate.earliest, told.estimate.likely, told.estimate.latest):
        assert abs(moment - expected) < timedelta(seconds=1)


async def test_a_pace_that_varies_gives_a_range(database: Database) -> None:
    async with service(database) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"{n}") for n in range(42))
        for number in range(40):
            running.clock.advance(1 + 9 * (number % 4 == 0))
            await running.complete(await running.claim_one(start=True))
        first = min(running.core.order.snapshot().jobs, key=lambda job: job.seq)
        told = await explain(running.core, first.id)
        now = running.clock.now()
    assert told.estimate is not None
    seconds = [(moment - now).total_seconds() for moment in (told.estimate.earliest, told.estimate.likely)]
    assert seconds == pytest.approx([1, 1], abs=0.1)
    assert (told.estimate.latest - now).total_seconds() == pytest.approx(10, abs=0.1)


async def test_time_in_which_nothing_waited_does_not_count(database: Database) -> None:
    async with service(database) as running:
        for _ in range(FEWEST + 1):
            running.clock.advance(3600)
            await running.submit("acme")
            running.clock.advance(2)
            await running.complete(await running.claim_one(start=True))
        told = await explained(running, await running.submit("acme"))
        now = running.clock.now()
    assert told.estimate is not None
    assert (told.estimate.latest - now).total_seconds() == pytest.approx(2, abs=0.1)


async def test_nothing_is_foretold_from_too_little_or_after_a_start(database: Database) -> None:
    async with service(database) as running:
        for _ in range(FEWEST - 1):
            await running.submit("acme")
            await running.complete(await running.claim_one(start=True))
        assert (await explained(running, await running.submit("acme"))).estimate is None


# -- while the service is at work


async def test_a_job_that_is_being_picked_is_told_as_it_comes_out(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit()
        with gate(running.core, "commit") as stopped:
            claiming = asyncio.create_task(running.claim_one())
            await stopped.reached()
            asking = asyncio.create_task(explained(running, job))
            await Backlog(running.core).grows_to(1)
            stopped.open()
            await claiming
        assert codes(await asking) == [Code.LEASED]


async def test_a_job_that_was_queued_by_hand_is_not_known_yet(database: Database) -> None:
    async with service(database) as running:
        await running.submit()
        job = await running.claim_one()
        await by_hand(database, requeue_sql(job))
        told = await explained(running, job)
    assert (told.state, told.ahead, told.reasons) == (State.QUEUED, None, [])
    assert "changed by hand" in told.to_be_next.text


async def test_claims_go_on_while_ten_thousand_are_counted(sqlite: Database) -> None:
    async with service(sqlite, priority_step=1000) as running:
        await running.submit_all(
            JobRequest(tenant=f"tenant {n % 100}", test_suite="unit", priority=n % 3) for n in range(MOST_AHEAD)
        )
        tenth = await running.submit("patient", priority=10)
        last = await running.submit("patient", priority=10)
        asking = asyncio.create_task(explained(running, last))
        await until(lambda: running.core.sparing.is_taken or asking.done())
        claimed = await running.claim(5)  # after the moment that is told of, and while it is being counted
        told = await asking
        assert (told.ahead, told.ahead_exact) == (MOST_AHEAD, False)
        assert told.ahead == sum(told.ahead_by_tenant.values())
        assert "More than 10000 jobs go first" in said(told)
        assert told.estimate is None
        assert len(claimed) == 5
        told = await explained(running, tenth)
        assert (told.ahead, told.ahead_exact) == (MOST_AHEAD - 5, True)


async def test_who_hangs_up_leaves_nothing_lent(sqlite: Database) -> None:
    async with service(sqlite, priority_step=1000) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite="unit") for _ in range(1000))
        last = await running.submit("globex", priority=10)
        heap = running.core.order._tenants["acme"].lanes["default"].jobs
        asking = asyncio.create_task(explained(running, last))
        await until(lambda: heap._lent or asking.done())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert heap._lent == 0
        assert not running.core.sparing.is_taken
