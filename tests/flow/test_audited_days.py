"""Long days under the audit: on one on which nobody types SQL it has nothing to tell, whatever fails and dies; and on
one on which somebody types whatever a database takes, it brings memory back to what the rows say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from app.errors import FairlaneError
from app.events import DifferenceMended
from app.flow.audit.audit import audit
from app.flow.look import JobFilter, list_jobs
from app.scheduling.job import Job, State
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, by_hand, cancel_sql, enqueue_sql, lease_sql, mortal, requeue_sql
from tests.flow.test_everything import ORDERLY, QUEUES, TENANTS, Day
from tests.flow.views import assert_memory_equals_sql

STEPS = 70


class AuditedDay(Day):
    """A day with looks of the audit in it."""

    typed = 0

    async def audit(self) -> None:
        """Look, and look again as the service would."""
        async with asyncio.timeout(PATIENCE_SEC):
            while await audit(self.running.core):
                await self.running.tick()

    async def audit_in_a_crowd(self) -> None:
        await asyncio.gather(self.crowd(), audit(self.running.core))

    async def type_something(self) -> None:
        """One to three things, each about a job or a lane of its own; what a trigger refuses is somebody's slip."""
        found = (await list_jobs(self.running.core, JobFilter(limit=1000))).jobs
        jobs = self._chance.sample(found, min(len(found), self._chance.randint(1, 3)))
        for statement in [self._about(job) for job in jobs] or [self._about_times()]:
            await by_hand(self._database, statement)
            self.typed += 1

    def _about(self, job: Job) -> str:
        chance, here = self._chance, f"WHERE id = '{job.id}'"
        token = f"typed {chance.random()}"
        priority, delete = chance.randint(0, 10), f"DELETE FROM jobs {here}"
        insert = (
            "INSERT INTO jobs (tenant, test_suite, queue, state, queued_at, effective_priority, run_at) SELECT tenant,"
            f" 'typed {chance.random()}', queue, 'queued', submitted_at, 1, run_at FROM jobs {here}"
        )
        again = requeue_sql(job)
        kinds: dict[State, Sequence[str]] = {
            State.PENDING: (enqueue_sql(job),),
            State.QUEUED: (
                f"UPDATE jobs SET priority = {priority}, effective_priority = {priority} {here}",
                lease_sql(job, token),
                insert,
            ),
            State.SCHEDULED: (again, f"UPDATE jobs SET state = 'running', started_at = run_at {here}"),
            State.RUNNING: (
                again,
                again.replace("'queued'", "'pending', queued_at = NULL, effective_priority = NULL"),
                f"UPDATE jobs SET token = '{token}' {here}",
            ),
        }
        if job.state.is_final:
            return chance.choice((delete, self._about_times()))
        if job.attempt == job.max_attempts:
            return cancel_sql(job)
        return chance.choice((*kinds[job.state], cancel_sql(job), cancel_sql(job), delete, self._about_times()))

    def _about_times(self) -> str:
        queue, n = self._chance.choice(QUEUES), self._chance.randint(0, 10**8)
        tenant = self._chance.choice(TENANTS)
        return self._chance.choice(
            (
                f"UPDATE lanes SET virtual_time = {n} WHERE queue = '{queue}' AND tenant = '{tenant}'",
                f"DELETE FROM lanes WHERE queue = '{queue}' AND tenant = '{tenant}'",
                f"UPDATE queues SET clock = {n}, since_move = 3 WHERE name = '{queue}'",
            )
        )


LOOKED_AT: dict[str, int] = {**ORDERLY, "reprioritize": 4, "audit": 15, "audit_in_a_crowd": 8}
TYPED: dict[str, int] = {
    "submit": 12,
    "claim": 15,
    "report": 12,
    "cancel": 3,
    "reprioritize": 4,
    "tick": 8,
    "crowd": 6,
    "type_something": 25,
    "audit": 10,
    "audit_in_a_crowd": 5,
}


async def lived(day: AuditedDay, kinds: dict[str, int], seed: str) -> list[str]:
    """Live through it, and look after each step whether all is well; what was done."""
    chance, done = random.Random(f"steps of {seed}"), list[str]()
    for _ in range(STEPS):
        [kind] = chance.choices(list(kinds), list(kinds.values()))
        done.append(kind)
        try:
            await getattr(day, kind)()
        except FairlaneError as refused:
            done[-1] += f" ({refused})"
        if day.running.core.writer.is_in_doubt:
            await day.running.tick()
        await day.running.core.spawned_work()
        try:
            if kind == "audit":
                await day.running.tick()
                await assert_memory_equals_sql(day.running.core)
            if not day.typed:
                assert day.running.heard.all(DifferenceMended) == []
        except AssertionError as error:
            error.add_note(f"after {len(done)} steps: {', '.join(done)}")
            raise
    return done


async def test_where_nobody_types_nothing_is_told(database: Database) -> None:
    async with mortal(database) as killed:
        done = await lived(AuditedDay(killed, database, "looked at"), LOOKED_AT, "looked at")

        assert {"audit", "audit_in_a_crowd", "restart", "fail"} <= {each.partition(" ")[0] for each in done}


async def test_whatever_is_typed_memory_comes_back_to_what_the_rows_say(database: Database) -> None:
    async with mortal(database) as killed:
        day = AuditedDay(killed, database, "typed")

        await lived(day, TYPED, "typed")
        await day.audit()

        assert day.typed > 15
        assert len(day.running.heard.all(DifferenceMended)) > 5
        await day.running.tick()
        await assert_memory_equals_sql(day.running.core)
        told = len(day.running.heard.all(DifferenceMended))
        await day.audit()
        assert len(day.running.heard.all(DifferenceMended)) == told
