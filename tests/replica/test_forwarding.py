"""Every replica answers every call, and a client cannot tell which one it asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx
import pytest

from tests.databases import Database, Databases
from tests.replica.several import claimed, replicas_on, submitted, until
from tests.served import PATIENCE_SEC

_JOB: Final = {"tenant": "acme", "test_suite": "suite"}
_OF_THIS_MOMENT: Final = frozenset({"date", "content-length"})
_AGO: Final = re.compile(rb"\d+ s ago")
"""It is asked for twice, and time passes between."""


@pytest.fixture(scope="module")
def kept(postgres_databases: Databases) -> Iterator[Database]:
    """What they share."""
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)


@pytest.fixture(scope="module")
async def both(kept: Database) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A client of the one that dispatches, and a client of one that stands by, for all tests that leave them as they
    are: to start two takes seconds."""
    async with (
        replicas_on(kept, 2, leader_ttl_sec=PATIENCE_SEC) as made,
        made.all[0].client() as dispatcher,
        made.all[1].client() as standby,
    ):
        yield dispatcher, standby


async def test_the_life_of_a_job_through_one_that_stands_by(
    both: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    dispatcher, standby = both
    assert (await dispatcher.get("/health/ready")).json()["role"] == "dispatcher"
    assert (await standby.get("/health/ready")).json()["role"] == "standby"
    assert (await standby.get("/health/live")).status_code == 200

    job = await submitted(standby, "once", payload={"ü": [1, None]})
    again = await standby.post("/jobs", json=_JOB | {"payload": {"ü": [1, None]}}, headers={"Idempotency-Key": "once"})
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (200, job, "true")
    batch = await standby.post("/jobs/batch", json={"jobs": [_JOB] * 3}, headers={"Prefer": "return=minimal"})
    assert len(batch.json()["ids"]) == 3
    assert (await standby.patch(f"/jobs/{job['id']}", json={"priority": 3})).json()["priority"] == 3
    assert (await standby.post(f"/jobs/{batch.json()['ids'][0]}/cancel")).json()["state"] == "cancelled"

    jobs = await claimed(standby, limit=3)
    assert len(jobs) == 3
    first, second, third = ((f"/jobs/{each['id']}", {"token": each["lease"]["token"]}) for each in jobs)
    assert (await standby.post(first[0] + "/start", json=first[1])).json()["state"] == "running"
    assert (await standby.post(first[0] + "/heartbeat", json=first[1])).is_success
    assert (await standby.post(first[0] + "/complete", json=first[1] | {"result": 7})).json()["result"] == 7
    assert (await standby.post(second[0] + "/release", json=second[1])).json()["state"] == "queued"
    assert (await standby.post(third[0] + "/fail", json=third[1] | {"error": "no"})).json()["error"] == "no"

    for client in both:
        assert (await client.get(first[0])).json()["state"] == "completed"
        assert [each["outcome"] for each in (await client.get(first[0] + "/attempts")).json()] == ["completed"]
        assert (await client.get("/stats")).json()["state_counts"]["completed"] == 1


_NO_CLAIMS = (
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"worker": "w", "wait_sec": "5"}',
    b'{"worker": "w", "wait_sec": -1}',
    b'{"worker": "w", "wait_sec": 1e400}',
    b'{"wait_sec": 1, "worker": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
)


