"""Both clients on the real service and both databases: every call does what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.client import (
    ClaimedJob,
    Completed,
    Conflict,
    DeadlineExceeded,
    Failed,
    FieldError,
    Hold,
    InvalidRequest,
    KeyReused,
    LeaseLost,
    NewJob,
    NotFound,
    Outcome,
    RateLimited,
    State,
)
from tests.client.both import Either

NOBODY = "0" * 32


async def claimed(client: Either, own: str, many: int = 1, *, start: bool = True) -> list[ClaimedJob]:
    """Jobs that were submitted and claimed."""
    await client.submit_batch([NewJob(tenant=own, test_suite="suite", queue=own) for _ in range(many)])
    jobs: list[ClaimedJob] = await client.claim("worker", queues=[own], limit=many, start=start)
    assert len(jobs) == many
    return jobs


async def test_a_job_is_stored_as_it_was_asked_for(client: Either, own: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    payload = {"files": ["a", "ß"], "depth": 2.5}
    job = await client.submit(
        own, "suite", priority=3, run_at=due, queue=own, payload=payload, cost=2, max_attempts=1, timeout_sec=60
    )
    assert job == await client.get_job(job.id)
    assert job.state is State.PENDING
    assert (job.tenant, job.test_suite, job.priority, job.queue, job.cost) == (own, "suite", 3, own, 2)
    assert (job.payload, job.max_attempts, job.timeout_sec, job.run_at) == (payload, 1, 60, due)
    assert job.delay_sec is None


async def test_the_same_key_is_the_same_job_and_never_another_request(client: Either, own: str) -> None:
    first = await client.submit(own, "suite", idempotency_key="build-7")
    assert (await client.submit(own, "suite", idempotency_key="build-7")).id == first.id
    with pytest.raises(KeyReused, match="build-7"):
        await client.submit(own, "another", idempotency_key="build-7")
    assert (await client.submit(own, "suite")).id != first.id


async def test_every_bad_field_is_named(client: Either, own: str) -> None:
    with pytest.raises(InvalidRequest, match="priority must be 0-10") as caught:
        await client.submit(own, "suite", priority=11, cost=0)
    assert caught.value.details == (FieldError("priority", "must be 0-10"), FieldError("cost", "must be 1-1000"))
    assert caught.value.status == 400


async def test_a_batch_is_all_or_none_and_in_order(client: Either, own: str) -> None:
    jobs = [NewJob(tenant=own, test_suite=f"suite{number}") for number in range(3)]
    stored = await client.submit_batch(jobs)
    assert [job.test_suite for job in stored] == ["suite0", "suite1", "suite2"]
    assert [job.id for job in await client.submit_batch(jobs)] == [job.id for job in stored]
    with pytest.raises(InvalidRequest) as caught:
        await client.submit_batch([NewJob(tenant=own, test_suite="fine"), NewJob(tenant=own, test_suite="")])
    assert caught.value.details[0].field == "jobs[1].test_suite"
    assert len(await client.walked(tenant=own)) == 3


async def test_many_jobs_go_in_batches_and_again_without_doubles(client: Either, own: str) -> None:
    jobs = [NewJob(tenant=own, test_suite=f"suite{number}") for number in range(25)]
    ids = await client.submit_all(jobs, at_once=10)
    assert await client.submit_all(jobs, at_once=7) == ids
    walked = await client.walked(tenant=own, order="asc", limit=4)
    assert [job.id for job in walked] == ids
    assert [job.test_suite for job in walked] == [job.test_suite for job in jobs]


async def test_a_page_leads_to_the_next(client: Either, own: str) -> None:
    await client.submit_all([NewJob(tenant=own, test_suite="suite") for _ in range(3)])
    first = await client.list_jobs(tenant=own, limit=2)
    last = await client.list_jobs(tenant=own, limit=2, cursor=first.next_cursor)
    assert (len(first.jobs), len(last.jobs)) == (2, 1)
    assert last.next_cursor is None
    assert await client.walked(tenant=own, state=State.COMPLETED) == []
    assert len(await client.walked(tenant=own, state=State.QUEUED, test_suite="suite", queue="default")) == 3


async def test_what_is_not_there_is_not_found(client: Either) -> None:
    for asked in (client.get_job, client.list_attempts, client.explain_job, client.cancel_job, client.retry_job):
        with pytest.raises(NotFound, match="job not found"):
            await asked(NOBODY)
    for strange in ("", "..", "a/b", "é?#%"):
        with pytest.raises(NotFound):
            await client.get_job(strange)
    with pytest.raises(NotFound, match="tenant not found"):
        await client.get_tenant("nobody")


async def test_a_job_goes_through_a_workers_hands(client: Either, own: str) -> None:
    [job] = await claimed(client, own, start=False)
    assert (job.state, job.worker, job.attempt) == (State.SCHEDULED, "worker", 1)
    assert job.lease.heartbeat_sec == 10.0
    with pytest.raises(Conflict, match="start it"):
        await client.complete(job.hold)
    for _ in range(2):
        assert (await client.start(job.hold)).state is State.RUNNING
    expires_at = await client.heartbeat(job.hold, lease_sec=3600, progress=0.5)
    assert expires_at > job.lease.expires_at
    assert (await client.get_job(job.id)).progress == 0.5
    for _ in range(2):
        done = await client.complete(job.hold, {"passed": 12})
        assert (done.state, done.result) == (State.COMPLETED, {"passed": 12})
    [attempt] = await client.list_attempts(job.id)
    assert (attempt.outcome, attempt.worker) == (Outcome.COMPLETED, "worker")


async def test_a_failure_is_tried_again_or_not(client: Either, own: str) -> None:
    first, second = await claimed(client, own, 2)
    assert (await client.fail(first.hold, "broken")).state is State.PENDING
    failed = await client.fail(second.hold, "hopeless", retry=False)
    assert (failed.state, failed.error) == (State.FAILED, "hopeless")


async def test_a_released_job_comes_again_and_the_old_lease_is_lost(client: Either, own: str) -> None:
    [job] = await claimed(client, own)
    assert (await client.release(job.hold)).state is State.QUEUED
    [again] = await client.claim("worker", queues=[own], start=True)
    assert (again.id, again.attempt) == (job.id, 1)
    with pytest.raises(LeaseLost):
        await client.heartbeat(job.hold)
    with pytest.raises(LeaseLost):
        await client.start(Hold(job.id, "never given"))
    await client.cancel_job(job.id)
    for late in (client.heartbeat, client.complete, client.release, client.start):
        with pytest.raises(LeaseLost, match="cancelled"):
            await late(again.hold)


async def test_many_beats_and_many_reports_are_each_judged_by_itself(client: Either, own: str) -> None:
    first, second, third = await claimed(client, own, 3)
    await client.cancel_job(second.id)
    holds = [first.hold, second.hold, third.hold]
    beats = await client.heartbeat_all(holds, lease_sec=60)
    assert [(beat.id, beat.ok) for beat in beats] == [(first.id, True), (second.id, False), (third.id, True)]
    assert beats[0].expires_at is not None
    assert "cancelled" in (beats[1].error or "")
    reports = [
        Completed(first.id, first.lease.token, result=1),
        Completed(second.id, second.lease.token),
        Failed(third.id, third.lease.token, error="no", retry=False),
    ]
    for _ in range(2):
        answers = await client.finish(reports)
        assert [(each.id, each.ok, each.state) for each in answers] == [
            (first.id, True, State.COMPLETED),
            (second.id, False, State.CANCELLED),
            (third.id, True, State.FAILED),
        ]


async def test_a_claim_of_nothing_is_empty_and_may_wait(client: Either, own: str) -> None:
    assert await client.claim("worker", queues=[own]) == []
    began = datetime.now(UTC)
    assert await client.claim("worker", queues=[own], wait_sec=1) == []
    assert datetime.now(UTC) - began >= timedelta(seconds=0.9)


async def test_a_waited_for_job_is_given_as_it_ended(client: Either, own: str) -> None:
    [job] = await claimed(client, own)
    with pytest.raises(DeadlineExceeded, match="still running"):
        await client.wait_for(job.id, 0.2)
    await client.fail(job.hold, "hopeless", retry=False)
    assert (await client.wait_for(job.id, 5)).error == "hopeless"


async def test_jobs_are_cancelled_one_by_one_and_all_together(client: Either, own: str) -> None:
    ids = await client.submit_all([NewJob(tenant=own, test_suite="suite", queue=own) for _ in range(4)])
    for _ in range(2):
        assert (await client.cancel_job(ids[0])).state is State.CANCELLED
    assert await client.cancel_jobs(own, queue="another") == 0
    assert await client.cancel_jobs(own, queue=own, test_suite="suite", state=State.QUEUED) == 3
    assert {job.state for job in await client.walked(tenant=own)} == {State.CANCELLED}


async def test_a_priority_changes_and_a_job_is_repeated(client: Either, own: str) -> None:
    job = await client.submit(own, "suite", priority=5, queue=own)
    assert (await client.patch_job(job.id, priority=1)).priority == 1
    with pytest.raises(Conflict):
        await client.retry_job(job.id)
    await client.cancel_job(job.id)
    with pytest.raises(Conflict):
        await client.patch_job(job.id, priority=2)
    again = await client.retry_job(job.id)
    assert (again.retry_of, again.priority, again.state) == (job.id, 1, State.QUEUED)


async def test_tenants_are_set_and_changed(client: Either, own: str) -> None:
    made = await client.put_tenant(own, weight=3, rate_per_sec=2.5, burst=7, max_running=4, paused=True)
    assert (made.weight, made.rate_per_sec, made.burst, made.max_running, made.paused) == (3, 2.5, 7, 4, True)
    changed = await client.patch_tenant(own, rate_per_sec=None, max_running=None)
    assert (changed.weight, changed.rate_per_sec, changed.max_running, changed.paused) == (3, None, None, True)
    assert await client.get_tenant(own) == changed
    assert own in [tenant.name for tenant in await client.list_tenants()]
    assert (await client.put_tenant(own)).weight == 1


@pytest.mark.parametrize("name", ["..", ".", "a b", "100%", "what?", "#1", "é\u4e16", "a;b=c,d&e"])
async def test_a_tenant_may_have_any_name(client: Either, own: str, name: str) -> None:
    made = await client.put_tenant(name, weight=2)
    assert made.name == name
    assert (await client.submit(name, "suite", queue=own)).tenant == name
    assert (await client.get_tenant(name)).queued >= 1
    assert [job.tenant for job in await client.walked(tenant=name, queue=own)] == [name]


async def test_queues_are_set(client: Either, own: str) -> None:
    assert (await client.put_queue(own, paused=True)).paused
    await client.submit(own, "suite", queue=own)
    assert await client.claim("worker", queues=[own]) == []
    [queue] = [queue for queue in await client.list_queues() if queue.name == own]
    assert (queue.paused, queue.queued) == (True, 1)


async def test_the_servers_are_listed(client: Either) -> None:
    [replica] = await client.list_replicas()
    assert replica.role == "dispatcher"
    assert replica.lag_sec >= 0
    assert replica.dispatching_since is not None
    assert replica.started_at <= replica.dispatching_since <= replica.last_seen_at


async def test_the_jobs_are_counted(client: Either, own: str) -> None:
    await client.submit_all([NewJob(tenant=own, test_suite="suite", queue=own) for _ in range(3)])
    stats = await client.stats()
    assert stats.tenant_counts[own] == 3
    assert stats.queues[own].queue_depth == 3
    assert stats.queues[own].state_counts[State.QUEUED] == 3


async def test_a_waiting_job_is_explained(client: Either, own: str) -> None:
    first, second = await client.submit_batch([NewJob(tenant=own, test_suite=f"{n}", queue=own) for n in range(2)])
    told = await client.explain_job(second.id)
    assert (told.id, told.state, told.ahead, told.ahead_exact) == (second.id, State.QUEUED, 1, True)
    assert told.ahead_by_tenant == {own: 1}
    assert [reason.code for reason in told.reasons] == ["others_first", "no_worker"]
    assert told.terms is not None
    assert (told.terms.policy, told.terms.key, told.terms.submitted_at) == ("virtual-time", 1.0, second.submitted_at)
    assert told.bound is not None
    assert told.bound.of_weight_1 == 13
    assert (told.estimate, told.to_be_next.changes) == (None, None)
    assert (await client.explain_job(first.id)).to_be_next.changes == []
    await client.cancel_job(first.id)
    told = await client.explain_job(first.id)
    assert ([reason.code for reason in told.reasons], told.terms, told.bound) == (["final"], None, None)


async def test_a_rate_is_waited_for_within_the_deadline(client: Either, own: str) -> None:
    await client.put_tenant(own, rate_per_sec=1, burst=1)
    await client.submit(own, "suite")
    await client.submit(own, "suite")
    await client.patch_tenant(own, rate_per_sec=0.01)
    with pytest.raises(RateLimited, match=own) as caught:
        await client.without_retries().submit(own, "suite")
    assert caught.value.retry_after is not None
    assert 1 < caught.value.retry_after <= 100


async def test_a_full_tenant_is_told_without_a_date(client: Either, own: str) -> None:
    await client.put_tenant(own, max_queued=1)
    await client.submit(own, "suite")
    with pytest.raises(RateLimited) as caught:
        await client.without_retries().submit(own, "suite")
    assert caught.value.retry_after is None


async def test_a_tenant_is_erased_once_nothing_of_it_is_unfinished(client: Either, own: str) -> None:
    [job] = await claimed(client, own)
    with pytest.raises(Conflict, match="has 1 unfinished jobs"):
        await client.erase_tenant(own)
    await client.complete(job.hold)

    there = await client.erase_tenant(own, dry_run=True)
    assert (there.erased, there.left, there.unfinished, there.is_gone) == (0, 1, 0, False)
    done = await client.erase_tenant(own)
    assert (done.erased, done.left, done.unfinished, done.is_gone) == (1, 0, 0, True)

    with pytest.raises(NotFound, match="tenant not found"):
        await client.erase_tenant(own)
    with pytest.raises(NotFound, match="job not found"):
        await client.get_job(job.id)
