"""Call by call over HTTP and on both databases: what each takes, answers and refuses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx

JOB_FIELDS: Final = """
    id tenant test_suite queue priority effective_priority cost state delay_sec payload attempt max_attempts timeout_sec
    submitted_at run_at queued_at scheduled_at started_at completed_at worker lease_expires_at progress result error
    retry_of
"""
ATTEMPT_FIELDS: Final = "number worker queued_at scheduled_at started_at ended_at outcome error weight cost"
TENANT_FIELDS: Final = """
    name weight rate_per_sec burst max_running max_queued paused queued running created_at updated_at
"""
STATES: Final = ["pending", "queued", "scheduled", "running", "completed", "failed", "cancelled"]
NO_JOB: Final = "0" * 32
JSON: Final = {"content-type": "application/json"}

BAD_TIMES: Final = [
    "2030-01-01",
    "2030-01-01T00:00:00",
    "2030-13-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999Z",
    "1969-12-31T23:59:59Z",
]
REPORTS: Final[dict[str, dict[str, Any]]] = {
    "start": {},
    "heartbeat": {},
    "complete": {},
    "fail": {"error": "x"},
    "release": {},
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def asked(**fields: Any) -> dict[str, Any]:
    """A job as a client asks for it."""
    return {"tenant": "acme", "test_suite": "smoke"} | fields


def at(path: str) -> httpx.URL:
    """This very path, which httpx would otherwise tidy up."""
    return httpx.URL("http://fairlane.test", raw_path=path.encode())


async def submitted(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/jobs", json=asked(**fields))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def claimed(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """The one job that a worker gets, submitted for it unless one waits."""
    answer = await client.post("/jobs/claim", json={"worker": "w1"} | fields)
    assert answer.status_code == 200, answer.text
    [job] = answer.json()["jobs"]
    return dict(job)


async def running(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    await submitted(client, **fields)
    return await claimed(client, start=True)


def refused(answer: httpx.Response, status: int, sentence: str | None = None) -> list[str]:
    """The fields that an error names, once it is sure to be one of the agreed form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert list(body) == ["error", "details"]
    assert all(sorted(detail) == ["field", "message"] for detail in body["details"])
    assert body["error"]
    if sentence is not None:
        assert body["error"] == sentence
    return [detail["field"] for detail in body["details"]]


def _nested(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth - 1):
        nested = [nested]
    return nested


