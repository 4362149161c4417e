"""The same request, sent again: by a client that heard nothing, by its twin, by somebody with other intentions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.errors import KeyReused, RateLimited, Unavailable
from app.flow import tenancy
from app.flow.submit import JobRequest, Submitted, submit
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from app.store import jobs
from tests.databases import Database
from tests.flow.harness import Running, answers_of, by_hand, failing, mortal, service
from tests.flow.views import assert_memory_equals_sql


def request(key: str | None = "key", tenant: str = "acme", name: str = "unit", **asked: Any) -> JobRequest:
    return JobRequest(tenant=tenant, test_suite=name, idempotency_key=key, **asked)


async def send(running: Running, *requests: JobRequest) -> list[Submitted]:
    return await submit(running.core, requests)


async def stored(database: Database) -> int:
    return int(await database.value("SELECT count(*) FROM jobs"))


async def test_the_same_request_is_answered_with_the_first_job_as_it_is_now(database: Database) -> None:
    async with service(database) as running:
        [first] = await send(running, request())
        [again] = await send(running, request())
        assert again == Submitted(first.job, replayed=True)
        assert not first.replayed

        claimed = await running.claim_one(start=True)
        done = await running.complete(claimed)

        [late] = await send(running, request())
        assert late == Submitted(done, replayed=True)
        assert await stored(database) == 1
        await assert_memory_equals_sql(running.core)


async def test_of_twins_at_the_same_time_one_is_stored_and_all_hear_of_it(database: Database) -> None:
    async with service(database) as running:
        answers = await asyncio.gather(*(send(running, request()) for _ in range(20)))

        assert len({answer.job.id for [answer] in answers}) == 1
        assert sorted(answer.replayed for [answer] in answers) == [False] + [True] * 19
        assert await stored(database) == 1
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "another"},
        {"priority": 1},
        {"delay_sec": 1},
        {"payload": {"a": 2}},
        {"queue": "other"},
        {"cost": 2},
        {"max_attempts": 4},
        {"timeout_sec": 9},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_key_with_another_request_is_refused(database: Database, other: dict[str, Any]) -> None:
    async with service(database) as running:
        [first] = await send(running, request(payload={"a": 1}))

        with pytest.raises(KeyReused, match="'key'"):
            await send(running, request(**{"payload": {"a": 1}, **other}))

        assert await stored(database) == 1
        assert (await send(running, request(payload={"a": 1})))[0].job == first.job
        await assert_memory_equals_sql(running.core)


async def test_a_payload_is_the_same_in_whatever_order_its_keys_stand(database: Database) -> None:
    async with service(database) as running:
        await send(running, request(payload={"a": 1, "b": {"x": 1, "y": 2}}))
        [again] = await send(running, request(payload={"b": {"y": 2, "x": 1}, "a": 1}))
        assert again.replayed


async def test_a_twin_with_another_request_at_the_same_time_is_refused(database: Database) -> None:
    async with service(database) as running:
        first, other, same = await answers_of(
            [asyncio.ensure_future(send(running, wanted)) for wanted in (request(), request(name="another"), request())]
        )
        assert (first[0].replayed, same[0].replayed) == (False, True)
        assert isinstance(other, KeyReused)
        assert await stored(database) == 1


async def test_a_key_is_its_tenants_own(database: Database) -> None:
    async with service(database) as running:
        [mine], [theirs] = await send(running, request()), await send(running, request(tenant="other"))
        assert not theirs.replayed
        assert mine.job.id != theirs.job.id
        assert await stored(database) == 2


async def test_a_batch_stores_what_is_new_and_answers_in_order(database: Database) -> None:
    async with service(database) as running:
        [known] = await send(running, request("known", name="known"))
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.001, burst=3))

        batch = [
            request("new", name="new"),
            request("known", name="known"),
            request(None, name="plain"),
            request("new", name="new"),
            request(None, name="plain"),
        ]
        answers = await send(running, *batch)

        assert [answer.job.test_suite for answer in answers] == ["new", "known", "plain", "new", "plain"]
        assert [answer.replayed for answer in answers] == [False, True, False, True, False]
        assert answers[0].job.id == answers[3].job.id
        assert answers[1].job == known.job
        assert answers[2].job.id != answers[4].job.id
        assert await stored(database) == 4
        with pytest.raises(RateLimited):  # three tokens were taken, for the three that are new
            await send(running, request(None))
        assert all(answer.replayed for answer in await send(running, *batch[:2], batch[3]))  # and these need none
        await assert_memory_equals_sql(running.core)


async def test_a_batch_with_a_key_used_otherwise_stores_nothing_and_takes_no_token(database: Database) -> None:
    async with service(database) as running:
        await send(running, request("known", name="known"))
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.001, burst=2))

        for batch in (
            [request("new"), request("known", name="another")],
            [request("new"), request("new", name="another")],
        ):
            with pytest.raises(KeyReused):
                await send(running, *batch)

        assert await stored(database) == 1
        await send(running, request("new"), request("newer"))
        await assert_memory_equals_sql(running.core)


async def test_batches_that_share_keys_do_not_wait_for_each_other_for_ever(database: Database) -> None:
    async with service(database) as running:
        forward = [request(f"key {n}", name=f"job {n}") for n in range(5)]

        answers = await answers_of(
            [asyncio.ensure_future(send(running, *batch)) for batch in (forward, forward[::-1], forward[2:4])]
        )

        assert [sum(not answer.replayed for answer in batch) for batch in answers] == [5, 0, 0]
        assert await stored(database) == 5


async def test_a_key_holds_over_a_restart(database: Database) -> None:
    async with mortal(database) as killed:
        [first] = await send(killed.running, request())
        running = await killed.restart()

        [again] = await send(running, request())

        assert again == Submitted(first.job, replayed=True)
        with pytest.raises(KeyReused):
            await send(running, request(name="another"))


async def test_a_request_whose_commit_was_not_heard_of_is_found_when_it_is_sent_again(database: Database) -> None:
    async with service(database) as running:
        with failing(running.core, "after commit"), pytest.raises(Unavailable):
            await send(running, request())

        [again] = await send(running, request())

        assert again.replayed
        assert await stored(database) == 1
        await running.tick()  # it was found without a write, so the doubt is still there
        await assert_memory_equals_sql(running.core)


async def test_a_request_that_failed_leaves_its_key_free(database: Database) -> None:
    async with service(database) as running:
        with failing(running.core, "commit"), pytest.raises(Unavailable):
            await send(running, request())
        await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.001, burst=1))
        await send(running, request(None))
        with pytest.raises(RateLimited):
            await send(running, request())
        running.clock.advance(1000)

        [answer] = await send(running, request())

        assert not answer.replayed


async def test_a_row_with_the_key_that_is_typed_meanwhile_wins(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys, looked = jobs.with_keys, 0

    async def look_and_be_overtaken(*args: Any) -> list[Job]:
        nonlocal looked
        looked += 1
        found = await with_keys(*args)
        if looked == 1:
            columns = "tenant, test_suite, idempotency_key, request_digest"
            values = f"'acme', 'unit', 'key', '{request().digest}'"
            await by_hand(database, f"INSERT INTO jobs ({columns}) VALUES ({values})")
        return found

    async with service(database) as running:
        core = running.core
        [known] = await send(running, request("known", name="known"))
        await tenancy.put_tenant(core, "acme", TenantSettings(rate_per_sec=0.001, burst=1))
        monkeypatch.setattr(jobs, "with_keys", look_and_be_overtaken)

        answers, neighbour = await asyncio.gather(
            send(running, request(), request("known", name="known")), running.submit("other")
        )

        assert looked == 2
        assert [answer.replayed for answer in answers] == [True, True]
        assert answers[0].job.state is State.PENDING
        assert answers[1].job == known.job
        assert neighbour.state is State.QUEUED
        assert await stored(database) == 3
        await running.submit()  # the token was not needed after all
        await running.tick(after=5)
        await assert_memory_equals_sql(core)
