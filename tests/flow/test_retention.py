"""Finished jobs leave after their time, with all that is theirs, and nothing else leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from app.errors import NotFound
from app.events import JobsRetired, LoopFailed, RowSkipped
from app.flow import look, retention
from app.flow.audit.audit import audit
from app.flow.core import Phase
from app.flow.moves import Moved
from app.flow.retention import retire
from app.flow.retry import retry
from app.scheduling.job import Job, State
from tests.databases import Database
from tests.flow.harness import HOUR, PATIENCE_SEC, FakeClock, Running, by_hand, commits_of, mortal, service
from tests.flow.scenes import set_up
from tests.flow.views import assert_memory_equals_sql

DAY: Final = 86_400.0


async def retired(running: Running) -> int:
    """All that there is to do; how many jobs have gone."""
    await running.roll_all_up()  # what is not rolled up yet stays
    before = len(running.heard.all(JobsRetired))
    async with asyncio.timeout(PATIENCE_SEC):
        while await retire(running.core):
            pass
    return sum(event.count for event in running.heard.all(JobsRetired)[before:])


async def finished(running: Running, name: str = "unit", **asked: Any) -> Job:
    """A job that was completed at its second attempt."""
    job = await running.submit(name=name, **asked)
    await running.release(await running.claim_one())
    completed = await running.complete(await running.claim_one(start=True))
    assert completed.id == job.id
    return completed


async def test_what_ended_long_ago_leaves_with_its_attempts_and_its_key(database: Database) -> None:
    async with service(database, retention_days=7) as running:
        old = await finished(running, "old", idempotency_key="nightly")
        failed = await _failed(running)
        withdrawn = await running.cancel(await running.submit())
        running.clock.advance(5 * DAY)
        young = await finished(running, "young")
        again = await retry(running.core, failed.id)
        running.clock.advance(2 * DAY + 1)

        assert await retired(running) == 3

        for job in (old, failed, withdrawn):
            with pytest.raises(NotFound):
                await look.get_job(running.core, job.id)
        assert (await look.get_job(running.core, young.id)).state is State.COMPLETED
        assert (await look.get_job(running.core, again.id)).retry_of == failed.id
        assert await database.fetch(
            "SELECT DISTINCT j.test_suite FROM job_attempts a JOIN jobs j ON j.id = a.job_id"
        ) == [("young",)]
        assert await database.value("SELECT count(*) FROM job_attempts") == 2
        assert (await running.submit(name="another", idempotency_key="nightly")).id != old.id
        await assert_memory_equals_sql(running.core)
        assert await retired(running) == 0


async def _failed(running: Running) -> Job:
    await running.submit(name="bad")
    return await running.fail(await running.claim_one(start=True), retry=False)


async def test_what_is_not_finished_stays_however_old(database: Database) -> None:
    async with service(database, retention_days=1) as running:
        scene = await set_up(running)
        running.clock.advance(400 * DAY)  # and no tick, so that nothing ends

        assert await retired(running) == 0
        assert (await look.get_job(running.core, scene.pending.id)).state is State.PENDING
        await assert_memory_equals_sql(running.core)


async def test_a_clock_that_was_set_wrong_and_right_again_deletes_nothing(database: Database) -> None:
    async with service(database, retention_days=7) as running:
        job = await finished(running)
        running.clock.advance(3 * DAY)
        assert await retired(running) == 0

        running.clock.jump(40 * DAY)
        assert await retired(running) == 0
        running.clock.advance(1800)
        assert await retired(running) == 0

        running.clock.jump(-40 * DAY)
        await finished(running, "after it")  # the times given out go on from the latest
        for _ in range(3):
            running.clock.advance(HOUR)
            assert await retired(running) == 0
        assert (await look.get_job(running.core, job.id)).id == job.id


async def test_a_clock_that_stays_ahead_is_believed_in_the_end(database: Database) -> None:
    async with service(database, retention_days=7) as running:
        await finished(running)
        running.clock.jump(8 * DAY)  # the machine slept: it is true
        assert await retired(running) == 0
        running.clock.advance(HOUR - 1)
        assert await retired(running) == 0
        running.clock.advance(1)
        assert await retired(running) == 1


async def test_a_service_that_starts_with_a_clock_that_is_ahead_deletes_nothing_for_an_hour(database: Database) -> None:
    async with mortal(database, retention_days=7) as killed:
        job = await finished(killed.running)

        running = await killed.restart(wall_jumped=365 * DAY)
        assert await retired(running) == 0
        running = await killed.restart(wall_jumped=-365 * DAY)  # it is set right
        running.clock.advance(HOUR)
        assert await retired(running) == 0
        assert (await look.get_job(running.core, job.id)).id == job.id


async def test_a_service_that_was_down_for_long_deletes_an_hour_after_its_start(database: Database) -> None:
    async with mortal(database, retention_days=7) as killed:
        await finished(killed.running)
        running = await killed.restart(wall_jumped=8 * DAY)
        assert await retired(running) == 0
        running.clock.advance(HOUR)
        assert await retired(running) == 1


async def test_a_clock_that_is_set_by_minutes_every_day_is_believed(database: Database) -> None:
    async with service(database, retention_days=7) as running:
        await finished(running)
        for _ in range(7):
            running.clock.advance(DAY)
            running.clock.jump(300)
        assert await retired(running) == 1


async def test_never_keeps_all(database: Database) -> None:
    async with service(database, retention_days="never") as running:
        await finished(running)
        running.clock.advance(30_000 * DAY)

        assert await retired(running) == 0
        assert look.stats(running.core).total_jobs == 1


async def test_a_number_is_never_given_twice(database: Database) -> None:
    """Not even that of the newest job, nor when every row is gone, nor after a restart."""
    clock = FakeClock()
    async with service(database, clock=clock, retention_days=1) as running:
        newest = (await finished(running)).seq
        running.clock.advance(2 * DAY)
        assert await retired(running) == 1
        after = (await finished(running)).seq
        assert after > newest
        running.clock.advance(2 * DAY)
        assert await retired(running) == 1
    async with service(database, clock=clock.of_next_process()) as running:
        assert (await running.submit()).seq > after


async def test_it_works_in_batches_and_says_what_has_gone(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DELETED_AT_ONCE", 3)
    monkeypatch.setattr(retention, "_BATCHES", 2)
    async with service(database, retention_days=1) as running:
        for n in range(8):
            await running.submit(name=str(n))
        await by_hand(database, "UPDATE jobs SET state = 'cancelled', completed_at = (SELECT max(run_at) FROM jobs)")
        assert not await audit(running.core)  # all ended at the same moment, which our own never do
        moves: list[Sequence[Moved]] = []
        running.core.moves.listen(moves.append)
        running.core.feed.watch()
        running.clock.advance(2 * DAY)
        await running.roll_all_up()

        with commits_of(running.core) as commits:
            assert await retire(running.core) is True
            assert len(commits) == 2
        assert await retire(running.core) is False

        assert [event.count for event in running.heard.all(JobsRetired)] == [6, 2]
        assert [len(of_commit) for of_commit in moves] == [3, 3, 2]
        assert {(moved.old, moved.new, moved.job) for of_commit in moves for moved in of_commit} == {
            (State.CANCELLED, None, None)
        }
        assert running.heard.all(LoopFailed) == []  # whoever listens takes it
        assert look.stats(running.core).total_jobs == 0
        assert not await audit(running.core)


async def test_a_row_that_the_database_keeps_stops_no_other(database: Database) -> None:
    kept_by = "CREATE TABLE verdicts (job_id {} REFERENCES jobs (id))".format(
        "UUID" if database.kind == "postgres" else "TEXT"
    )
    async with service(database, retention_days=1) as running:
        jobs = [await running.cancel(await running.submit(name=str(n))) for n in range(3)]
        await by_hand(database, kept_by, f"INSERT INTO verdicts VALUES ('{jobs[0].id}')")
        running.clock.advance(2 * DAY)

        try:
            assert await retired(running) == 2

            [skipped] = running.heard.all(RowSkipped)
            assert skipped.job == jobs[0].id
            await assert_memory_equals_sql(running.core)
        finally:
            await by_hand(database, "DROP TABLE verdicts")


async def test_the_end_of_the_service_waits_for_one_batch(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DELETED_AT_ONCE", 1)
    async with service(database, retention_days=1) as running:
        for n in range(3):
            await running.cancel(await running.submit(name=str(n)))
        running.clock.advance(2 * DAY)
        await running.roll_all_up()
        running.core.phase = Phase.DRAINING

        assert await retire(running.core) is False
        assert look.stats(running.core).total_jobs == 2


async def test_nothing_leaves_before_its_hours_are_rolled_up(database: Database) -> None:
    async with service(database, retention_days=1) as running:
        await finished(running)
        running.clock.advance(2 * DAY)

        assert await retire(running.core) is False
        assert look.stats(running.core).total_jobs == 1
        assert await retired(running) == 1

        figures = "SELECT sum(submitted), sum(dispatched), sum(finished) FROM report_tenants_by_hour"
        assert await database.fetch(figures) == [(1, 2, 1)]


async def test_many_rows_that_the_database_keeps_stop_no_others_and_are_not_tried_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DELETED_AT_ONCE", 2)
    monkeypatch.setattr(retention, "_BATCHES", 1)
    kept_by = "CREATE TABLE verdicts (job_id {} REFERENCES jobs (id))".format(
        "UUID" if database.kind == "postgres" else "TEXT"
    )
    async with service(database, retention_days=1) as running:
        jobs = [await running.cancel(await running.submit(name=str(n))) for n in range(6)]
        await by_hand(database, kept_by, *(f"INSERT INTO verdicts VALUES ('{job.id}')" for job in jobs[:4]))
        running.clock.advance(2 * DAY)
        try:
            assert await retired(running) == 2
            assert [skipped.job for skipped in running.heard.all(RowSkipped)] == [job.id for job in jobs[:4]]
            running.clock.advance(60)
            assert await retired(running) == 0
            assert len(running.heard.all(RowSkipped)) == 4
        finally:
            await by_hand(database, "DROP TABLE verdicts")
        running.clock.advance(HOUR)
        assert await retired(running) == 4


async def test_a_batch_is_the_smaller_the_more_attempts_its_jobs_had(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 6)
    async with service(database, retention_days=1) as running:
        for _ in range(5):
            await finished(running)  # a row for the job, and two for its attempts
        running.clock.advance(2 * DAY)
        moves: list[Sequence[Moved]] = []
        running.core.moves.listen(moves.append)

        assert await retired(running) == 5
        assert [len(of_commit) for of_commit in moves] == [2, 2, 1]
        assert await database.value("SELECT count(*) FROM job_attempts") == 0
