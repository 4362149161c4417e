"""Many jobs, workers and settings on a service that dies now and then. After each step it is seen whether what must
always hold still holds: who holds which job is known from nothing but what the service has answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final, Self

import pytest
from msgspec import structs
from sqlalchemy import select

from app.errors import TooManyQueued
from app.flow import dispatch, tenancy
from app.flow.bulk import Report, finish_many, heartbeat_many
from app.flow.cancel import CancelFilter, cancel, cancel_many
from app.flow.dispatch import ClaimRequest
from app.flow.reprioritize import reprioritize
from app.flow.retry import retry
from app.flow.submit import JobRequest, submit
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Attempt, Job, State
from app.scheduling.scheduler import Policy, step_units
from app.store.schema import job_attempts, jobs
from tests.contract.model import FINAL, LEASED, WAITING, Answer, Call
from tests.contract.player import answer_of, report
from tests.databases import Database
from tests.flow.harness import FakeClock, Mortal, Running, answers_of, until, until_idle
from tests.flow.views import assert_memory_equals_sql
from tests.twin import Step, Twin, read_history, relive

_AGAIN: Final = ("completed", "failed", "released")


@dataclass(frozen=True)
class Seen:
    """All jobs and all ended attempts, by id and by token, as the database had them at one moment."""

    jobs: dict[str, Job] = field(default_factory=dict)
    ended: dict[str, Attempt] = field(default_factory=dict)

    def waiting(self, tenant: str) -> int:
        return sum(job.tenant == tenant and job.state in WAITING for job in self.jobs.values())

    def running(self) -> Counter[str]:
        return Counter(job.tenant for job in self.jobs.values() if job.state in LEASED)

    def is_held(self, job_id: str, token: str) -> bool:
        return self.jobs[job_id].token == token

    def is_answered_again(self, token: str) -> bool:
        return token in self.ended and self.ended[token].outcome in _AGAIN


@dataclass
class Crowd:
    """What is known from outside. Its steps are what clients, workers, operators and fate do."""

    mortal: Mortal
    policy: Policy
    stack: AsyncExitStack
    seen: Seen = field(default_factory=Seen)
    given: dict[str, str] = field(default_factory=dict)
    """Every token that a claim has answered, and its job."""
    lines: list[asyncio.Task[list[Job]]] = field(default_factory=list)
    tenants: dict[str, TenantSettings] = field(default_factory=dict)
    paused_queues: set[str] = field(default_factory=set)
    most: dict[str, int] = field(default_factory=dict)
    """How many jobs of a tenant may be leased now: its cap, or as many as were when that was set."""
    asked: dict[str, int] = field(default_factory=dict)
    """The priorities that jobs were submitted with."""
    steps: list[tuple[datetime, Step]] = field(default_factory=list)

    @classmethod
    async def come(cls, database: Database, policy: Policy) -> Self:
        stack = AsyncExitStack()
        mortal = Mortal(database, stack, {"policy": policy, "sqlite_synchronous": "normal"})
        await mortal.start(FakeClock())
        return cls(mortal, policy, stack)

    async def go(self) -> None:
        await self._hang_up(self.lines)
        await self.stack.aclose()

    async def compare_with_a_twin(self) -> None:
        """One that never died would have picked the same."""
        await self._hang_up(self.lines)
        await self.look()
        history = await read_history(self.running.core.engines)
        history = replace(history, jobs=[structs.replace(job, priority=self.asked[job.id]) for job in history.jobs])
        self._bind(history.jobs)
        units = step_units(self.running.core.settings.priority_step)
        assert relive(history, self.policy, units, self.steps).wrong == []

    @property
    def running(self) -> Running:
        return self.mortal.running

    # -- what is asked

    async def submit(self, requests: Sequence[JobRequest]) -> None:
        """A batch, which is refused if it is more than may wait."""
        wanted = Counter(request.tenant for request in requests)
        if any(self._is_full_for(tenant, n) for tenant, n in wanted.items()):
            with pytest.raises(TooManyQueued):
                await submit(self.running.core, requests)
            return
        submitted = await submit(self.running.core, requests)
        self.asked |= {each.job.id: each.job.priority for each in submitted}

    async def claim(self, request: ClaimRequest) -> None:
        """Whoever waits gets its answer whenever it comes."""
        claiming = asyncio.create_task(dispatch.claim(self.running.core, request))
        if request.wait_sec:
            self.lines.append(claiming)
            await asyncio.sleep(0)  # now it is in line, or with the writer
        else:
            self._take(await claiming)

    async def hang_up(self) -> None:
        await self._hang_up(self.lines[:1])

    async def cancel(self, number: int) -> None:
        job = self._job(number)
        is_over = job.state in ("completed", "failed")
        expected = Answer("conflict", job.state) if is_over else Answer("job", State.CANCELLED)
        assert await answer_of(cancel(self.running.core, job.id)) == expected

    async def cancel_many(self, wanted: CancelFilter) -> None:
        asked = {name: value for name, value in asdict(wanted).items() if value is not None}
        matching = [
            job
            for job in self.seen.jobs.values()
            if job.state not in FINAL and all(getattr(job, name) == value for name, value in asked.items())
        ]
        assert await cancel_many(self.running.core, wanted) == len(matching)

    async def prioritize(self, number: int, priority: int) -> None:
        job = self._job(number)
        before = self.running.clock.now()
        expected = Answer("job" if job.state in WAITING else "conflict", job.state)
        assert await answer_of(reprioritize(self.running.core, job.id, priority)) == expected
        if job.state in WAITING:
            self.steps.append((before, _Reprioritized(job.id, priority)))
            changed = (await self._look()).jobs[job.id]
            assert changed.priority == priority
            if job.effective_priority is not None:
                assert changed.effective_priority == max(0, job.effective_priority + priority - job.priority)

    async def retry(self, number: int) -> None:
        core, job = self.running.core, self._job(number)
        if job.state not in ("failed", "cancelled"):
            assert await answer_of(retry(core, job.id)) == Answer("conflict", job.state)
            return
        if self._is_full_for(job.tenant, 1):
            with pytest.raises(TooManyQueued):
                await retry(core, job.id)
            return
        new = await retry(core, job.id)
        self.asked[new.id] = new.priority
        same = ("tenant", "test_suite", "queue", "priority", "payload", "cost", "max_attempts", "timeout_sec")
        assert [getattr(new, name) for name in same] == [getattr(job, name) for name in same]
        assert (new.retry_of, new.attempt, new.delay_sec) == (job.id, 0, 0)

    # -- what workers say

    async def report(self, number: int, call: Call) -> None:
        """Under any token there ever was: what is too late changes nothing, whatever is said."""
        for token in self._tokens([number]):
            await self._report(token, call)

    async def _report(self, token: str, call: Call) -> None:
        job_id, before = self.given[token], self.seen
        answer = await answer_of(report(self.running.core, job_id, token, call))
        assert answer.kind == self._kind_of_answer(token, call)
        if answer.kind in ("lost", "conflict"):
            assert answer.state == before.jobs[job_id].state
        if not before.is_held(job_id, token):
            assert await self._look() == before

    def _kind_of_answer(self, token: str, call: Call) -> str:
        job = self.seen.jobs[self.given[token]]
        if job.token == token:
            is_early = call == "complete" and job.state == "scheduled"
            return "conflict" if is_early else "nothing" if call == "heartbeat" else "job"
        return "job" if self.seen.is_answered_again(token) and call not in ("start", "heartbeat") else "lost"

    async def report_many(self, numbers: Sequence[int], errors: Sequence[str | None]) -> None:
        before, done = self.seen, set[str]()
        tokens = self._tokens(numbers)
        reports = [Report(id=self.given[t], token=t, error=e) for t, e in zip(tokens, errors, strict=False)]
        judged = await finish_many(self.running.core, reports)
        assert [each.id for each in judged] == [said.id for said in reports]
        for each, said in zip(judged, reports, strict=True):
            is_early = said.error is None and before.jobs[said.id].state is State.SCHEDULED
            is_taken = before.is_held(said.id, said.token) and not is_early
            is_good = is_taken or before.is_answered_again(said.token) or said.token in done
            assert each.ok == is_good
            if each.ok:
                done.add(said.token)

    async def beat_many(self, numbers: Sequence[int]) -> None:
        tokens = self._tokens(numbers)
        judged = await heartbeat_many(self.running.core, [(self.given[token], token) for token in tokens])
        assert [each.ok for each in judged] == [self.seen.is_held(self.given[token], token) for token in tokens]

    # -- what operators do

    async def set_tenant(self, name: str, settings: TenantSettings) -> None:
        before = self.running.clock.now()
        await tenancy.put_tenant(self.running.core, name, settings)
        self.tenants[name] = settings
        if settings.max_running is not None:
            self.most[name] = max(settings.max_running, self.seen.running()[name])
        else:
            self.most.pop(name, None)
        self.steps.append((before, _set(name, settings)))

    async def set_queue(self, name: str, paused: bool) -> None:  # noqa: FBT001
        await tenancy.put_queue(self.running.core, name, paused=paused)
        (self.paused_queues.add if paused else self.paused_queues.discard)(name)

    # -- what fate does

    async def pass_time(self, seconds: float) -> None:
        self.running.clock.advance(seconds)
        while await self.running.tick() == 0:
            pass

    async def restart(self, wall_jumped: float) -> None:
        await self.mortal.restart(wall_jumped=wall_jumped)
        await self._hang_up(self.lines)

    # -- what must hold

    async def look(self) -> None:
        """See what the last step has done."""
        await self._all_is_answered()
        for claiming in [claiming for claiming in self.lines if claiming.done()]:
            self.lines.remove(claiming)
            self._take(claiming.result())
        now = await self._look()
        self._assert_final_rows_stay(now)
        self._assert_one_lease_a_job(now)
        self._assert_caps_hold(now)
        await assert_memory_equals_sql(self.running.core)
        self.seen = now

    async def _all_is_answered(self) -> None:
        core = self.running.core
        await until_idle(core)
        lines = core.waiting._by_queue.values()
        await until(lambda: not any(waiting.answer.done() for line in lines for waiting in line.values()))

    def _assert_final_rows_stay(self, now: Seen) -> None:
        assert now.jobs.keys() >= self.seen.jobs.keys()
        for job_id, job in self.seen.jobs.items():
            assert job.state not in FINAL or now.jobs[job_id] == job
        assert now.ended.items() >= self.seen.ended.items()

    def _assert_one_lease_a_job(self, now: Seen) -> None:
        valid = {token: job_id for token, job_id in self.given.items() if token not in now.ended}
        assert len(set(valid.values())) == len(valid)
        assert valid == {job.token: job.id for job in now.jobs.values() if job.token is not None}

    def _assert_caps_hold(self, now: Seen) -> None:
        running = now.running()
        for tenant, most in self.most.items():
            assert running[tenant] <= most
            self.most[tenant] = max(self.tenants[tenant].max_running or 0, running[tenant])

    def _take(self, leased: Sequence[Job]) -> None:
        for job in leased:
            assert job.token is not None
            assert job.token not in self.given
            assert not self.tenants.get(job.tenant, TenantSettings()).paused
            assert job.queue not in self.paused_queues
            self.given[job.token] = job.id

    async def _look(self) -> Seen:
        async with self.running.core.reading() as connection:
            found = [Job(*row) for row in await connection.execute(select(jobs).order_by(jobs.c.seq))]
            ended = [Attempt(*row) for row in await connection.execute(select(job_attempts))]
        return Seen({job.id: job for job in found}, {attempt.token: attempt for attempt in ended})

    def _job(self, number: int) -> Job:
        """One of those there are, the newest first."""
        return list(self.seen.jobs.values())[-1 - number % len(self.seen.jobs)]

    def _tokens(self, numbers: Sequence[int]) -> list[str]:
        """Some of those there ever were, the newest first; none if there are none."""
        tokens = list(self.given)
        return [tokens[-1 - number % len(tokens)] for number in numbers if tokens]

    def _is_full_for(self, tenant: str, new: int) -> bool:
        limit = self.tenants.get(tenant, TenantSettings()).max_queued
        return limit is not None and self.seen.waiting(tenant) + new > limit

    async def _hang_up(self, lines: Sequence[asyncio.Task[list[Job]]]) -> None:
        for claiming in list(lines):
            claiming.cancel()
            self.lines.remove(claiming)
            await answers_of([claiming])

    def _bind(self, jobs: Sequence[Job]) -> None:
        """What becomes of a priority is not in the tables: the twin is told, and so are the jobs that it is fed."""
        by_id = {job.id: job for job in jobs}
        for _, step in self.steps:
            if isinstance(step, _Reprioritized):
                step.job = by_id[step.job_id]


class _Reprioritized:
    def __init__(self, job_id: str, priority: int) -> None:
        self.job_id = job_id
        self.job: Job
        self._priority = priority

    def __call__(self, twin: Twin) -> None:
        structs.force_setattr(self.job, "priority", self._priority)
        twin.order.reprioritize(self.job_id, self._priority)


def _set(name: str, settings: TenantSettings) -> Step:
    def step(twin: Twin) -> None:
        twin.order.set_tenant(name, weight=settings.weight, max_running=settings.max_running, paused=settings.paused)

    return step
