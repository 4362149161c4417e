"""Writes that wait together share a commit, and nothing else: what befalls one of them is its own affair."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, StatementError

from app.errors import Conflict, FairlaneError, LeaseLost, NotFound, TooManyQueued
from app.events import LoopFailed
from app.flow import cancel, finish, lease, tenancy
from app.flow.core import Core
from app.flow.finish import Report
from app.flow.lease import existing_job
from app.flow.look import get_job, list_attempts
from app.flow.submit import JobRequest, submit
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, Move, Outcome, State
from app.store import jobs, numbers, writer
from app.store.transaction import Transaction
from app.store.writer import GROUP_ITEMS
from tests.databases import Database
from tests.flow.harness import (
    Running,
    answers_of,
    busy,
    by_hand,
    commits_of,
    in_one_group,
    service,
    statements_of,
    token_of,
)
from tests.flow.views import assert_memory_equals_sql

NO_JOB = "0" * 32


async def test_many_submits_at_once_share_a_few_commits(database: Database) -> None:
    async with service(database) as running:
        with commits_of(running.core) as commits:
            await asyncio.gather(*(running.submit() for _ in range(64)))

        assert 1 <= len(commits) <= 3
        await assert_memory_equals_sql(running.core)


async def test_a_write_on_an_idle_service_takes_one_commit_of_its_own(database: Database) -> None:
    async with service(database) as running:
        with commits_of(running.core) as commits:
            job = await running.submit()
            assert len(commits) == 1
            await running.claim_one(start=True)
            assert len(commits) == 2
            await running.cancel(job)
            assert len(commits) == 3


async def test_what_changes_nothing_takes_no_commit(database: Database) -> None:
    async with service(database) as running:
        await running.submit(delay_sec=60)
        with commits_of(running.core) as commits:
            assert await running.claim() == []
            await running.tick()

        assert commits == []


async def test_what_waits_for_a_transaction_shares_the_next_one_and_no_later(database: Database) -> None:
    async with service(database) as running:
        with commits_of(running.core) as commits:
            async with busy(running.core) as backlog:
                waiting = [asyncio.create_task(running.submit()) for _ in range(20)]
                await backlog.grows_to(20)
            jobs = await answers_of(waiting)

        assert len(commits) == 2  # the one they waited for, and theirs
        assert [job.seq for job in jobs] == list(range(1, 21))


async def test_a_write_that_wants_to_be_alone_is(database: Database) -> None:
    async with service(database) as running:
        seen = list[int]()

        async def look(_tx: Transaction) -> None:
            seen.append(running.core.moves.mark())

        with commits_of(running.core) as commits:
            async with busy(running.core) as backlog:
                before = [asyncio.create_task(running.submit()) for _ in range(3)]
                await backlog.grows_to(3)
                alone = [asyncio.create_task(running.core.write(look, alone=True)) for _ in range(2)]
                await backlog.grows_to(5)
                after = [asyncio.create_task(running.submit()) for _ in range(3)]
                await backlog.grows_to(8)
            await answers_of([*before, *alone, *after])

        assert seen == [0, 0]  # nothing of anybody else's is under way
        assert await database.value("SELECT count(*) FROM jobs") == 6
        assert len(commits) == 5


async def test_large_batches_do_not_wait_for_one_another(database: Database) -> None:
    """While the database is at work on one, the next can be read and checked."""
    async with service(database) as running:
        batch = [JobRequest(tenant="acme", test_suite="smoke")] * GROUP_ITEMS
        with commits_of(running.core) as commits:
            async with busy(running.core):
                tasks = [
                    asyncio.ensure_future(submit(running.core, each)) for each in (batch[:1], batch, batch, batch[:1])
                ]
                await asyncio.sleep(0)
            await answers_of(tasks)
        assert len(commits) == 1 + 3  # what held them up, then one and many, many, one


async def test_of_a_large_batch_the_database_gets_some_while_the_next_are_made(database: Database) -> None:
    async with service(database) as running:
        many = [JobRequest(tenant="acme", test_suite=f"{n}") for n in range(10)]  # of which three are sent at once
        made = list[int]()
        with statements_of(running.core) as run, pytest.MonkeyPatch.context() as patch:
            patch.setattr(running.core, "note_move", counting(running.core.note_move, made, lambda: _inserts(run)))
            jobs = await running.submit_all(many)
        assert _inserts(run) == 4
        assert max(made) == 3  # statements had gone out as the last job was made
        assert [job.test_suite for job in jobs] == [request.test_suite for request in many]
        assert await database.value("SELECT count(*) FROM jobs") == len(many)
        await assert_memory_equals_sql(running.core)


def _inserts(run: list[str]) -> int:
    return sum("INSERT INTO jobs" in statement for statement in run)


def counting(real: Callable[..., None], seen: list[int], count: Callable[[], int]) -> Callable[..., None]:
    """What `count` says at each call of `real`."""

    def call(*given: Any) -> None:
        seen.append(count())
        real(*given)

    return call


# --- One that is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 4, 8, 9])
async def test_a_row_of_a_large_batch_that_the_database_refuses_leaves_its_neighbours_stored(
    database: Database, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on its way while later ones are made, or while the transaction comes to its end, or the last."""
    monkeypatch.setattr(numbers, "FEWEST_DRAWN", 1)
    monkeypatch.setattr(writer, "PLANS_LAST", 3)
    async with service(database) as running:
        many = [JobRequest(tenant="acme", test_suite="unit")] * 10
        await running.submit()  # the tenant is known: with the jobs nothing else is on its way
        bad = [replace(each, test_suite=" ") if n == place else each for n, each in enumerate(many)]

        first, refused, last = await in_one_group(
            running.core, running.submit(), submit(running.core, bad), running.submit()
        )

        assert isinstance(refused, IntegrityError)
        assert [first.state, last.state] == [State.QUEUED, State.QUEUED]
        assert await database.value("SELECT count(*) FROM jobs") == 3
        await assert_memory_equals_sql(running.core)
        assert len(await submit(running.core, many)) == len(many)


