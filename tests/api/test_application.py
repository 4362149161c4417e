"""The application as a whole, before the real service: drains, faults, clients that hang up, and the document."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import httpx
import pytest

from app.api import workers
from app.api.access import Gate
from app.api.application import create_app, create_litestar
from app.events import Event, RequestFailed, RequestServed
from app.flow.core import Core, Phase
from app.scheduling.job import Job
from tests.api.asgi import Call, client_of

JSON_TYPE: Final = (b"content-type", b"application/json")
HOST: Final = (b"host", b"here")
JOB: Final = {"tenant": "acme", "test_suite": "smoke"}
ANY: Final = {"400", "408", "413", "415", "431", "500", "503"}
WITH_KEY: Final = {"401", "403", "429"}
WITHOUT_KEY: Final = {"/health/live", "/health/ready"}
STATUSES: Final = {
    ("get", "/jobs"): {"200"},
    ("post", "/jobs"): {"200", "201", "422", "429"},
    ("post", "/jobs/batch"): {"200", "201", "422", "429"},
    ("get", "/jobs/{job_id}"): {"200", "404"},
    ("get", "/jobs/{job_id}/attempts"): {"200", "404"},
    ("get", "/jobs/{job_id}/explain"): {"200", "404"},
    ("post", "/jobs/{job_id}/cancel"): {"200", "404", "409"},
    ("patch", "/jobs/{job_id}"): {"200", "404", "409"},
    ("post", "/jobs/cancel"): {"200"},
    ("post", "/jobs/{job_id}/retry"): {"201", "404", "409", "429"},
    ("post", "/jobs/finish"): {"200"},
    ("post", "/jobs/heartbeat"): {"200"},
    ("get", "/stats"): {"200"},
    ("get", "/events"): {"200"},
    ("post", "/jobs/claim"): {"200"},
    **{
        ("post", f"/jobs/{{job_id}}/{call}"): {"200", "404", "409"}
        for call in ("start", "heartbeat", "complete", "fail", "release")
    },
    ("get", "/tenants"): {"200"},
    ("get", "/tenants/{name}"): {"200", "404"},
    ("put", "/tenants/{name}"): {"200"},
    ("patch", "/tenants/{name}"): {"200", "404"},
    ("post", "/tenants/{name}/erase"): {"200", "404", "409"},
    ("get", "/queues"): {"200"},
    ("put", "/queues/{name}"): {"200"},
    ("get", "/health/live"): {"200"},
    ("get", "/health/ready"): {"200"},
    ("get", "/metrics"): {"200"},
    ("post", "/keys"): {"201"},
    ("get", "/keys"): {"200"},
    ("get", "/replicas"): {"200"},
    ("delete", "/keys/{key_id}"): {"200", "404"},
}


class TestDraining:
    @pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING])
    async def test_no_new_work_and_all_else_goes_on(self, core: Core, client: httpx.AsyncClient, phase: Phase) -> None:
        for _ in range(3):
            await client.post("/jobs", json=JOB)
        claim = await client.post("/jobs/claim", json={"worker": "w", "limit": 2, "start": True})
        [first, second] = claim.json()["jobs"]
        core.phase = phase
        for path, body in (("/jobs", JOB), ("/jobs/batch", {"jobs": [JOB]}), ("/jobs/claim", {"worker": "w"})):
            answer = await client.post(path, json=body)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert phase in answer.json()["error"]
        token = {"token": first["lease"]["token"]}
        assert (await client.post(f"/jobs/{first['id']}/heartbeat", json=token)).status_code == 200
        assert (await client.post(f"/jobs/{first['id']}/complete", json=token)).status_code == 200
        assert (await client.post(f"/jobs/{second['id']}/cancel")).status_code == 200
        assert len((await client.get("/jobs")).json()) == 3
        assert (await client.get("/health/live")).status_code == 200
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        assert phase in ready.json()["error"]
        assert "retry-after" in ready.headers


class TestFaults:
    async def test_a_fault_is_a_500_that_says_nothing(self, core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails() -> None:
            raise ZeroDivisionError("secret")

        told: list[Event] = []
        monkeypatch.setattr(core, "health", fails)
        async with client_of(create_app(core, told.append)) as client:
            answer = await client.get("/health/live")
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        [failed, served] = told
        assert isinstance(failed, RequestFailed)
        assert "ZeroDivisionError: secret" in failed.error
        assert isinstance(served, RequestServed)

    async def test_no_logger_is_touched(self, core: Core) -> None:
        def state() -> Any:
            root = logging.getLogger()
            return list(root.handlers), root.level, list(root.filters)

        before = state()
        litestar = create_litestar(core, lambda _: None)
        assert state() == before
        assert litestar.logging_config is None
        assert litestar.debug is False

    async def test_every_route_is_behind_the_gate_and_has_no_guard(self, core: Core) -> None:
        """Litestar copies the handler for a guard, and calls one that does not await in a thread."""
        routes = create_litestar(core, lambda _: None).routes
        handlers = [handler for route in routes for handler in getattr(route, "route_handlers", ())]
        assert len(handlers) >= len(STATUSES)
        assert all(Gate in handler.resolve_middleware() for handler in handlers)
        assert not any(handler.resolve_guards() for handler in handlers)


class TestHangingUp:
    async def test_in_mid_body_is_no_fault(self, core: Core) -> None:
        told: list[Event] = []
        gone = asyncio.Event()
        gone.set()
        call = Call("POST", b"/jobs", headers=[HOST, JSON_TYPE], body=[b'{"tenant"'], hangs_up=gone, is_complete=False)
        await call.of(create_app(core, told.append))
        assert [type(event) for event in told] == [RequestServed]
        assert call.status == 499

    async def test_while_waiting_for_work_ends_the_wait(self, core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
        waits, gone, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def claim(*_: object) -> list[Job]:
            waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return []

        monkeypatch.setattr(workers, "claim", claim)
        body = [b'{"worker": "w", "wait_sec": 30}']
        call = Call("POST", b"/jobs/claim", headers=[HOST, JSON_TYPE], body=body, hangs_up=gone, is_complete=True)
        asking = asyncio.create_task(call.of(create_app(core, lambda _: None)))
        await waits.wait()
        gone.set()
        assert (await asking).status == 499
        assert ended.is_set()


class TestDocument:
    async def test_it_lists_every_status_of_every_operation(self, client: httpx.AsyncClient) -> None:
        document = (await client.get("/schema")).json()
        listed = {
            (method, path): set(operation["responses"])
            for path, item in document["paths"].items()
            for method, operation in item.items()
        }
        assert listed == {
            (method, path): statuses | ANY | (WITH_KEY if path not in WITHOUT_KEY else set())
            for (method, path), statuses in STATUSES.items()
        }
        for path, item in document["paths"].items():
            for operation in item.values():
                for status, response in operation["responses"].items():
                    if (path, status) == ("/metrics", "200"):
                        assert response["content"] == {"text/plain": {"schema": {"type": "string"}}}
                        continue
                    [(kind, content)] = response["content"].items()
                    moves = {"$ref": "#/components/schemas/MoveAnswer"}
                    assert (kind == "text/event-stream") == (content["schema"] == moves)
                    schema = content["schema"]
                    assert (schema == {"$ref": "#/components/schemas/ErrorAnswer"}) == (status >= "400")
                    assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))

    async def test_it_shows_the_ranges_that_are_checked(self, client: httpx.AsyncClient) -> None:
        document = (await client.get("/schema")).json()
        job = document["components"]["schemas"]["SubmitBody"]
        assert job["required"] == ["tenant", "test_suite"]
        assert job["additionalProperties"] is False
        priority = job["properties"]["priority"]
        assert (priority["minimum"], priority["maximum"], priority["default"]) == (0, 10, 0)
        assert job["properties"]["delay_sec"]["maximum"] == 31_536_000
        assert job["properties"]["tenant"]["maxLength"] == 128
        post = document["paths"]["/jobs"]["post"]
        assert post["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/SubmitBody")
        assert [(parameter["name"], parameter["in"]) for parameter in post["parameters"]] == [
            ("Idempotency-Key", "header")
        ]
        assert set(post["responses"]["200"]["headers"]) == {"Location", "Idempotency-Replayed"}
        listing = document["paths"]["/jobs"]["get"]
        assert [parameter["name"] for parameter in listing["parameters"]] == [
            "tenant", "state", "queue", "test_suite", "limit", "order", "cursor"
        ]  # fmt: skip
        assert "Link" in listing["responses"]["200"]["headers"]

    async def test_a_path_shows_what_its_parts_may_be(self, client: httpx.AsyncClient) -> None:
        document = (await client.get("/schema")).json()
        [job_id] = document["paths"]["/jobs/{job_id}"]["get"]["parameters"]
        [name] = document["paths"]["/tenants/{name}"]["put"]["parameters"]
        assert job_id["schema"]["pattern"].startswith("^[0-9a-f]{32}")
        tenant = document["components"]["schemas"]["SubmitBody"]["properties"]["tenant"]
        assert {bound: name["schema"][bound] for bound in tenant} == tenant

    async def test_answers_lead_to_calls_by_links(self, client: httpx.AsyncClient) -> None:
        document = (await client.get("/schema")).json()
        operations = {
            operation["operationId"]: operation for item in document["paths"].values() for operation in item.values()
        }
        links = [
            (name, link)
            for operation in operations.values()
            for status, response in operation["responses"].items()
            for name, link in response.get("links", {}).items()
            if status < "300"
        ]
        assert {name for name, _ in links} >= {"get_job", "retry_job", "beat", "complete_job", "erase_tenant"}
        for name, link in links:
            called = operations[link["operationId"]]
            assert name == link["operationId"]
            assert set(link["parameters"]) <= {parameter["name"] for parameter in called["parameters"]}
            assert ("requestBody" in link) <= ("requestBody" in called)

    async def test_it_shows_which_fields_exclude_or_need_each_other(self, client: httpx.AsyncClient) -> None:
        schemas = (await client.get("/schema")).json()["components"]["schemas"]
        for kind in ("SubmitBody", "BatchItem"):
            assert schemas[kind]["anyOf"] == [{"properties": {"run_at": False}}, {"properties": {"delay_sec": False}}]
        assert {"required": ["error"]} in schemas["FinishItem"]["anyOf"]

    async def test_every_reference_leads_somewhere_and_nowhere_else(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/schema")
        document = answer.json()
        assert document["openapi"].startswith("3.1")
        names = set(document["components"]["schemas"])

        def references(part: Any) -> set[str]:
            if isinstance(part, dict):
                own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
                return own.union(*map(references, part.values()))
            return set().union(*map(references, part)) if isinstance(part, list) else set()

        assert references(document) <= {f"#/components/schemas/{name}" for name in names}
        assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
        assert "http" not in answer.text.replace("http-", "").replace('"type":"http"', "")