class TestSubmit:
    async def test_a_job_is_answered_whole(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs", json=asked(payload={"a": [1, 2.5, None, True, "ä😀"]}))
        assert answer.status_code == 201
        job = answer.json()
        assert answer.headers["location"] == f"/jobs/{job['id']}"
        assert sorted(job) == sorted(JOB_FIELDS.split())
        assert re.fullmatch("[0-9a-f]{32}", job["id"])
        assert {name: job[name] for name in JOB_FIELDS.split() if not name.endswith("_at")} == {
            "id": job["id"],
            "tenant": "acme",
            "test_suite": "smoke",
            "queue": "default",
            "priority": 0,
            "effective_priority": 0,
            "cost": 1,
            "state": "queued",
            "delay_sec": 0,
            "payload": {"a": [1, 2.5, None, True, "ä😀"]},
            "attempt": 0,
            "max_attempts": 3,
            "timeout_sec": None,
            "worker": None,
            "progress": None,
            "result": None,
            "error": None,
            "retry_of": None,
        }
        assert all(_TIME.fullmatch(job[name]) for name in ("submitted_at", "run_at", "queued_at"))
        assert (await client.get(answer.headers["location"])).json() == job

    async def test_everything_asked_for_comes_back(self, client: httpx.AsyncClient) -> None:
        wanted = asked(queue="gpu", priority=10, delay_sec=60, cost=1000, max_attempts=100, timeout_sec=604_800)
        job = await submitted(client, **wanted)
        assert {name: job[name] for name in wanted} == wanted
        assert job["state"] == "pending"
        assert job["queued_at"] is None
        assert job["effective_priority"] is None

    async def test_a_time_with_an_offset_is_kept_in_utc(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client, run_at="2035-01-31T12:00:00.123456+05:30")
        assert job["run_at"] == "2035-01-31T06:30:00.123456Z"
        assert job["delay_sec"] is None
        assert job["state"] == "pending"

    async def test_a_time_that_has_passed_is_due_now(self, client: httpx.AsyncClient) -> None:
        assert (await submitted(client, run_at="2001-01-01T00:00:00Z"))["state"] == "queued"

    async def test_of_a_key_given_twice_the_last_counts(self, client: httpx.AsyncClient) -> None:
        body = b'{"tenant": "acme", "test_suite": "x", "payload": {"a": 1, "a": 2}, "priority": 1, "priority": 2}'
        job = (await client.post("/jobs", content=body, headers=JSON)).json()
        assert (job["payload"], job["priority"]) == ({"a": 2}, 2)

    async def test_a_name_may_be_any_text(self, client: httpx.AsyncClient) -> None:
        for name in ("a" * 128, "Ünïcödé ✓", "😀" * 128, "a b", "..", "%2F", "'; DROP TABLE jobs; --"):
            job = await submitted(client, tenant=name, queue=name, test_suite=name)
            assert (job["tenant"], job["queue"], job["test_suite"]) == (name, name, name)
            assert (await client.get("/jobs", params={"tenant": name, "queue": name})).json() == [job]

    async def test_a_payload_is_any_json(self, client: httpx.AsyncClient) -> None:
        payloads: list[Any] = [
            None,
            0,
            "",
            [],
            {},
            False,
            1.5,
            "x" * 65_000,
            [[[{"a": []}]]],
            2**63,
            -(2**64),
            0.1,
            1e-300,
        ]
        answer = await client.post("/jobs/batch", json={"jobs": [asked(payload=payload) for payload in payloads]})
        assert [job["payload"] for job in answer.json()["jobs"]] == payloads
        for job, payload in zip(answer.json()["jobs"], payloads, strict=True):
            assert (await client.get(f"/jobs/{job['id']}")).json()["payload"] == payload


class TestRefusedSubmits:
    async def test_what_is_no_object_is_invalid_json(self, client: httpx.AsyncClient) -> None:
        bodies = [b"", b" ", b"{", b"[]", b"3", b"null", b'"x"', b"nan", b"{}{}", b"{'a': 1}", b'{"tenant": "\xff"}']
        bodies += [b"[" * 100_000, b'{"payload": ' + b"[" * 100_000, b'{"payload": NaN}', b'{"tenant": "\\ud800"}']
        bodies += [b"\xef\xbb\xbf{}", b"\x00", b'{"a": ' * 100_000, b'{"payload": -Infinity}']
        for body in bodies:
            assert refused(await client.post("/jobs", content=body, headers=JSON), 400, "invalid JSON") == []

    async def test_tenant_and_test_suite_are_required(self, client: httpx.AsyncClient) -> None:
        for lacks in ({"tenant"}, {"test_suite"}, {"tenant", "test_suite"}):
            for beside in ({}, {"priority": 99, "cost": "x"}):
                for body in ({}, dict.fromkeys(lacks), dict.fromkeys(lacks, "")):
                    given = {name: value for name, value in asked(**beside).items() if name not in lacks}
                    answer = await client.post("/jobs", json=given | body)
                    fields = refused(answer, 400, "tenant and test_suite are required")
                    assert set(fields) == lacks | beside.keys()

    async def test_a_priority_is_0_to_10(self, client: httpx.AsyncClient) -> None:
        priorities: list[Any] = [-1, 11, 10**30, "5", 5.0, 0.5, True, None, [], {}, "high"]
        for priority in priorities:
            answer = await client.post("/jobs", json=asked(priority=priority, tenant="a/b"))
            assert refused(answer, 400, "priority must be 0-10") == ["tenant", "priority"]
        body = b'{"tenant": "a", "test_suite": "b", "priority": 1e400}'
        answer = await client.post("/jobs", content=body, headers=JSON)
        assert refused(answer, 400, "priority must be 0-10") == ["priority"]

    async def test_a_bad_value_names_its_field(self, client: httpx.AsyncClient) -> None:
        bad: dict[str, list[Any]] = {
            "tenant": [5, True, [], {}, "a/b", "a\nb", "a\x7f", "\u0085", " ", "\u3000", "a" * 129, "a\x00", "a\n"],
            "queue": ["", None, 5, "a/b", "a\tb", " ", "a" * 129, "a\x00", "a\n"],
            "test_suite": [5, "a\nb", " ", "a" * 513, "a\x00"],
            "delay_sec": [-1, 31_536_001, 2**63, "5", 5.0, True, None, [], {}],
            "cost": [0, 1001, -(2**63), "1", 1.5, True, None],
            "max_attempts": [0, 101, 10**40, "1", 1.0, True, None],
            "timeout_sec": [0, 604_801, "1", 1.0, False, []],
            "payload": [
                "\x00",
                {"\x00": 1},
                [["a\x00b"]],
                "x" * 65_535,
                list(range(20_000)),
                _nested(33),
                _nested(500),
            ],
            "run_at": [None, "", 5, True, "tomorrow", *BAD_TIMES],
            "idempotency_key": ["x"],
            "state": ["completed"],
            "id": ["0" * 32],
            "": [1],
            "\x00": [1],
            "<script>": [1],
        }
        for field, values in bad.items():
            for value in values:
                answer = await client.post("/jobs", json=asked(**{field: value}))
                assert refused(answer, 400) == [field], value
                assert answer.json()["error"].startswith(f"{field} "), value
        assert (await client.get("/stats")).json()["total_jobs"] == 0

    async def test_a_payload_may_be_32_levels_deep(self, client: httpx.AsyncClient) -> None:
        assert (await submitted(client, payload=_nested(32)))["payload"] == _nested(32)

    async def test_every_bad_field_is_named_and_the_sentence_is_about_the_first(
        self, client: httpx.AsyncClient
    ) -> None:
        bad = asked(cost=0, timeout_sec=0, queue="/", delay_sec=-1, colour="red")
        answer = await client.post("/jobs", json=bad)
        assert refused(answer, 400) == ["delay_sec", "queue", "cost", "timeout_sec", "colour"]
        assert answer.json()["error"] == "delay_sec must be 0-31536000"

    async def test_delay_and_time_exclude_each_other(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs", json=asked(delay_sec=0, run_at="2030-01-01T00:00:00Z"))
        assert refused(answer, 400) == ["run_at"]


class TestBodies:
    async def test_a_body_of_another_type_is_refused(self, client: httpx.AsyncClient) -> None:
        json, latin = "application/json", "application/json; charset=latin-1"
        for kinds in (["text/plain"], ["application/xml"], [latin], ["application/jsonx"], [""], [], [json, json]):
            headers = [("content-type", kind) for kind in kinds]
            refused(await client.post("/jobs", content=b'{"tenant": "a"}', headers=headers), 415)

    async def test_json_may_say_its_charset(self, client: httpx.AsyncClient) -> None:
        body = b'{"tenant": "a", "test_suite": "b"}'
        for kind in ("APPLICATION/JSON", "application/json;charset=UTF-8", 'application/json; charset="utf-8"'):
            assert (await client.post("/jobs", content=body, headers={"content-type": kind})).status_code == 201

    async def test_more_than_a_mebibyte_is_too_large(self, client: httpx.AsyncClient) -> None:
        refused(await client.post("/jobs", content=b" " * (2**20 + 1), headers=JSON), 413)
        refused(await client.post("/jobs", content=b" " * 2**20, headers=JSON), 400, "invalid JSON")

    async def test_a_chunked_body_is_measured_as_it_comes(self, client: httpx.AsyncClient) -> None:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 2**16
                yield b" " * 2**16

        refused(await client.post("/jobs", content=endless(), headers=JSON), 413)
        assert sent <= 2**20 + 2**17

    async def test_a_batch_may_be_larger(self, client: httpx.AsyncClient) -> None:
        refused(await client.post("/jobs/batch", content=b" " * (16 * 2**20 + 1), headers=JSON), 413)
        refused(await client.post("/jobs/batch", content=b" " * 2**21, headers=JSON), 400, "invalid JSON")

    async def test_a_call_without_a_body_needs_no_type(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        assert (await client.post(f"/jobs/{job['id']}/cancel")).status_code == 200

    async def test_a_body_where_none_is_taken(self, client: httpx.AsyncClient) -> None:
        path = f"/jobs/{(await submitted(client))['id']}/cancel"
        refused(await client.post(path, content=b"x"), 415)
        refused(await client.post(path, content=b"x", headers=JSON), 400, "invalid JSON")
        assert refused(await client.post(path, json={"force": True}), 400) == ["force"]
        refused(await client.post(path, content=b" " * (2**20 + 1), headers=JSON), 413)
        assert (await client.post(path, json={})).status_code == 200


class TestIdempotency:
    async def test_the_same_again_answers_with_the_first(self, client: httpx.AsyncClient) -> None:
        key = {"idempotency-key": "k1"}
        first = await client.post("/jobs", json=asked(), headers=key)
        again = await client.post("/jobs", json=asked(), headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
        assert again.json() == first.json()

    async def test_another_request_under_the_key_is_422(self, client: httpx.AsyncClient) -> None:
        key = {"idempotency-key": "k1"}
        await client.post("/jobs", json=asked(), headers=key)
        refused(await client.post("/jobs", json=asked(priority=1), headers=key), 422)

    async def test_a_key_is_a_tenants_own(self, client: httpx.AsyncClient) -> None:
        key = {"idempotency-key": "k1"}
        await client.post("/jobs", json=asked(), headers=key)
        assert (await client.post("/jobs", json=asked(tenant="other"), headers=key)).status_code == 201

    async def test_a_key_is_visible_characters_given_once(self, client: httpx.AsyncClient) -> None:
        for keys in ([b""], [b" "], [b"a b"], [b"a" * 256], [b"a\tb"], [b"\xe4"], [b"a", b"a"]):
            headers = [(b"idempotency-key", key) for key in keys]
            answer = await client.post("/jobs", json=asked(priority=11), headers=headers)
            assert refused(answer, 400, "priority must be 0-10") == ["priority", "Idempotency-Key"]
            assert refused(await client.post("/jobs", json=asked(), headers=headers), 400) == ["Idempotency-Key"]
        assert (await client.post("/jobs", json=asked(), headers={"idempotency-key": "~" * 255})).status_code == 201


class TestBatch:
    async def test_all_in_order(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs/batch", json={"jobs": [asked(test_suite=f"s{n}") for n in range(50)]})
        assert answer.status_code == 201
        jobs = answer.json()["jobs"]
        assert [job["test_suite"] for job in jobs] == [f"s{n}" for n in range(50)]
        assert sorted(jobs[0]) == sorted(JOB_FIELDS.split())

    async def test_ids_only_if_preferred(self, client: httpx.AsyncClient) -> None:
        for prefer in ("return=minimal", "RETURN=minimal", 'wait=5, return="minimal"'):
            answer = await client.post("/jobs/batch", json={"jobs": [asked(), asked()]}, headers={"prefer": prefer})
            assert answer.status_code == 201
            assert list(answer.json()) == ["ids"]
            newest = (await client.get("/jobs", params={"limit": 2})).json()
            assert [job["id"] for job in newest] == answer.json()["ids"][::-1]
        headers = {"prefer": "return=representation, minimal"}
        assert list((await client.post("/jobs/batch", json={"jobs": [asked()]}, headers=headers)).json()) == ["jobs"]

    async def test_one_bad_item_and_nothing_is_stored(self, client: httpx.AsyncClient) -> None:
        items = [asked() for _ in range(20)]
        items[17] = asked(priority=11, cost=0)
        items[19] = {"test_suite": "x"}
        answer = await client.post("/jobs/batch", json={"jobs": items})
        fields = refused(answer, 400, "jobs[17]: priority must be 0-10")
        assert fields == ["jobs[17].priority", "jobs[17].cost", "jobs[19].tenant"]
        assert (await client.get("/stats")).json()["total_jobs"] == 0

    async def test_an_item_lacking_a_tenant(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs/batch", json={"jobs": [asked(), {"test_suite": "x", "priority": 99}]})
        refused(answer, 400, "jobs[1]: tenant and test_suite are required")

    async def test_from_1_to_10000_objects(self, client: httpx.AsyncClient) -> None:
        assert refused(await client.post("/jobs/batch", json={}), 400) == ["jobs"]
        lists: list[Any] = [None, [], {}, "x", [{}] * 10_001]
        for jobs in lists:
            assert refused(await client.post("/jobs/batch", json={"jobs": jobs}), 400) == ["jobs"]
        items: list[Any] = [None, 5, "x", []]
        for item in items:
            assert refused(await client.post("/jobs/batch", json={"jobs": [asked(), item]}), 400) == ["jobs[1]"]

    async def test_the_header_is_refused_and_items_carry_keys(self, client: httpx.AsyncClient) -> None:
        items = {"jobs": [asked(idempotency_key="a"), asked(idempotency_key="b")]}
        answer = await client.post("/jobs/batch", json=items, headers={"idempotency-key": "x"})
        assert refused(answer, 400) == ["Idempotency-Key"]
        first = await client.post("/jobs/batch", json=items)
        again = await client.post("/jobs/batch", json=items)
        assert first.status_code == 201
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
        mixed = await client.post("/jobs/batch", json={"jobs": [*items["jobs"], asked()]})
        assert mixed.status_code == 201
        assert "idempotency-replayed" not in mixed.headers
        bad = {"jobs": [asked(idempotency_key=""), asked(idempotency_key=None)]}
        assert refused(await client.post("/jobs/batch", json=bad), 400) == [
            "jobs[0].idempotency_key",
            "jobs[1].idempotency_key",
        ]


class TestLooking:
    async def test_no_such_job(self, client: httpx.AsyncClient) -> None:
        for job_id in (NO_JOB, "x", "0" * 31, "0" * 33, "A" * 32, "%00", "%2e%2e", "a" * 5000, "%E2%82%AC"):
            for method, tail in (("GET", ""), ("GET", "/attempts"), ("POST", "/cancel")):
                answer = await client.request(method, at(f"/jobs/{job_id}{tail}"))
                refused(answer, 404, "job not found")

    async def test_a_list_is_newest_first(self, client: httpx.AsyncClient) -> None:
        jobs = [await submitted(client) for _ in range(3)]
        assert (await client.get("/jobs")).json() == jobs[::-1]
        assert (await client.get("/jobs", params={"order": "asc"})).json() == jobs

    async def test_a_walk_shows_each_job_once(self, client: httpx.AsyncClient) -> None:
        batch = await client.post(
            "/jobs/batch", json={"jobs": [asked(tenant=f"t {n % 2}/".strip("/")) for n in range(11)]}
        )
        wanted = [job["id"] for job in batch.json()["jobs"] if job["tenant"] == "t 0"]
        answer = await client.get("/jobs", params={"tenant": "t 0", "limit": 2, "order": "asc", "state": "queued"})
        seen = [job["id"] for job in answer.json()]
        while "next" in answer.links:
            await submitted(client, tenant="t 1")
            answer = await client.get(answer.links["next"]["url"])
            assert answer.status_code == 200
            assert 0 < len(answer.json()) <= 2
            seen += [job["id"] for job in answer.json()]
        assert seen == wanted

    async def test_filters(self, client: httpx.AsyncClient) -> None:
        a = await submitted(client, tenant="a", queue="q1", test_suite="x")
        b = await submitted(client, tenant="b", queue="q2", test_suite="y", delay_sec=60)
        for params, found in [
            ({"tenant": "a"}, [a]),
            ({"state": "pending"}, [b]),
            ({"queue": "q1"}, [a]),
            ({"test_suite": "y"}, [b]),
            ({"tenant": "a", "state": "pending"}, []),
            ({"tenant": "nobody"}, []),
        ]:
            assert (await client.get("/jobs", params=params)).json() == found

    async def test_a_bad_parameter_is_named(self, client: httpx.AsyncClient) -> None:
        bad = {
            "limit": ["0", "1001", "-1", "", "1.0", "1e2", "%2B5", "05", "1_0", "%D9%A3", "9" * 5000, "5&limit=5"],
            "order": ["up", "DESC", ""],
            "state": ["done", "QUEUED", "", "queued&state=running"],
            "tenant": ["", "a%2Fb", "%00", "a" * 129, "%20"],
            "queue": ["", "%0A", "a/b"],
            "test_suite": ["", "a" * 513],
            "cursor": ["", "x", "AAAAAAAAAAAA", "Af__________", "AQAAAAAAAAAB%0A", "AQAAAAAAAAA=", "a" * 5000],
            "page": ["2"],
            "Limit": ["5"],
        }
        for field, values in bad.items():
            for value in values:
                assert set(refused(await client.get(f"/jobs?{field}={value}"), 400)) == {field}, value
        assert refused(await client.get("/jobs?limit=0&order=up&x=1"), 400) == ["limit", "order", "x"]

    async def test_a_query_that_cannot_be_read(self, client: httpx.AsyncClient) -> None:
        for query in ("tenant=%FF", "tenant=%ED%A0%80", "&".join(f"a{n}=1" for n in range(200))):
            refused(await client.get(f"/jobs?{query}"), 400)

    async def test_unknown_parameters_are_refused_everywhere(self, client: httpx.AsyncClient) -> None:
        for path in ("/stats", "/tenants", "/queues", "/health/live", "/schema", f"/jobs/{NO_JOB}"):
            assert refused(await client.get(f"{path}?verbose=1"), 400) == ["verbose"]
        assert refused(await client.post("/jobs?verbose=1", json=asked()), 400) == ["verbose"]

    async def test_stats(self, client: httpx.AsyncClient) -> None:
        empty = (await client.get("/stats")).json()
        assert empty["state_counts"] == dict.fromkeys(STATES, 0)
        assert empty["queues"] == {} or set(empty["queues"]) <= {"default"}
        await submitted(client, tenant="a")
        await submitted(client, tenant="a", queue="gpu")
        await submitted(client, tenant="b", delay_sec=60)
        counts = (await client.get("/stats")).json()
        assert sorted(counts) == ["queue_depth", "queues", "state_counts", "tenant_counts", "total_jobs"]
        assert (counts["queue_depth"], counts["total_jobs"]) == (2, 3)
        assert counts["tenant_counts"] == {"a": 2}
        assert counts["state_counts"] == dict.fromkeys(STATES, 0) | {"queued": 2, "pending": 1}
        assert counts["queues"]["gpu"] == {
            "queue_depth": 1,
            "total_jobs": 1,
            "tenant_counts": {"a": 1},
            "state_counts": dict.fromkeys(STATES, 0) | {"queued": 1},
        }


class TestCancel:
    async def test_a_cancel_holds_and_may_be_repeated(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client)
        first = await client.post(f"/jobs/{job['id']}/cancel")
        again = await client.post(f"/jobs/{job['id']}/cancel")
        assert first.json()["state"] == "cancelled"
        assert (again.status_code, again.json()) == (200, first.json())

    async def test_a_final_job_is_not_cancelled(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        await client.post(f"/jobs/{job['id']}/complete", json={"token": job["lease"]["token"]})
        answer = await client.post(f"/jobs/{job['id']}/cancel")
        refused(answer, 409)
        assert "completed" in answer.json()["error"]


class TestClaim:
    async def test_a_claimed_job_carries_its_lease(self, client: httpx.AsyncClient) -> None:
        wanted = await submitted(client)
        job = await claimed(client, lease_sec=60)
        assert sorted(job) == sorted([*JOB_FIELDS.split(), "lease"])
        assert sorted(job["lease"]) == ["expires_at", "heartbeat_sec", "token"]
        assert job["lease"]["heartbeat_sec"] == 20
        assert job["lease"]["expires_at"] == job["lease_expires_at"]
        assert (job["id"], job["state"], job["worker"], job["attempt"]) == (wanted["id"], "scheduled", "w1", 1)
        seen = (await client.get(f"/jobs/{job['id']}")).text
        assert job["lease"]["token"] not in seen

    async def test_start_makes_it_running(self, client: httpx.AsyncClient) -> None:
        assert (await running(client))["state"] == "running"

    async def test_nothing_to_do(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/jobs/claim", json={"worker": "w"})
        assert (answer.status_code, answer.json()) == (200, {"jobs": []})

    async def test_queues_are_emptied_in_turn(self, client: httpx.AsyncClient) -> None:
        for queue in ("a", "b", "b"):
            await submitted(client, queue=queue)
        answer = await client.post("/jobs/claim", json={"worker": "w", "queues": ["b", "a"], "limit": 1000})
        assert [job["queue"] for job in answer.json()["jobs"]] == ["b", "b", "a"]

    async def test_a_bad_value_names_its_field(self, client: httpx.AsyncClient) -> None:
        bad: dict[str, list[Any]] = {
            "worker": [None, "", 5, "a\nb", " ", "a" * 129, "a\x00"],
            "queues": [None, [], "default", [""], [5], ["a/b"], ["a"] * 1001, {}],
            "limit": [0, 1001, "1", 1.0, True, None],
            "lease_sec": [0, 3601, "30", 30.0, None],
            "wait_sec": [-1, 31, "5", 0.5, None],
            "start": [1, "true", None],
            "token": ["x"],
        }
        job = await submitted(client)
        for field, values in bad.items():
            for value in values:
                answer = await client.post("/jobs/claim", json={"worker": "w"} | {field: value})
                assert refused(answer, 400) == [field], value
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "queued"

    async def test_a_worker_may_have_a_slash(self, client: httpx.AsyncClient) -> None:
        await submitted(client)
        assert (await claimed(client, worker="host/1"))["worker"] == "host/1"


class TestReports:
    async def test_start_then_complete(self, client: httpx.AsyncClient) -> None:
        await submitted(client)
        job = await claimed(client)
        token = {"token": job["lease"]["token"]}
        started = await client.post(f"/jobs/{job['id']}/start", json=token)
        assert (started.status_code, started.json()["state"]) == (200, "running")
        done = await client.post(f"/jobs/{job['id']}/complete", json=token | {"result": {"ok": [1]}})
        assert (done.status_code, done.json()["state"], done.json()["result"]) == (200, "completed", {"ok": [1]})
        again = await client.post(f"/jobs/{job['id']}/complete", json=token)
        assert (again.status_code, again.json()) == (200, done.json())
        [attempt] = (await client.get(f"/jobs/{job['id']}/attempts")).json()
        assert sorted(attempt) == sorted(ATTEMPT_FIELDS.split())
        assert (attempt["number"], attempt["outcome"], attempt["worker"]) == (1, "completed", "w1")

    async def test_complete_before_the_start_is_409(self, client: httpx.AsyncClient) -> None:
        await submitted(client)
        job = await claimed(client)
        answer = await client.post(f"/jobs/{job['id']}/complete", json={"token": job["lease"]["token"]})
        refused(answer, 409)
        assert "scheduled" in answer.json()["error"]

    async def test_a_beat(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        beat = {"token": job["lease"]["token"], "lease_sec": 3600, "progress": 0.5}
        answer = await client.post(f"/jobs/{job['id']}/heartbeat", json=beat)
        assert answer.status_code == 200
        assert list(answer.json()) == ["expires_at"]
        assert answer.json()["expires_at"] > job["lease"]["expires_at"]
        assert (await client.get(f"/jobs/{job['id']}")).json()["progress"] == 0.5

    async def test_fail_for_good(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        report = {"token": job["lease"]["token"], "error": "boom\nat line 1", "retry": False}
        answer = await client.post(f"/jobs/{job['id']}/fail", json=report)
        assert (answer.json()["state"], answer.json()["error"]) == ("failed", "boom\nat line 1")

    async def test_fail_with_a_retry(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        answer = await client.post(f"/jobs/{job['id']}/fail", json={"token": job["lease"]["token"], "error": ""})
        assert (answer.status_code, answer.json()["state"]) == (200, "pending")

    async def test_a_long_error_is_cut_and_says_so(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        report = {"token": job["lease"]["token"], "error": "ä" * 100_000, "retry": False}
        kept = (await client.post(f"/jobs/{job['id']}/fail", json=report)).json()["error"]
        assert len(kept.encode()) <= 4096
        assert kept.endswith("ä [cut]")

    async def test_release(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        answer = await client.post(f"/jobs/{job['id']}/release", json={"token": job["lease"]["token"]})
        assert (answer.json()["state"], answer.json()["attempt"], answer.json()["worker"]) == ("queued", 0, None)

    async def test_another_token_is_409_and_changes_nothing(self, client: httpx.AsyncClient) -> None:
        job = await running(client)
        before = (await client.get(f"/jobs/{job['id']}")).json()
        for call, more in REPORTS.items():
            for token in ("x", "0" * 32, "ä" * 255, job["lease"]["token"] + "x", "'; --"):
                answer = await client.post(f"/jobs/{job['id']}/{call}", json={"token": token} | more)
                refused(answer, 409)
                assert "running" in answer.json()["error"]
        assert (await client.get(f"/jobs/{job['id']}")).json() == before

    async def test_no_such_job(self, client: httpx.AsyncClient) -> None:
        for call, more in REPORTS.items():
            for job_id in (NO_JOB, "x", "%00"):
                answer = await client.post(f"/jobs/{job_id}/{call}", json={"token": "t"} | more)
                refused(answer, 404, "job not found")

    async def test_a_bad_report_names_its_fields(self, client: httpx.AsyncClient) -> None:
        bad: list[tuple[str, dict[str, Any], list[str]]] = [
            ("start", {}, ["token"]),
            ("start", {"token": ""}, ["token"]),
            ("start", {"token": 5}, ["token"]),
            ("start", {"token": "a\x00"}, ["token"]),
            ("start", {"token": "a" * 256}, ["token"]),
            ("start", {"token": "t", "worker": "w"}, ["worker"]),
            ("heartbeat", {"token": None, "lease_sec": 0, "progress": 1.1}, ["token", "lease_sec", "progress"]),
            ("heartbeat", {"token": "t", "lease_sec": None, "progress": None}, ["lease_sec", "progress"]),
            ("heartbeat", {"token": "t", "progress": True}, ["progress"]),
            ("heartbeat", {"token": "t", "progress": -0.1}, ["progress"]),
            ("complete", {"token": "t", "result": "\x00"}, ["result"]),
            ("complete", {"token": "t", "result": "x" * 65_535}, ["result"]),
            ("fail", {"token": "t"}, ["error"]),
            ("fail", {"token": "t", "error": None}, ["error"]),
            ("fail", {"token": "t", "error": "a\x00", "retry": "no"}, ["error", "retry"]),
            ("release", {"token": "t", "error": "x"}, ["error"]),
        ]
        for call, body, fields in bad:
            assert refused(await client.post(f"/jobs/{NO_JOB}/{call}", json=body), 400) == fields, body


class TestTenants:
    async def test_put_creates_with_the_defaults(self, client: httpx.AsyncClient) -> None:
        answer = await client.put("/tenants/acme", json={})
        assert answer.status_code == 200
        tenant = answer.json()
        assert sorted(tenant) == sorted(TENANT_FIELDS.split())
        assert (tenant["weight"], tenant["rate_per_sec"], tenant["burst"]) == (1, None, None)
        assert (tenant["max_running"], tenant["max_queued"], tenant["paused"]) == (None, None, False)
        assert (tenant["queued"], tenant["running"]) == (0, 0)
        assert _TIME.fullmatch(tenant["created_at"])
        assert (await client.get("/tenants/acme")).json() == tenant
        assert tenant in (await client.get("/tenants")).json()

    async def test_put_sets_all_and_patch_only_what_it_names(self, client: httpx.AsyncClient) -> None:
        settings = {"weight": 7, "rate_per_sec": 2.5, "burst": 9, "max_running": 3, "max_queued": 4, "paused": True}
        tenant = (await client.put("/tenants/acme", json=settings)).json()
        assert {name: tenant[name] for name in settings} == settings
        patched = (await client.patch("/tenants/acme", json={"weight": 8, "max_running": None})).json()
        expected = settings | {"weight": 8, "max_running": None}
        assert {name: patched[name] for name in settings} == expected
        assert (await client.patch("/tenants/acme", json={})).status_code == 200
        reset = (await client.put("/tenants/acme", json={"weight": 2})).json()
        assert (reset["weight"], reset["max_queued"], reset["paused"]) == (2, None, False)

    async def test_a_burst_that_is_left_out_is_the_rate_rounded_up(self, client: httpx.AsyncClient) -> None:
        assert (await client.put("/tenants/acme", json={"rate_per_sec": 2.5})).json()["burst"] == 3

    async def test_a_rate_of_null_is_no_limit(self, client: httpx.AsyncClient) -> None:
        await client.put("/tenants/acme", json={"rate_per_sec": 1})
        assert (await client.patch("/tenants/acme", json={"rate_per_sec": None})).json()["rate_per_sec"] is None
        for _ in range(3):
            await submitted(client)

    async def test_a_tenant_appears_with_its_first_job(self, client: httpx.AsyncClient) -> None:
        await submitted(client, tenant="new one")
        tenant = (await client.get("/tenants/new%20one")).json()
        assert (tenant["name"], tenant["queued"], tenant["weight"]) == ("new one", 1, 1)

    async def test_a_bad_value_names_its_field(self, client: httpx.AsyncClient) -> None:
        bad: dict[str, list[Any]] = {
            "weight": [0, 1001, "1", 1.0, True, None],
            "rate_per_sec": [0, -1, "1", True, 1e300, 10**400, 5e-324],
            "burst": [0, -1, 1.5, None, 2**63],
            "max_running": [0, -1, 1.5, "1", 2**63],
            "max_queued": [0, -1, 1.5, "1", 2**63],
            "paused": [0, "true", None],
            "name": ["x"],
        }
        before = (await client.put("/tenants/acme", json={})).json()
        for field, values in bad.items():
            for value in values:
                for method in ("PUT", "PATCH"):
                    answer = await client.request(method, "/tenants/acme", json={field: value})
                    assert refused(answer, 400) == [field], value
        assert (await client.get("/tenants/acme")).json() == before

    async def test_no_such_tenant(self, client: httpx.AsyncClient) -> None:
        for name in ("nobody", "%00", "%20", "a" * 129, "%0A"):
            refused(await client.get(f"/tenants/{name}"), 404, "tenant not found")
            refused(await client.patch(f"/tenants/{name}", json={"weight": 2}), 404, "tenant not found")

    async def test_a_name_that_no_tenant_may_have(self, client: httpx.AsyncClient) -> None:
        for name in ("%00", "%20", "a" * 129, "%0A", "%C2%85"):
            assert refused(await client.put(f"/tenants/{name}", json={}), 400) == ["name"]

    async def test_a_tenant_is_erased_once_nothing_of_it_is_unfinished(self, client: httpx.AsyncClient) -> None:
        job = await submitted(client, tenant="leaving")
        erase = "/tenants/leaving/erase"
        looked = {"erased": 0, "left": 1, "unfinished": 1, "is_gone": False}
        assert (await client.post(erase, json={"dry_run": True})).json() == looked
        refused(
            await client.post(erase, json={}),
            409,
            "tenant leaving has 1 unfinished jobs; cancel them, or let them end, before it is erased",
        )
        await client.post(f"/jobs/{job['id']}/cancel")

        answer = await client.post(erase, json={})

        assert answer.status_code == 200
        assert answer.json() == {"erased": 1, "left": 0, "unfinished": 0, "is_gone": True}
        refused(await client.get(f"/jobs/{job['id']}"), 404, "job not found")
        for name in ("leaving", "nobody", "%00", "%20"):
            refused(await client.post(f"/tenants/{name}/erase", json={"dry_run": True}), 404, "tenant not found")
        assert refused(await client.post(erase, json={"dry_run": None, "force": True}), 400) == ["dry_run", "force"]
        refused(await client.post(erase), 400, "invalid JSON")

    async def test_a_put_needs_a_body(self, client: httpx.AsyncClient) -> None:
        refused(await client.put("/tenants/acme"), 400, "invalid JSON")

    async def test_the_rate_says_when_to_come_back(self, client: httpx.AsyncClient) -> None:
        await client.put("/tenants/acme", json={"rate_per_sec": 0.01, "burst": 1})
        await submitted(client)
        answer = await client.post("/jobs", json=asked())
        refused(answer, 429)
        assert 0 < int(answer.headers["retry-after"]) <= 100

    async def test_a_batch_beyond_the_burst_is_400(self, client: httpx.AsyncClient) -> None:
        await client.put("/tenants/acme", json={"rate_per_sec": 1, "burst": 2})
        refused(await client.post("/jobs/batch", json={"jobs": [asked()] * 3}), 400)

    async def test_too_many_waiting_jobs_are_429_without_a_date(self, client: httpx.AsyncClient) -> None:
        await client.put("/tenants/acme", json={"max_queued": 1})
        await submitted(client)
        answer = await client.post("/jobs", json=asked())
        refused(answer, 429)
        assert "retry-after" not in answer.headers


class TestQueues:
    async def test_a_queue_is_paused(self, client: httpx.AsyncClient) -> None:
        await submitted(client, queue="gpu")
        answer = await client.put("/queues/gpu", json={"paused": True})
        assert (answer.status_code, answer.json()) == (200, {"name": "gpu", "paused": True, "queued": 1, "running": 0})
        assert answer.json() in (await client.get("/queues")).json()
        claim = await client.post("/jobs/claim", json={"worker": "w", "queues": ["gpu"]})
        assert claim.json() == {"jobs": []}
        assert (await client.put("/queues/gpu", json={})).json()["paused"] is False

    async def test_what_is_refused(self, client: httpx.AsyncClient) -> None:
        assert refused(await client.put("/queues/gpu", json={"paused": 1, "weight": 1}), 400) == ["paused", "weight"]
        assert refused(await client.put("/queues/%00", json={}), 400) == ["name"]


class TestPathsAndMethods:
    async def test_nothing_is_there(self, client: httpx.AsyncClient) -> None:
        paths = ["/nope", "/jobs/", "/jobs//", "//jobs", "/jobs//cancel", "/tenants/", "/tenants/a/b", "/health"]
        paths += ["/tenants/a%2Fb", "/tenants/%FF", "/tenants/%C0%AF", "/schema/x", "/schema/openapi.json", "/%00"]
        for path in (*paths, "/jobs/x/y/z", "/Jobs", "/a" * 1000):
            refused(await client.get(at(path)), 404)

    async def test_another_method(self, client: httpx.AsyncClient) -> None:
        for method, path, allow in (
            ("DELETE", "/jobs", "GET, POST"),
            ("OPTIONS", "/jobs", "GET, POST"),
            ("PURGE", "/jobs", "GET, POST"),
            ("GET", "/jobs/claim", "POST"),
            ("OPTIONS", "/jobs/claim", "POST"),
            ("DELETE", f"/jobs/{NO_JOB}", "GET, PATCH"),
            ("OPTIONS", f"/jobs/{NO_JOB}", "GET, PATCH"),
            ("GET", f"/jobs/{NO_JOB}/cancel", "POST"),
            ("POST", "/tenants/acme", "GET, PATCH, PUT"),
            ("GET", "/queues/gpu", "PUT"),
            ("POST", "/stats", "GET"),
            ("POST", "/schema", "GET"),
            ("OPTIONS", "/schema", "GET"),
            ("TRACE", "/health/live", "GET"),
        ):
            answer = await client.request(method, path)
            refused(answer, 405)
            assert answer.headers["allow"] == allow

    async def test_head_has_no_body(self, client: httpx.AsyncClient) -> None:
        answer = await client.head("/jobs")
        assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "GET, POST", b"")


class TestService:
    async def test_health(self, client: httpx.AsyncClient) -> None:
        for probe, more in (("live", {}), ("ready", {"role": "dispatcher"})):
            answer = await client.get(f"/health/{probe}")
            assert (answer.status_code, answer.json()) == (200, {"status": probe} | more)

    async def test_the_document_is_json_and_lists_statuses(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/schema")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        paths = answer.json()["paths"]
        assert set(paths["/jobs"]["post"]["responses"]) >= {"200", "201", "400", "413", "415", "422", "429", "503"}