async def test_a_row_that_the_database_refuses_leaves_its_neighbours_stored(database: Database) -> None:
    async with service(database) as running:
        with commits_of(running.core) as commits:
            first, bad, delayed, last = await in_one_group(
                running.core,
                running.submit(name="first"),
                running.submit(tenant="a/b"),
                running.submit(name="later", delay_sec=60),
                running.submit(name="last", tenant="new", queue="new"),
            )

        assert isinstance(bad, IntegrityError)
        assert [first.state, delayed.state, last.state] == [State.QUEUED, State.PENDING, State.QUEUED]
        assert len(commits) == 1
        assert await database.value("SELECT count(*) FROM jobs") == 3
        assert await database.value("SELECT count(*) FROM tenants") == 2
        await assert_memory_equals_sql(running.core)
        assert [job.test_suite for job in await running.claim(9, "default", "new")] == ["first", "last"]


async def test_all_rows_of_a_group_may_be_refused_but_one(database: Database) -> None:
    async with service(database) as running:
        *bad, good = await in_one_group(running.core, *(running.submit(f"bad/{n}") for n in range(5)), running.submit())

        assert all(isinstance(answer, IntegrityError) for answer in bad)
        assert (await get_job(running.core, good.id)).state is State.QUEUED
        await assert_memory_equals_sql(running.core)


