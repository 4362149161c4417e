"""What a trace shows of a request and of the writer's work, and what it never shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import pytest
from opentelemetry import trace as global_trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.api.front import Front
from app.flow.housekeeping import Housekeeper, Round
from app.traces import Traces
from tests.api.asgi import Call, app_of
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, Running, busy, failing, service

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def running(sqlite: Database, traces: Traces) -> AsyncIterator[Running]:
    async with service(sqlite, spans=traces) as made:
        yield made


@pytest.fixture
def app(running: Running, traces: Traces) -> Any:
    front: Front = app_of(running)
    return traces.around(front)


@pytest.fixture
async def client(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://fairlane.test") as opened:
        yield opened


def named(spans: Iterable[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


async def test_a_request_carries_on_its_callers_trace_down_to_its_write(
    client: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    answer = await client.post("/jobs", json={"tenant": "acme", "test_suite": "unit"}, headers={"traceparent": CALLER})
    assert answer.status_code == 201
    spans = exported.get_finished_spans()
    [request], [write] = named(spans, "POST /jobs"), named(spans, "write")
    [group], [commit] = named(spans, "group"), named(spans, "commit")

    assert request.kind is SpanKind.SERVER
    assert request.parent is not None
    assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" in CALLER
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/jobs",
        "http.response.status_code": 201,
    }
    assert is_child(write, request)
    assert group.parent is None  # it is nobody's alone
    assert linked(group) == {write.context.span_id}
    assert linked(write) == {group.context.span_id}
    assert dict(group.attributes or {}) == {"fairlane.writes": 1}
    assert is_child(commit, group)
    assert request.resource.attributes["service.name"] == "fairlane"


async def test_requests_that_share_a_commit_are_linked_to_one_group(
    running: Running, client: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    async with busy(running.core) as backlog:
        exported.clear()
        job = {"tenant": "acme", "test_suite": "unit"}
        submits = asyncio.gather(*(client.post("/jobs", json=job) for _ in range(3)))
        await backlog.grows_to(3)
    await submits
    spans = exported.get_finished_spans()
    writes = [
        span for span in named(spans, "write") if any(is_child(span, each) for each in named(spans, "POST /jobs"))
    ]
    [group] = [span for span in named(spans, "group") if (span.attributes or {})["fairlane.writes"] == 3]
    assert len(writes) == 3
    assert linked(group) == {write.context.span_id for write in writes}
    assert len({write.context.trace_id for write in writes}) == 3
    assert all(linked(write) == {group.context.span_id} for write in writes)


async def test_nothing_that_was_sent_is_shown(client: httpx.AsyncClient, exported: InMemorySpanExporter) -> None:
    secret = {"x-api-key": "secret-1", "authorization": "Bearer secret-2", "baggage": "user=secret-3"}
    body = {"tenant": "secret-4", "test_suite": "secret-5", "payload": {"a": "secret-6"}, "queue": "secret-7"}
    key = {"idempotency-key": "secret-8"}
    job = (await client.post("/jobs", json=body, headers=secret | key)).json()
    assert (await client.post("/jobs", json=body | {"priority": 1}, headers=key)).status_code == 422
    await client.get("/jobs?tenant=secret-4", headers=secret)
    claimed = (await client.post("/jobs/claim", json={"worker": "secret-9", "queues": ["secret-7"]})).json()["jobs"]
    token = {"token": claimed[0]["lease"]["token"]}
    assert (await client.post(f"/jobs/{job['id']}/complete", json=token)).status_code == 409
    await client.post(f"/jobs/{job['id']}/fail", json=token | {"error": "secret-10"})
    await client.get("/secret-11")

    spans = exported.get_finished_spans()
    shown = "".join(span.to_json() for span in spans)
    assert "secret" not in shown
    assert token["token"] not in shown
    assert job["id"] not in shown
    assert not any(span.events for span in spans)
    [refused] = named(spans, "POST /jobs/{job_id}/complete")
    [judged] = [span for span in named(spans, "write") if is_child(span, refused)]
    assert json.loads(judged.to_json())["attributes"] == {"error.type": "Conflict"}
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}  # refusing is no failure
    assert [span.name for span in spans][-1] == "GET"


async def test_what_failed_is_marked(
    running: Running, client: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    with failing(running.core, "commit"):
        answer = await client.post("/jobs", json={"tenant": "acme", "test_suite": "unit"})
    assert answer.status_code == 503
    spans = exported.get_finished_spans()
    failed = {span.name for span in spans if span.status.status_code is StatusCode.ERROR}
    assert failed == {"POST /jobs", "write", "commit"}
    assert not any(span.events for span in spans)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")],
        [(b"traceparent", b"\xff\x00"), (b"tracestate", b"\xfe=1,,")],
        [(b"traceparent", CALLER.encode()), (b"Traceparent", CALLER.replace("b7", "c8").encode())],
        [(b"tracestate", b"a=1")],
    ],
)
async def test_a_header_that_says_nothing_begins_a_trace(
    app: Any, exported: InMemorySpanExporter, headers: list[tuple[bytes, bytes]]
) -> None:
    call = await Call("GET", b"/health/live", headers=[(b"host", b"here"), *headers]).of(app)
    assert call.status == 200
    [request] = exported.get_finished_spans()
    assert request.parent is None


async def test_ticks_and_rounds_are_spans_and_their_writes_lie_in_them(
    running: Running, exported: InMemorySpanExporter
) -> None:
    done = asyncio.Event()

    async def work(_: object) -> bool:
        done.set()
        return False

    await running.submit(delay_sec=1)
    exported.clear()
    await running.tick(after=2)
    [tick] = named(exported.get_finished_spans(), "tick")
    [write] = named(exported.get_finished_spans(), "write")
    assert is_child(write, tick)
    housekeeper = Housekeeper(running.core, [Round("sweep", 0.001, work)])
    housekeeper.start()
    async with asyncio.timeout(PATIENCE_SEC):
        await done.wait()
    await housekeeper.stop()
    assert (named(exported.get_finished_spans(), "round")[0].attributes or {})["fairlane.loop"] == "sweep"


async def test_nothing_global_is_touched(traces: Traces) -> None:
    assert isinstance(global_trace.get_tracer_provider(), global_trace.ProxyTracerProvider)
    await traces.close()