async def test_reads_and_refusals_are_the_same_wherever_one_asks(
    both: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    dispatcher, standby = both
    job = await submitted(dispatcher, "one", queue="quiet")
    assert (await standby.put("/tenants/full", json={"max_queued": 1})).is_success
    await submitted(standby, "first-of-full", tenant="full")
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", f"/jobs/{job['id']}", {}),
        ("GET", f"/jobs/{job['id']}/attempts", {}),
        ("GET", f"/jobs/{job['id']}/explain", {}),
        ("GET", "/jobs?tenant=acme&limit=1", {}),
        ("GET", "/tenants", {}),
        ("GET", "/tenants/no%20body", {}),
        ("GET", "/queues", {}),
        ("GET", "/stats", {}),
        ("GET", "/keys", {}),
        ("GET", "/schema", {}),
        ("GET", "/nowhere", {}),
        ("GET", "/stats?what=that", {}),
        ("DELETE", "/jobs", {}),
        ("OPTIONS", "/stats", {}),
        ("POST", "/jobs", {"json": {"tenant": "acme"}}),
        ("POST", "/jobs", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ("POST", "/jobs", {"content": b"text"}),
        ("POST", "/jobs", {"content": b" " * 1_100_000, "headers": {"content-type": "application/json"}}),
        ("POST", "/jobs", {"json": _JOB | {"priority": 9}, "headers": {"Idempotency-Key": "one"}}),
        ("POST", "/jobs", {"json": _JOB | {"tenant": "full"}}),
        *(
            ("POST", "/jobs/claim", {"content": body, "headers": {"content-type": "application/json"}})
            for body in _NO_CLAIMS
        ),
        ("POST", f"/jobs/{'0' * 32}/cancel", {}),
        ("POST", f"/jobs/{job['id']}/complete", {"json": {"token": "none"}}),
        ("POST", f"/jobs/{job['id']}/retry", {}),
        ("POST", "/jobs/finish", {"json": {"results": []}}),
    ]
    for method, path, more in calls:
        told = [await client.request(method, path, **more) for client in both]
        here, there = (
            (
                answer.status_code,
                _AGO.sub(b"", answer.content),
                {k: v for k, v in answer.headers.items() if k not in _OF_THIS_MOMENT},
            )
            for answer in told
        )
        assert here == there, (method, path)
    page = await standby.get("/")
    assert "<html" in page.text


async def test_a_claim_waits_through_another_replica_and_is_given_nothing_once_its_client_has_left(
    both: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    dispatcher, standby = both
    leaving = asyncio.create_task(claimed(standby, queues=["claims"], wait_sec=30))
    await until(lambda: _waiting(dispatcher, 1))
    leaving.cancel()
    await until(lambda: _waiting(dispatcher, 0))

    staying = asyncio.create_task(claimed(standby, queues=["claims"], wait_sec=30))
    await until(lambda: _waiting(dispatcher, 1))
    job = await submitted(dispatcher, "for-who-stays", queue="claims")
    async with asyncio.timeout(PATIENCE_SEC):
        assert [each["id"] for each in await staying] == [job["id"]]


async def _waiting(client: httpx.AsyncClient, count: int) -> bool:
    return f"fairlane_waiting_claims {count}.0\n" in (await client.get("/metrics")).text


async def test_moves_are_told_through_another_replica_as_they_happen(
    both: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    dispatcher, standby = both
    async with asyncio.timeout(PATIENCE_SEC), standby.stream("GET", "/events?tenant=acme") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert await anext(lines) == ":"  # it is heard
        job = await submitted(dispatcher, "seen")
        told = [line async for line in _until_empty(lines)]
    assert job["id"] in "".join(told)


async def _until_empty(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    seen = False
    async for line in lines:
        if seen and not line:
            return
        seen = seen or bool(line)
        yield line


async def test_a_request_makes_one_hop_at_most(both: tuple[httpx.AsyncClient, httpx.AsyncClient]) -> None:
    dispatcher, standby = both
    marked = {"Fairlane-Forwarded": "somebody"}
    refused = await standby.get("/stats", headers=marked)
    assert (refused.status_code, refused.headers["fairlane-role"]) == (503, "standby")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await dispatcher.get("/stats", headers=marked)).status_code == 200


async def test_keys_are_asked_for_at_every_replica(postgres: Database) -> None:
    async with replicas_on(postgres, 2, keys="off") as made, made.all[0].client() as client:
        admin, tenant, reader = [
            (await client.post("/keys", json={"name": role, "role": role} | more)).json()["key"]
            for role, more in (("admin", {}), ("tenant", {"tenant": "acme"}), ("reader", {}))
        ]
    async with (
        replicas_on(postgres, 2, keys="required", leader_ttl_sec=PATIENCE_SEC) as made,
        made.all[1].client() as standby,
    ):
        assert (await standby.get("/stats")).status_code == 401
        assert (await standby.get("/stats", headers=_shown("flk_none"))).status_code == 401
        assert (await standby.get("/stats", headers=_shown(tenant))).status_code == 403
        assert (await standby.get("/stats", headers=_shown(admin))).status_code == 200
        assert (await standby.post("/jobs", json=_JOB, headers=_shown(tenant))).status_code == 201
        other = await standby.post("/jobs", json=_JOB | {"tenant": "other"}, headers=_shown(tenant))
        assert other.status_code == 403
        assert len((await standby.get("/jobs", headers=_shown(tenant))).json()) == 1
        assert (await standby.get("/jobs", headers=_shown(reader))).status_code == 200  # no other replica hears of it
        used = "SELECT last_used_at IS NOT NULL FROM api_keys WHERE role = 'reader'"
        await until(lambda: postgres.value(used))
        served = [event["status"] for event in made.all[0].events if event["event"] == "request_served"]
        assert 401 not in served  # who is not let in was not handed on


def _shown(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_wrong_keys_at_the_login_of_a_replica_are_not_counted_as_that_replicas(postgres: Database) -> None:
    async with replicas_on(postgres, 2, keys="off") as made, made.all[0].client() as client:
        tenant, reader = [
            (await client.post("/keys", json={"name": role, "role": role} | more)).json()["key"]
            for role, more in (("tenant", {"tenant": "acme"}), ("reader", {}))
        ]
    async with (
        replicas_on(postgres, 2, keys="required", leader_ttl_sec=PATIENCE_SEC) as made,
        made.all[1].client() as standby,
    ):
        assert (await _log_in(standby, reader)).status_code == 303
        assert (await standby.get("/")).status_code == 200
        assert (await standby.post("/page/logout", headers=_OWN_PAGE)).status_code == 303
        assert (await standby.get("/")).status_code == 303
        for _ in range(30):
            await _log_in(standby, "flk_none")
        assert (await _log_in(standby, "flk_none")).status_code == 429
        for _ in range(30):
            await standby.post("/page/logout", headers=_OWN_PAGE | {"Cookie": f"fairlane_session={tenant[:-1]}"})
        assert (await standby.get("/stats", headers=_shown(reader))).status_code == 200
        async with made.all[0].client() as dispatcher:  # it counts none that were shown elsewhere
            assert (await dispatcher.post("/jobs", json=_JOB, headers=_shown(tenant))).status_code == 201


_OWN_PAGE: Final = {"Sec-Fetch-Site": "same-origin"}


async def _log_in(client: httpx.AsyncClient, key: str) -> httpx.Response:
    return await client.post("/page/login", data={"key": key, "to": "/"}, headers=_OWN_PAGE)
