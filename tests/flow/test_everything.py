"""Long days with everything in them, kills and failures too: after each step memory is what the database says, and
at the end a twin that never died would have picked the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, get_args

import pytest

from app.errors import FairlaneError
from app.flow import lease, tenancy
from app.flow.look import get_job
from app.flow.reprioritize import reprioritize
from app.flow.retry import retry
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from app.scheduling.scheduler import Policy, step_units
from tests.databases import Database
from tests.flow.harness import (
    HOUR,
    Moment,
    Mortal,
    Running,
    answers_of,
    by_hand,
    cancel_sql,
    failing,
    gate,
    mortal,
    token_of,
)
from tests.flow.scenes import POLICIES
from tests.flow.views import assert_memory_equals_sql, drained
from tests.twin import Step, Twin, read_history, relive

TENANTS = ("ada", "bob", "cyd", "dan")
QUEUES = ("default", "other")
STEPS = 90
Work = Coroutine[Any, Any, Any]


async def nothing(_tx: object) -> None:
    """A transaction all the same."""


class Day:
    """A seeded random day on a service that dies now and then."""

    def __init__(self, mortal_: Mortal, database: Database, seed: str) -> None:
        self._mortal = mortal_
        self._database = database
        self._chance = random.Random(seed)
        self._names = 0
        self._held: list[Job] = []
        self._known: list[Job] = []
        self.settings: list[tuple[datetime, Step]] = []
        self.knows_pending = True
        """Rows typed as pending by hand are not counted before they are due, nor what they hid."""

    @property
    def running(self) -> Running:
        return self._mortal.running

    # -- what is asked of the service

    def requests(self, most: int) -> list[JobRequest]:
        """New jobs, each with a name of its own."""
        chance, made = self._chance, []
        for _ in range(chance.randint(1, most)):
            self._names += 1
            made.append(
                JobRequest(
                    tenant=chance.choice(TENANTS),
                    test_suite=f"job {self._names}",
                    queue=chance.choice((*QUEUES, "default")),
                    priority=chance.randint(0, 10),
                    delay_sec=chance.choice((0, 0, 0, 1, 7, 40)),
                    cost=chance.choice((1, 1, 2, 5)),
                    max_attempts=chance.randint(1, 3),
                    timeout_sec=chance.choice((None, None, 20)),
                    idempotency_key=chance.choice((None, f"key {self._names}")),
                )
            )
        return made

    async def submit(self) -> None:
        self._known += await self.running.submit_all(self.requests(6))

    async def claim(self) -> None:
        chance, order = self._chance, self.running.core.order
        queues = chance.choice((QUEUES, QUEUES[::-1], QUEUES[:1]))
        claimed = await self.running.claim(chance.randint(1, 6), *queues, start=chance.random() < 0.7)
        self._held += claimed
        for job in claimed:
            tenant = order.tenant(job.tenant)
            assert tenant.max_running is None or tenant.running <= tenant.max_running

    async def report(self) -> None:
        if not self._held:
            return
        running, core = self.running, self.running.core
        job = self._held.pop(self._chance.randrange(len(self._held)))
        done: Sequence[Callable[[], Awaitable[object]]] = (
            lambda: running.complete(job, {"n": 1}),
            lambda: running.complete(job),
            lambda: running.complete(job),
            lambda: running.fail(job),
            lambda: running.fail(job, retry=False),
            lambda: running.release(job),
            lambda: running.cancel(job),
        )
        going_on: Sequence[Callable[[], Awaitable[object]]] = (
            lambda: lease.start(core, job.id, token_of(job)),
            lambda: lease.heartbeat(core, job.id, token_of(job), progress=0.5),
        )
        if self._chance.random() < 0.3:
            self._held.append(job)
            await self._chance.choice(going_on)()
        else:
            await self._chance.choice(done)()
            if self._chance.random() < 0.2:
                self._held.append(job)  # to be reported a second time

    async def cancel(self) -> None:
        if self._known:
            await self.running.cancel(self._chance.choice(self._known))

    async def reprioritize(self) -> None:
        if self._known:
            await reprioritize(self.running.core, self._chance.choice(self._known).id, self._chance.randint(0, 10))

    async def retry(self) -> None:
        if self._known:
            self._known.append(await retry(self.running.core, self._chance.choice(self._known).id))

    async def set_tenant(self) -> None:
        chance, name = self._chance, self._chance.choice(TENANTS)
        wanted = TenantSettings(
            weight=chance.choice((1, 1, 2, 5)),
            max_running=chance.choice((None, None, 1, 3)),
            max_queued=chance.choice((None, None, 12)),
            paused=chance.random() < 0.1,
        )

        def set_so(twin: Twin) -> None:
            twin.order.set_tenant(name, weight=wanted.weight, max_running=wanted.max_running, paused=wanted.paused)

        view = await tenancy.put_tenant(self.running.core, name, wanted)
        self.settings.append((view.updated_at, set_so))

    async def set_queue(self) -> None:
        await tenancy.put_queue(self.running.core, self._chance.choice(QUEUES), paused=self._chance.random() < 0.2)

    # -- what happens to it

    async def tick(self) -> None:
        await self.running.tick(after=self._chance.choice((0.01, 0.1, 0.5, 2.5, 2.5, 11, 31)))

    async def restart(self) -> None:
        await self._mortal.restart(wall_jumped=self._chance.choice((0, 0, HOUR, -2)))

    def some(self, *, settings: bool = True) -> list[Work]:
        """Several things at once."""
        kinds = [self.submit, self.claim, self.claim, self.report, self.report, self.cancel]
        if settings:
            kinds += [self.set_tenant, self.set_queue, self.retry]
        return [self._chance.choice(kinds)() for _ in range(self._chance.randint(2, 8))]

    async def crowd(self) -> None:
        bad = [self.running.submit("a/b")] if self._chance.random() < 0.4 else []
        refusals = await answers_of([asyncio.ensure_future(work) for work in (*self.some(), *bad)])
        assert all(isinstance(refusal, Exception) for refusal in refusals if refusal is not None)

    async def fail(self) -> None:
        moment = self._chance.choice(get_args(Moment))
        with failing(self.running.core, moment):
            await self.running.submit_all(self.requests(1))

    async def fail_much(self) -> None:
        moment: Moment = self._chance.choice(get_args(Moment))
        with failing(self.running.core, moment):
            tasks = [asyncio.ensure_future(work) for work in (self.submit(), *self.some(settings=False))]
            await answers_of(tasks)

    async def die_at_work(self) -> None:
        moment: Moment = self._chance.choice(get_args(Moment))
        with gate(self.running.core, moment) as stopped:
            tasks = [asyncio.ensure_future(work) for work in (self.submit(), *self.some(settings=False))]
            await stopped.reached()
            await self.running.crash()
        for task in tasks:
            task.cancel()
        await answers_of(tasks)
        await self.restart()

    # -- what is typed

    async def type_pending(self) -> None:
        self._names += 1
        columns, tenant = "tenant, test_suite, priority, queue", self._chance.choice(TENANTS)
        queue, priority = self._chance.choice(QUEUES), self._chance.randint(0, 10)
        await by_hand(
            self._database,
            f"INSERT INTO tenants (name) VALUES ('{tenant}') ON CONFLICT DO NOTHING",
            f"INSERT INTO queues (name) VALUES ('{queue}') ON CONFLICT DO NOTHING",
            f"INSERT INTO jobs ({columns}) VALUES ('{tenant}', 'job {self._names}', {priority}, '{queue}')",
        )
        self.knows_pending = False
        await self.running.tick(after=2 * HOUR)

    async def type_cancels(self) -> None:
        """Of jobs in any state, which a start, or a doubt, makes good."""
        for job in self._chance.sample(self._known, min(3, len(self._known))):
            found = await get_job(self.running.core, job.id)
            if not found.state.is_final:
                await by_hand(self._database, cancel_sql(found))
        await self.restart()
        await self.running.core.write(nothing)  # with which a lane that the start has raised is written
        self.knows_pending = True

    async def type_cancel_of_leased(self) -> None:
        """Which the end of its lease makes good."""
        held = [job for job in self._held if (await get_job(self.running.core, job.id)).token == job.token]
        if held:
            await by_hand(self._database, cancel_sql(self._chance.choice(held)))
            await self.running.tick(after=100)

    async def type_settings(self) -> None:
        tenant, weight = self._chance.choice(TENANTS), self._chance.randint(1, 9)
        await by_hand(
            self._database,
            f"UPDATE tenants SET weight = {weight}, max_running = 2 WHERE name = '{tenant}'",
        )
        await self.running.tick()


ORDERLY: dict[str, int] = {
    "submit": 12,
    "claim": 18,
    "report": 18,
    "cancel": 3,
    "retry": 2,
    "set_tenant": 3,
    "set_queue": 2,
    "tick": 10,
    "crowd": 6,
    "fail": 2,
    "fail_much": 3,
    "restart": 2,
    "die_at_work": 3,
}
WILD: dict[str, int] = {
    **ORDERLY,
    "reprioritize": 4,
    "type_pending": 3,
    "type_cancels": 2,
    "type_cancel_of_leased": 3,
    "type_settings": 3,
}


async def live(day: Day, kinds: dict[str, int], seed: str) -> list[str]:
    """Live through it; what was done."""
    chance, done = random.Random(f"steps of {seed}"), []
    for _ in range(STEPS):
        [kind] = chance.choices(list(kinds), list(kinds.values()))
        done.append(kind)
        step: Callable[[], Awaitable[None]] = getattr(day, kind)
        try:
            await step()
        except FairlaneError as refused:
            done[-1] += f" ({refused})"
        if day.running.core.writer.is_in_doubt:
            await day.running.tick()
        await day.running.core.spawned_work()
        try:
            await assert_memory_equals_sql(day.running.core, knows_pending=day.knows_pending)
        except AssertionError as error:
            error.add_note(f"after {len(done)} steps: {', '.join(done)}")
            raise
    return done


@pytest.mark.parametrize("policy", POLICIES)
async def test_after_whatever_happens_memory_is_what_the_database_says(database: Database, policy: str) -> None:
    async with mortal(database, policy=policy) as killed:
        day = Day(killed, database, f"wild {policy}")

        done = await live(day, WILD, f"wild {policy}")

        assert len(done) == STEPS
        await drained(day.running, *QUEUES)
        await day.running.tick()
        await assert_memory_equals_sql(day.running.core, knows_pending=day.knows_pending)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_twin_that_never_died_picks_what_the_service_picked(database: Database, policy: str) -> None:
    async with mortal(database, policy=policy) as killed:
        day = Day(killed, database, f"orderly {policy}")

        await live(day, ORDERLY, f"orderly {policy}")

        history = await read_history(day.running.core.engines)
        twin = relive(history, Policy(policy), step_units(day.running.core.settings.priority_step), day.settings)
        assert twin.wrong == []
        ended = sum(len(attempts) for attempts in history.attempts.values())
        assert len(twin.picked) == ended + sum(job.state.is_leased for job in history.jobs)
        assert len(twin.picked) > STEPS // 5  # how many is a matter of who was quick: forty and more
        states = {job.state for job in history.jobs}
        assert {State.COMPLETED, State.FAILED, State.CANCELLED} <= states
