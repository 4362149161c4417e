"""Call by call over HTTP and on both databases, as in `tests/api`: priorities, bulk cancels, retries, reports
and beats in bulk, claims that wait. What each takes, answers and refuses, said twice, too late, after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from app import main
from app.api.application import create_app
from app.flow.core import Core, Phase
from app.settings import read_settings
from tests.api.asgi import client_of
from tests.api.test_http_contract import JOB_FIELDS, JSON, NO_JOB, asked, at, claimed, refused, running, submitted
from tests.databases import Database

BAD_PRIORITIES: Final[list[Any]] = [-1, 11, 10**30, "5", 5.0, 0.5, True, None, [], {}, "high", "\x00"]
BAD_NAMES: Final[list[Any]] = ["", 5, True, [], {}, "a/b", "a\nb", "a\x00", " ", "\u3000", "a" * 129, None]
BAD_IDS: Final[list[Any]] = ["", "x", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", "\x00", 5, None, [], {}, "é" * 32]
BAD_TOKENS: Final[list[Any]] = ["", "a\x00", "a" * 256, 5, None, [], {}, True]
NO_BODIES: Final = [
    b"",
    b" ",
    b"{",
    b"[]",
    b"null",
    b"3",
    b"\xff",
    b'{"a": 1}{}',
    b'{"tenant": "\\ud800"}',
    b"[" * 99_999,
]
WRONG_IDS: Final = [NO_JOB, "x", "A" * 32, "0" * 31, "%00", "%2e%2e", "a" * 5000, "%E2%82%AC"]
MIB: Final = 2**20


def token_of(job: dict[str, Any]) -> str:
    return str(job["lease"]["token"])


async def look(client: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(f"/jobs/{job['id']}")
    assert answer.status_code == 200
    return dict(answer.json())


async def ended(client: httpx.AsyncClient, state: str, **fields: Any) -> dict[str, Any]:
    """A job in this final state."""
    job = await running(client, **fields)
    body: dict[str, Any] = {"token": token_of(job)}
    if state == "cancelled":
        answer = await client.post(f"/jobs/{job['id']}/cancel")
    elif state == "failed":
        answer = await client.post(f"/jobs/{job['id']}/fail", json=body | {"error": "broke", "retry": False})
    else:
        answer = await client.post(f"/jobs/{job['id']}/complete", json=body)
    assert answer.json()["state"] == state
    return dict(answer.json())


class TestPriority:
    async def test_a_queued_job_changes_its_place_at_once(self, client: httpx.AsyncClient) -> None:
        first, second = await submitted(client, priority=5), await submitted(client, priority=5)
        assert second["effective_priority"] == 6  # one is ahead of it
        answer = await client.patch(f"/jobs/{second['id']}", json={"priority": 2})
        assert answer.status_code == 200
        assert answer.json() == second | {"priority": 2, "effective_priority": 3}
        assert answer.json() == await look(client, second)
        assert [(await claimed(client))["id"] for _ in range(2)] == [second["id"], first["id"]]

    async def test_an_effective_priority_does_not_fall_below_0(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client, priority=9)
        patched = (await client.patch(f"/jobs/{job['id']}", json={"priority": 0})).json()
        assert (patched["priority"], patched["effective_priority"]) == (0, 0)

    async def test_a_pending_job_has_no_effective_one_yet(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client, priority=9, delay_sec=600)
        answer = await client.patch(f"/jobs/{job['id']}", json={"priority": 1})
        assert answer.json() == job | {"priority": 1}

    async def test_said_twice_it_is_answered_twice(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        answers = [(await client.patch(f"/jobs/{job['id']}", json={"priority": 10})).json() for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]

    @pytest.mark.parametrize("start", [False, True], ids=["scheduled", "running"])
    async def test_a_leased_job_is_409(self, client: httpx.AsyncClient, start: bool) -> None:  # noqa: FBT001
        await submitted(client)
        job = await claimed(client, start=start)
        before = await look(client, job)
        answer = await client.patch(f"/jobs/{job['id']}", json={"priority": 1})
        refused(answer, 409)
        assert job["state"] in answer.json()["error"]
        assert await look(client, job) == before

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    async def test_a_final_job_is_409(self, client: httpx.AsyncClient, state: str) -> None:
        job = await ended(client, state)
        answer = await client.patch(f"/jobs/{job['id']}", json={"priority": 0})  # though it would change nothing
        refused(answer, 409)
        assert state in answer.json()["error"]
        assert await look(client, job) == job

    async def test_a_priority_is_0_to_10(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        for priority in BAD_PRIORITIES:
            answer = await client.patch(f"/jobs/{job['id']}", json={"priority": priority})
            assert refused(answer, 400, "priority must be 0-10") == ["priority"], priority
        body = b'{"priority": 1e400}'
        answer = await client.patch(f"/jobs/{job['id']}", content=body, headers=JSON)
        assert refused(answer, 400, "priority must be 0-10") == ["priority"]
        assert refused(await client.patch(f"/jobs/{job['id']}", json={}), 400, "priority must be 0-10") == ["priority"]
        assert await look(client, job) == job

    async def test_nothing_else_changes(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        for field in ("state", "queue", "cost", "payload", "tenant", "", "\x00"):
            answer = await client.patch(f"/jobs/{job['id']}", json={"priority": 1, field: "x"})
            assert refused(answer, 400) == [field]
        assert await look(client, job) == job

    async def test_no_such_job(self, client: httpx.AsyncClient) -> None:
        for job_id in WRONG_IDS:
            refused(await client.patch(at(f"/jobs/{job_id}"), json={"priority": 1}), 404, "job not found")


class TestBulkCancel:
    async def test_all_of_a_tenant_that_are_not_final(self, client: httpx.AsyncClient) -> None:
        done, run = await ended(client, "completed"), await running(client)
        wait, later = await submitted(client), await submitted(client, delay_sec=60)
        other = await submitted(client, tenant="other")
        answer = await client.post("/jobs/cancel", json={"tenant": "acme"})
        assert (answer.status_code, answer.json()) == (200, {"cancelled": 3})
        assert [(await look(client, job))["state"] for job in (run, wait, later)] == ["cancelled"] * 3
        assert [await look(client, job) for job in (done, other)] == [done, other]
        again = await client.post("/jobs/cancel", json={"tenant": "acme"})
        assert (again.status_code, again.json()) == (200, {"cancelled": 0})
        refused(await client.post(f"/jobs/{run['id']}/complete", json={"token": token_of(run)}), 409)

    async def test_filters_narrow_it_down(self, client: httpx.AsyncClient) -> None:
        kinds: list[dict[str, Any]] = [
            {},
            {"queue": "gpu"},
            {"test_suite": "y"},
            {"delay_sec": 60},
            {"queue": "gpu", "test_suite": "y"},
        ]
        for filters, count in [
            ({"queue": "gpu"}, 2),
            ({"test_suite": "y"}, 2),
            ({"queue": "gpu", "test_suite": "y"}, 1),
            ({"state": "pending"}, 1),
            ({"state": "running"}, 0),
            ({"queue": "none"}, 0),
            ({"test_suite": "none"}, 0),
            ({}, 5),
        ]:
            for kind in kinds:
                await submitted(client, **kind)
            answer = await client.post("/jobs/cancel", json={"tenant": "acme"} | filters)
            assert (answer.status_code, answer.json()) == (200, {"cancelled": count}), filters
            await client.post("/jobs/cancel", json={"tenant": "acme"})

    async def test_more_than_one_step_of_them(self, client: httpx.AsyncClient) -> None:
        await client.post("/jobs/batch", json={"jobs": [asked()] * 501})
        assert (await client.post("/jobs/cancel", json={"tenant": "acme"})).json() == {"cancelled": 501}
        assert (await client.get("/stats")).json()["state_counts"]["cancelled"] == 501

    async def test_a_tenant_that_nobody_knows_has_none(self, client: httpx.AsyncClient) -> None:
        for tenant in ("nobody", "Ünïcödé ✓", "a" * 128, "'; --"):
            answer = await client.post("/jobs/cancel", json={"tenant": tenant})
            assert (answer.status_code, answer.json()) == (200, {"cancelled": 0})

    async def test_a_bad_value_names_its_field(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        bad: dict[str, list[Any]] = {
            "tenant": BAD_NAMES,
            "queue": BAD_NAMES,
            "test_suite": ["", None, 5, "a\nb", " ", "a" * 513, "a\x00"],
            "state": ["", None, "completed", "failed", "cancelled", "done", "QUEUED", 5, ["queued"], "queued\x00"],
            "id": [job["id"]],
            "priority": [0],
        }
        for field, values in bad.items():
            for value in values:
                answer = await client.post("/jobs/cancel", json={"tenant": "acme"} | {field: value})
                assert refused(answer, 400) == [field], value
        assert refused(await client.post("/jobs/cancel", json={}), 400) == ["tenant"]
        assert refused(await client.post("/jobs/cancel?state=queued", json={"tenant": "acme"}), 400) == ["state"]
        assert await look(client, job) == job


class TestRetry:
    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    async def test_the_same_is_asked_for_once_more(self, client: httpx.AsyncClient, state: str) -> None:
        wanted = {
            "priority": 3,
            "cost": 7,
            "payload": {"a": ["ä"]},
            "max_attempts": 2,
            "timeout_sec": 60,
            "queue": "default",
        }
        old = await ended(client, state, **wanted)
        answer = await client.post(f"/jobs/{old['id']}/retry")
        assert answer.status_code == 201
        new = answer.json()
        assert answer.headers["location"] == f"/jobs/{new['id']}"
        assert sorted(new) == sorted(JOB_FIELDS.split())
        assert (new["state"], new["retry_of"], new["attempt"], new["error"]) == ("queued", old["id"], 0, None)
        assert {name: new[name] for name in wanted} == wanted
        assert (new["tenant"], new["test_suite"]) == (old["tenant"], old["test_suite"])
        assert new["id"] != old["id"]
        assert await look(client, old) == old
        assert await look(client, new) == new
        assert (await claimed(client))["id"] == new["id"]

    async def test_a_retry_may_be_retried_and_each_call_makes_one(self, client: httpx.AsyncClient) -> None:
        old = await ended(client, "cancelled")
        first, second = [(await client.post(f"/jobs/{old['id']}/retry")).json() for _ in range(2)]
        assert first["id"] != second["id"]
        assert first["retry_of"] == second["retry_of"] == old["id"]
        await client.post(f"/jobs/{first['id']}/cancel")
        assert (await client.post(f"/jobs/{first['id']}/retry", json={})).json()["retry_of"] == first["id"]

    async def test_any_other_state_is_409(self, client: httpx.AsyncClient) -> None:
        await submitted(client)
        jobs = [await claimed(client), await running(client)]
        jobs += [await ended(client, "completed"), await submitted(client), await submitted(client, delay_sec=60)]
        for job in jobs:
            answer = await client.post(f"/jobs/{job['id']}/retry")
            refused(answer, 409)
            assert job["state"] in answer.json()["error"]
        assert (await client.get("/stats")).json()["total_jobs"] == len(jobs)

    async def test_it_is_a_submit_like_any_other(self, client: httpx.AsyncClient) -> None:
        old = await ended(client, "failed")
        await client.put("/tenants/acme", json={"max_queued": 1})
        await submitted(client)
        answer = await client.post(f"/jobs/{old['id']}/retry")
        refused(answer, 429)
        assert "retry-after" not in answer.headers
        await client.put("/tenants/acme", json={"rate_per_sec": 0.01, "burst": 1})
        assert (await client.post(f"/jobs/{old['id']}/retry")).status_code == 201
        answer = await client.post(f"/jobs/{old['id']}/retry")
        refused(answer, 429)
        assert int(answer.headers["retry-after"]) > 0

    async def test_what_it_does_not_take(self, client: httpx.AsyncClient) -> None:
        path = f"/jobs/{(await ended(client, 'failed'))['id']}/retry"
        assert refused(await client.post(path, json={"priority": 1}), 400) == ["priority"]
        assert refused(await client.post(f"{path}?now=1"), 400) == ["now"]
        refused(await client.post(path, content=b"x"), 415)
        refused(await client.post(path, content=b"[]", headers=JSON), 400, "invalid JSON")
        assert (await client.get("/stats")).json()["total_jobs"] == 1

    async def test_no_such_job(self, client: httpx.AsyncClient) -> None:
        for job_id in WRONG_IDS:
            refused(await client.post(at(f"/jobs/{job_id}/retry")), 404, "job not found")


class TestReportsInBulk:
    async def test_each_is_judged_by_itself(self, client: httpx.AsyncClient) -> None:
        done, failed, again, early = [await running(client) for _ in range(3)] + [await submitted(client)]
        early = await claimed(client)
        reports = [
            {"id": done["id"], "token": token_of(done), "outcome": "completed", "result": {"ä": [1.5, None]}},
            {"id": failed["id"], "token": token_of(failed), "outcome": "failed", "error": "boom", "retry": False},
            {"id": again["id"], "token": token_of(again), "outcome": "failed", "error": ""},
            {"id": early["id"], "token": token_of(early), "outcome": "completed"},
            {"id": early["id"], "token": "Ünknöwn ✓", "outcome": "completed"},
            {"id": NO_JOB, "token": "t", "outcome": "failed", "error": "x"},
        ]
        answer = await client.post("/jobs/finish", json={"results": reports})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        results = answer.json()["results"]
        assert [list(result) for result in results] == [["id", "ok", "state", "error"]] * 6
        assert [tuple(result.values())[:3] for result in results] == [
            (done["id"], True, "completed"),
            (failed["id"], True, "failed"),
            (again["id"], True, "pending"),
            (early["id"], False, "scheduled"),
            (early["id"], False, "scheduled"),
            (NO_JOB, False, None),
        ]
        assert [result["error"] for result in results[:3]] == [None] * 3
        assert "start it" in results[3]["error"]
        assert "lost" in results[4]["error"]
        assert results[5]["error"] == "job not found"
        assert (await look(client, done))["result"] == {"ä": [1.5, None]}
        assert (await look(client, failed))["error"] == "boom"
        repeated = (await client.post("/jobs/finish", json={"results": reports})).json()["results"]
        assert repeated == results

    async def test_a_long_error_is_cut_and_says_so(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        item = {"id": job["id"], "token": token_of(job), "outcome": "failed", "error": "ä" * 100_000, "retry": False}
        assert (await client.post("/jobs/finish", json={"results": [item]})).json()["results"][0]["ok"]
        kept = (await look(client, job))["error"]
        assert len(kept.encode()) <= 4096
        assert kept.endswith("ä [cut]")

    async def test_a_bad_item_is_named_and_none_is_taken(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        good = {"id": job["id"], "token": token_of(job), "outcome": "completed"}
        bad: dict[str, list[Any]] = {
            "id": BAD_IDS,
            "token": BAD_TOKENS,
            "outcome": ["", None, "cancelled", "released", "COMPLETED", 5, True, []],
            "result": ["\x00", {"\x00": 1}, "x" * 65_535],
            "error": [None, 5, "a\x00", [], True],
            "retry": [None, 0, "true"],
            "state": ["completed"],
            "": [1],
        }
        for field, values in bad.items():
            for value in values:
                answer = await client.post("/jobs/finish", json={"results": [good, good | {field: value}]})
                assert refused(answer, 400) == [f"results[1].{field}"], value
                assert answer.json()["error"].startswith("results[1]: ")
        lacking = [{}, {"id": job["id"], "token": "t", "outcome": "failed"}]
        answer = await client.post("/jobs/finish", json={"results": [good, *lacking]})
        assert refused(answer, 400) == [
            *(f"results[1].{field}" for field in ("token", "id", "outcome")),
            "results[2].error",
        ]
        assert (await look(client, job))["state"] == "running"

    async def test_from_1_to_1000_objects(self, client: httpx.AsyncClient) -> None:
        assert refused(await client.post("/jobs/finish", json={}), 400) == ["results"]
        item = {"id": NO_JOB, "token": "t", "outcome": "completed"}
        lists: list[Any] = [None, [], {}, "x", 5, [item] * 1001]
        for results in lists:
            assert refused(await client.post("/jobs/finish", json={"results": results}), 400) == ["results"]
        items: list[Any] = [None, 5, "x", [], True]
        for other in items:
            assert refused(await client.post("/jobs/finish", json={"results": [item, other]}), 400) == ["results[1]"]
        answer = await client.post("/jobs/finish", json={"results": [item] * 1000})
        assert [result["ok"] for result in answer.json()["results"]] == [False] * 1000
        assert refused(await client.post("/jobs/finish", json={"results": [item], "retry": False}), 400) == ["retry"]

    async def test_it_may_be_as_large_as_a_batch(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        item = {"id": job["id"], "token": "not it", "outcome": "completed", "result": "x" * 60_000}
        assert (await client.post("/jobs/finish", json={"results": [item] * 100})).status_code == 200
        refused(await client.post("/jobs/finish", content=b" " * (16 * MIB + 1), headers=JSON), 413)
        refused(await client.post("/jobs/finish", content=b" " * 16 * MIB, headers=JSON), 400, "invalid JSON")


class TestBeatsInBulk:
    async def test_each_is_judged_by_itself(self, client: httpx.AsyncClient) -> None:
        first, second = await running(client), await running(client)
        lost = await running(client)
        await client.post(f"/jobs/{lost['id']}/cancel")
        leases = [{"id": job["id"], "token": token_of(job)} for job in (first, lost, second)]
        leases += [{"id": NO_JOB, "token": "t"}, {"id": first["id"], "token": "Ünknöwn ✓"}]
        answer = await client.post("/jobs/heartbeat", json={"leases": leases, "lease_sec": 3600})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        results = answer.json()["results"]
        assert [list(result) for result in results] == [["id", "ok", "expires_at", "error"]] * 5
        assert [(result["id"], result["ok"]) for result in results] == [
            (first["id"], True),
            (lost["id"], False),
            (second["id"], True),
            (NO_JOB, False),
            (first["id"], False),
        ]
        assert results[0]["expires_at"] == (await look(client, first))["lease_expires_at"]
        assert results[0]["expires_at"] > first["lease"]["expires_at"]
        assert [result["error"] is None for result in results] == [True, False, True, False, False]
        assert "cancelled" in results[1]["error"]
        assert results[3]["error"] == "job not found"
        assert [result["expires_at"] for result in (results[1], *results[3:])] == [None] * 3

    async def test_a_bad_item_is_named_and_none_is_taken(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        good, before = {"id": job["id"], "token": token_of(job)}, await look(client, job)
        bad = {"id": BAD_IDS, "token": BAD_TOKENS, "progress": [0.5], "lease_sec": [30], "": [1]}
        for field, values in bad.items():
            for value in values:
                answer = await client.post("/jobs/heartbeat", json={"leases": [good, good | {field: value}]})
                assert refused(answer, 400) == [f"leases[1].{field}"], value
        lengths: list[Any] = [0, 3601, -1, "30", 30.0, True, None, 2**63]
        for length in lengths:
            answer = await client.post("/jobs/heartbeat", json={"leases": [good], "lease_sec": length})
            assert refused(answer, 400) == ["lease_sec"], length
        assert await look(client, job) == before

    async def test_from_1_to_1000_objects_of_a_mebibyte(self, client: httpx.AsyncClient) -> None:
        assert refused(await client.post("/jobs/heartbeat", json={}), 400) == ["leases"]
        item = {"id": NO_JOB, "token": "t" * 255}
        lists: list[Any] = [None, [], {}, "x", [item] * 1001]
        for leases in lists:
            assert refused(await client.post("/jobs/heartbeat", json={"leases": leases}), 400) == ["leases"]
        answer = await client.post("/jobs/heartbeat", json={"leases": [item] * 1000})
        assert [result["ok"] for result in answer.json()["results"]] == [False] * 1000
        refused(await client.post("/jobs/heartbeat", content=b" " * (MIB + 1), headers=JSON), 413)


class TestBodies:
    CALLS: Final = ("/jobs/cancel", "/jobs/finish", "/jobs/heartbeat", f"/jobs/{NO_JOB}")

    async def call(self, client: httpx.AsyncClient, path: str, **request: Any) -> httpx.Response:
        return await client.request("PATCH" if path.endswith(NO_JOB) else "POST", path, **request)

    async def test_what_is_no_object_is_invalid_json(self, client: httpx.AsyncClient) -> None:
        for path in self.CALLS:
            for body in NO_BODIES:
                refused(await self.call(client, path, content=body, headers=JSON), 400, "invalid JSON")

    async def test_a_body_of_another_type_is_refused(self, client: httpx.AsyncClient) -> None:
        for path in self.CALLS:
            for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/json; charset=latin-1"}):
                refused(await self.call(client, path, content=b"{}", headers=headers), 415)

    async def test_more_than_a_mebibyte_is_too_large_but_for_reports(self, client: httpx.AsyncClient) -> None:
        for path in self.CALLS:
            answer = await self.call(client, path, content=b" " * (MIB + 1), headers=JSON)
            refused(answer, 400 if path == "/jobs/finish" else 413)

    async def test_another_method(self, client: httpx.AsyncClient) -> None:
        for path in ("/jobs/cancel", "/jobs/finish", "/jobs/heartbeat", f"/jobs/{NO_JOB}/retry"):
            for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS"):
                answer = await client.request(method, path)
                refused(answer, 405)
                assert answer.headers["allow"] == "POST"


class TestClaimsThatWait:
    async def test_one_gets_what_comes_and_says_what_any_claim_says(self, client: httpx.AsyncClient) -> None:
        claiming = asyncio.create_task(claimed(client, wait_sec=30, start=True, queues=["gpu", "default"]))
        await asyncio.sleep(0)
        job = await submitted(client)
        got = await claiming
        assert (got["id"], got["state"], got["worker"], got["attempt"]) == (job["id"], "running", "w1", 1)
        assert sorted(got) == sorted([*JOB_FIELDS.split(), "lease"])
        assert token_of(got) not in (await client.get(f"/jobs/{job['id']}")).text

    async def test_nothing_came(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs/claim", json={"worker": "w", "wait_sec": 1})
        assert (answer.status_code, answer.json()) == (200, {"jobs": []})

    async def test_what_is_there_is_not_waited_for(self, client: httpx.AsyncClient) -> None:
        for _ in range(3):
            await submitted(client)
        answer = await client.post("/jobs/claim", json={"worker": "w", "wait_sec": 30, "limit": 5})
        assert len(answer.json()["jobs"]) == 3


class TestDraining:
    @pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING])
    async def test_a_retry_is_new_work_and_all_else_goes_on(
        self, core: Core, client: httpx.AsyncClient, phase: Phase
    ) -> None:
        old, held, waits = await ended(client, "failed"), await running(client), await submitted(client)
        core.phase = phase
        answer = await client.post(f"/jobs/{old['id']}/retry")
        refused(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
        assert phase in answer.json()["error"]
        lease = {"id": held["id"], "token": token_of(held)}
        beats = await client.post("/jobs/heartbeat", json={"leases": [lease]})
        assert [result["ok"] for result in beats.json()["results"]] == [True]
        reports = await client.post("/jobs/finish", json={"results": [lease | {"outcome": "completed"}]})
        assert [result["ok"] for result in reports.json()["results"]] == [True]
        assert (await client.patch(f"/jobs/{waits['id']}", json={"priority": 1})).status_code == 200
        assert (await client.post("/jobs/cancel", json={"tenant": "acme"})).json() == {"cancelled": 1}


class TestRestart:
    @asynccontextmanager
    async def served(self, database: Database) -> AsyncIterator[httpx.AsyncClient]:
        settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
        async with (
            main.running(settings, lambda _: None, "test") as service,
            client_of(create_app(service.core, lambda _: None)) as client,
        ):
            yield client

    async def test_what_was_said_to_one_process_may_be_said_to_the_next(self, database: Database) -> None:
        async with self.served(database) as client:
            done, held = await running(client), await running(client)
            old, waits = await ended(client, "cancelled"), await submitted(client, priority=5)
            reports = {"results": [{"id": done["id"], "token": token_of(done), "outcome": "completed", "result": 1}]}
            first = await client.post("/jobs/finish", json=reports)
            patched = (await client.patch(f"/jobs/{waits['id']}", json={"priority": 3})).json()
            new = (await client.post(f"/jobs/{old['id']}/retry")).json()
        async with self.served(database) as client:
            assert (await client.post("/jobs/finish", json=reports)).json() == first.json()
            assert (await client.patch(f"/jobs/{waits['id']}", json={"priority": 3})).json() == patched
            assert await look(client, new) == new
            refused(await client.post(f"/jobs/{new['id']}/retry"), 409)
            lease = {"id": held["id"], "token": token_of(held)}
            beats = await client.post("/jobs/heartbeat", json={"leases": [lease, {"id": held["id"], "token": "x"}]})
            assert [result["ok"] for result in beats.json()["results"]] == [True, False]
            assert (await client.post("/jobs/cancel", json={"tenant": "acme", "state": "queued"})).json() == {
                "cancelled": 2
            }
            answer = await client.post("/jobs/finish", json={"results": [lease | {"outcome": "completed"}]})
            assert answer.json()["results"] == [{"id": held["id"], "ok": True, "state": "completed", "error": None}]