async def test_refusals_cost_their_neighbours_nothing(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await tenancy.put_tenant(core, "full", TenantSettings(max_queued=1))
        await running.submit("full")
        await running.submit("busy", queue="busy")
        held = await running.claim_one("busy")

        with commits_of(core) as commits:
            *refusals, job = await in_one_group(
                core,
                running.submit("full"),
                finish.complete(core, held.id, "not the token"),
                finish.complete(core, held.id, token_of(held)),
                cancel.cancel(core, NO_JOB),
                lease.heartbeat(core, NO_JOB, "a token"),
                tenancy.patch_tenant(core, "nobody", {"weight": 2}),
                running.submit(),
            )

        assert [type(refusal) for refusal in refusals] == [
            TooManyQueued,
            LeaseLost,
            Conflict,
            NotFound,
            NotFound,
            NotFound,
        ]
        assert len(commits) == 1
        assert (await get_job(core, job.id)).state is State.QUEUED
        await assert_memory_equals_sql(core)


async def test_reports_and_beats_of_one_group_are_read_and_written_together(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit_all([JobRequest(tenant="acme", test_suite="unit")] * 12)
        held = await running.claim(12, start=True)
        with statements_of(core) as told:
            await in_one_group(
                core,
                *(finish.complete(core, job.id, token_of(job), n) for n, job in enumerate(held[:4])),
                finish.report_each(core, [Report(job.id, token_of(job), finish.completed()) for job in held[4:8]]),
                *(lease.heartbeat(core, job.id, token_of(job), 60, progress=0.5) for job in held[8:]),
            )

        of_jobs = Counter(sql.split(maxsplit=1)[0] for sql in told if "jobs" in sql or "job_attempts" in sql)
        assert of_jobs == {"SELECT": 1, "INSERT": 1, "UPDATE": 2}
        assert [(await get_job(core, job.id)).result for job in held[:4]] == [0, 1, 2, 3]
        await assert_memory_equals_sql(core)


async def test_a_report_that_cannot_be_written_costs_no_other_report_anything(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit_all([JobRequest(tenant="acme", test_suite="unit")] * 5)
        held = await running.claim(5, start=True)
        bad, good, late = (finish.completed(result) for result in (float("nan"), 1, 2))

        refused, completed, mixed, beaten = await in_one_group(
            core,
            finish.complete(core, held[0].id, token_of(held[0]), float("nan")),
            finish.complete(core, held[1].id, token_of(held[1]), "done"),
            finish.report_each(
                core,
                [
                    Report(held[2].id, token_of(held[2]), good),
                    Report(held[3].id, token_of(held[3]), bad),
                    Report(held[2].id, token_of(held[2]), late),
                ],
            ),
            lease.heartbeat(core, held[4].id, token_of(held[4])),
        )

        assert isinstance(refused, (StatementError, ValueError))
        assert isinstance(completed, Job)
        assert isinstance(mixed, (StatementError, ValueError))
        assert isinstance(beaten, datetime)
        now = [await get_job(core, job.id) for job in held]
        assert [(job.state, job.result) for job in now] == [
            (State.RUNNING, None),
            (State.COMPLETED, "done"),
            (State.COMPLETED, 1),
            (State.RUNNING, None),
            (State.RUNNING, None),
        ]
        await assert_memory_equals_sql(core)


async def test_reports_of_one_group_meet_what_those_before_them_did(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one(start=True)
        reports = [
            Report(held.id, "not the token", finish.completed()),
            Report(held.id, token_of(held), finish.released),
            Report(held.id, token_of(held), finish.completed()),
            Report(held.id, "not the token", finish.completed()),
            Report(NO_JOB, token_of(held), finish.completed()),
        ]

        lost, released, again, lost_later, nothing = await finish.report_each(core, reports)

        assert isinstance(lost, LeaseLost)
        assert lost.state == State.RUNNING
        assert released == again == await get_job(core, held.id)
        assert isinstance(lost_later, LeaseLost)
        assert lost_later.state == State.QUEUED
        assert isinstance(nothing, NotFound)
        assert [attempt.outcome for attempt in await list_attempts(core, held.id)] == [Outcome.RELEASED]


async def test_jobs_of_one_group_count_against_the_limit_on_waiting_ones(database: Database) -> None:
    async with service(database) as running:
        await tenancy.put_tenant(running.core, "acme", TenantSettings(max_queued=3))

        answers = await in_one_group(running.core, *(running.submit(delay_sec=n) for n in range(5)))

        assert [type(answer) for answer in answers] == [Job, Job, Job, TooManyQueued, TooManyQueued]
        await assert_memory_equals_sql(running.core)


class Bug(Exception):
    """What nobody has thought of."""


async def _forgetful(core: Core, tx: Transaction, *, at: str) -> None:
    """A write that does half of its work."""
    if at == "once":
        raise Bug
    connection = await tx.settled()
    await connection.execute(text("UPDATE tenants SET weight = 7 WHERE name = 'acme'"))
    core.order.set_tenant("acme", weight=7, max_running=None, paused=False)
    assert core.order.pick("default") is not None
    tx.need_tenant("half")
    tx.after_commit(core.known_tenants.add, "half")
    raise Bug


@pytest.mark.parametrize("at", ["once", "the end"])
async def test_a_bug_in_a_write_is_the_answer_of_that_write_alone(database: Database, at: str) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit(name="old")

        before, bug, after = await in_one_group(
            core,
            running.submit(name="before"),
            core.write(lambda tx: _forgetful(core, tx, at=at)),
            running.submit(name="after"),
        )

        assert isinstance(bug, Bug)
        assert [before.state, after.state] == [State.QUEUED, State.QUEUED]
        assert "half" not in core.known_tenants
        await assert_memory_equals_sql(core)
        assert [job.test_suite for job in await running.claim(9)] == ["old", "before", "after"]


async def test_a_step_after_the_commit_that_raises_stops_neither_the_writer_nor_its_neighbours(
    database: Database,
) -> None:
    def bug() -> None:
        raise Bug

    async def write(tx: Transaction) -> str:
        tx.after_commit(bug)
        return "stored"

    async with service(database) as running:
        core = running.core
        await running.submit(name="old")

        claimed, stored, job = await in_one_group(core, running.claim_one(), core.write(write), running.submit())

        assert (claimed.state, stored, job.state) == (State.SCHEDULED, "stored", State.QUEUED)
        assert len(running.heard.all(LoopFailed)) == 1
        await running.submit()
        await assert_memory_equals_sql(core)


# --- Two that meet -----------------------------------------------------------------------------------------


@pytest.fixture(params=["together", "beside a bad row"])
def is_spoiled(request: pytest.FixtureRequest) -> bool:
    """Whether the group is one that has to be run a second time, each write by itself."""
    return bool(request.param == "beside a bad row")


async def meeting(running: Running, *requests: Coroutine[Any, Any, Any], spoiled: bool) -> list[Any]:
    """The answers of requests that share a transaction; memory is right after it."""
    if not spoiled:
        answers = await in_one_group(running.core, *requests)
    else:
        bad, *answers = await in_one_group(running.core, running.submit("a/b"), *requests)
        assert isinstance(bad, IntegrityError)
    await assert_memory_equals_sql(running.core)
    return answers


async def outcomes_of(running: Running, job: Job) -> list[Outcome]:
    return [attempt.outcome for attempt in await list_attempts(running.core, job.id)]


async def test_a_claim_and_a_cancel_of_the_job_it_gets(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        job = await running.submit()

        [claimed], cancelled = await meeting(running, running.claim(), running.cancel(job), spoiled=is_spoiled)

        assert (claimed.id, cancelled.state) == (job.id, State.CANCELLED)
        assert await outcomes_of(running, job) == [Outcome.CANCELLED]
        with pytest.raises(LeaseLost):
            await running.complete(claimed)


async def test_a_cancel_and_a_claim_that_comes_too_late(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        job, other = await running.submit(priority=0), await running.submit(priority=1)

        cancelled, [claimed] = await meeting(running, running.cancel(job), running.claim(), spoiled=is_spoiled)

        assert (cancelled.state, claimed.id) == (State.CANCELLED, other.id)


async def test_a_submit_and_a_claim_that_gets_it(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        waiting = await running.submit(priority=5)

        urgent, claimed = await meeting(
            running, running.submit(priority=0), running.claim(2, start=True), spoiled=is_spoiled
        )

        assert [job.id for job in claimed] == [urgent.id, waiting.id]


async def test_two_reports_with_one_token(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one(start=True)

        first, second, third = await meeting(
            running, running.complete(held, "mine"), running.complete(held, "too late"), running.fail(held),
            spoiled=is_spoiled,
        )  # fmt: skip

        assert [job.state for job in (first, second, third)] == [State.COMPLETED] * 3
        assert [job.result for job in (first, second, third)] == ["mine"] * 3
        assert await outcomes_of(running, held) == [Outcome.COMPLETED]


async def test_a_complete_and_a_cancel(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one(start=True)

        done, refused = await meeting(running, running.complete(held), running.cancel(held), spoiled=is_spoiled)

        assert done.state is State.COMPLETED
        assert isinstance(refused, Conflict)
        assert not isinstance(refused, LeaseLost)


async def test_a_cancel_and_a_complete(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        await running.submit()
        held = await running.claim_one(start=True)

        cancelled, refused, again = await meeting(
            running, running.cancel(held), running.complete(held), running.cancel(held), spoiled=is_spoiled
        )

        assert isinstance(refused, LeaseLost)
        assert cancelled == again


async def test_a_release_and_a_claim_that_gets_the_job_again(
    database: Database,
    is_spoiled: bool,  # noqa: FBT001
) -> None:
    async with service(database) as running:
        await running.submit()
        await running.submit(priority=9)
        held = await running.claim_one(start=True)

        released, [claimed] = await meeting(running, running.release(held), running.claim(), spoiled=is_spoiled)

        assert (released.state, claimed.id, claimed.attempt) == (State.QUEUED, held.id, 1)
        assert claimed.token != held.token
        await running.complete((await meeting(running, lease.start(running.core, claimed.id, token_of(claimed)),
                                              spoiled=False))[0])  # fmt: skip


async def test_a_beat_that_comes_before_the_lapse_keeps_the_lease(
    database: Database,
    is_spoiled: bool,  # noqa: FBT001
) -> None:
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one(start=True)
        running.clock.advance(31)
        [ended] = core.leases.take_ended(core.clock.monotonic_ns(), 9)

        renewed, lapsed = await meeting(
            running,
            lease.heartbeat(core, held.id, token_of(held)),
            finish.end_if_ended(core, ended),
            spoiled=is_spoiled,
        )

        assert lapsed is None
        assert renewed == (await get_job(core, held.id)).lease_expires_at
        await running.tick()
        assert (await get_job(core, held.id)).state is State.RUNNING
        await running.tick(after=31)  # and it is found again
        assert (await get_job(core, held.id)).state is State.PENDING


async def test_a_beat_that_comes_after_the_lapse_is_told(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one(start=True)
        running.clock.advance(31)
        [ended] = core.leases.take_ended(core.clock.monotonic_ns(), 9)

        lapsed, beat, late = await meeting(
            running,
            finish.end_if_ended(core, ended),
            lease.heartbeat(core, held.id, token_of(held), progress=0.5),
            running.complete(held),
            spoiled=is_spoiled,
        )

        assert lapsed is None
        assert [type(beat), type(late)] == [LeaseLost, LeaseLost]
        assert (await get_job(core, held.id)).progress is None
        assert await outcomes_of(running, held) == [Outcome.LAPSED]


async def test_a_report_that_comes_before_the_lapse_counts(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        core = running.core
        await running.submit()
        held = await running.claim_one(start=True)
        running.clock.advance(31)
        [ended] = core.leases.take_ended(core.clock.monotonic_ns(), 9)

        done, _ = await meeting(running, running.complete(held), finish.end_if_ended(core, ended), spoiled=is_spoiled)

        assert done.state is State.COMPLETED
        assert await outcomes_of(running, held) == [Outcome.COMPLETED]


@pytest.mark.parametrize("settings", [TenantSettings(paused=True), TenantSettings(max_running=1)], ids=["pause", "cap"])
async def test_settings_and_a_claim_that_comes_after_them(
    database: Database,
    is_spoiled: bool,  # noqa: FBT001
    settings: TenantSettings,
) -> None:
    async with service(database) as running:
        for n in range(3):
            await running.submit(name=f"mine {n}")
        await running.submit("other", "other", priority=10)

        _, claimed = await meeting(
            running,
            tenancy.put_tenant(running.core, "acme", settings),
            running.claim(9),
            spoiled=is_spoiled,
        )

        wanted = ["other"] if settings.paused else ["mine 0", "other"]
        assert [job.test_suite for job in claimed] == wanted


async def test_a_pause_of_a_queue_stops_the_claims_behind_it(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        core = running.core
        await running.submit()

        _, claimed = await meeting(
            running, tenancy.put_queue(core, "default", paused=True), running.claim(), spoiled=is_spoiled
        )
        assert claimed == []

        await meeting(running, tenancy.put_queue(core, "default", paused=False), spoiled=is_spoiled)
        assert len(await running.claim()) == 1


async def test_claims_that_meet_share_the_jobs_out(database: Database, is_spoiled: bool) -> None:  # noqa: FBT001
    async with service(database) as running:
        await in_one_group(running.core, *(running.submit() for _ in range(9)))

        few = await meeting(running, *(running.claim(2) for _ in range(2)), spoiled=is_spoiled)
        assert [len(answer) for answer in few] == [2, 2]
        many = await meeting(running, *(running.claim(2) for _ in range(4)), spoiled=is_spoiled)
        assert [len(answer) for answer in many] == [2, 2, 1, 0]

        jobs = [job for answer in (*few, *many) for job in answer]
        assert [job.seq for job in jobs] == list(range(1, 10))  # first come, first served, and in order
        assert [job.attempt for job in jobs] == [1] * 9
        assert await database.value("SELECT count(*) FROM job_attempts") == 0


async def test_a_refusal_after_a_change_of_the_same_write_undoes_that_change(database: Database) -> None:
    async def change_then_refuse(core: Core, tx: Transaction, first_id: str) -> None:
        job = await existing_job(await tx.reading(), first_id)
        values = {"completed_at": core.clock.now()}
        assert await jobs.move_if_unchanged(await tx.settled(), job, Move(State.QUEUED, State.CANCELLED), values)
        assert core.order.withdraw(job.id) is not None
        core.note_move(job, State.QUEUED)
        raise FairlaneError("refused after all")

    async with service(database) as running:
        core = running.core
        first, second = await running.submit(name="a"), await running.submit(name="b")

        refused, [claimed] = await meeting(
            running, core.write(lambda tx: change_then_refuse(core, tx, first.id)), running.claim(), spoiled=False
        )

        assert str(refused) == "refused after all"
        assert claimed.id == first.id
        assert (await running.claim_one()).id == second.id


async def test_what_is_answered_of_a_job_is_what_its_row_says(database: Database) -> None:
    """Also if a start of it and a beat were written together."""
    async with service(database) as running:
        core = running.core
        await running.submit()
        job = await running.claim_one()
        await in_one_group(
            core,
            lease.start(core, job.id, token_of(job)),
            lease.heartbeat(core, job.id, token_of(job), progress=0.5),
        )
        done = await running.complete(job, "done")
        assert done.progress == 0.5
        assert done == await get_job(core, job.id)


async def test_a_payload_that_is_too_deep_to_tell_stops_nobody(database: Database) -> None:
    """Typed by hand: the database reads it, and Python, or not."""
    depths = range(900, 1000, 2)  # where that begins depends on how deep the caller is
    rows = (f"('acme', 'deep', '{'[' * depth}{']' * depth}')" for depth in depths)
    async with service(database) as running:
        await running.submit()
        await by_hand(database, f"INSERT INTO jobs (tenant, test_suite, payload) VALUES {', '.join(rows)}")
        await running.tick(5)
        assert len(await running.claim(99, start=True)) == len(depths) + 1
        await running.submit()
    async with service(database) as running:
        await assert_memory_equals_sql(running.core)
        assert len(await running.claim(99)) == 1
