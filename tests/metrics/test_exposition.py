"""`GET /metrics` as a scraper asks for it, and what a request leaves there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from app.metrics.exposition import write
from tests.api.asgi import Call, app_of, client_of
from tests.databases import Database
from tests.flow.harness import Running, service
from tests.metrics.scraped import Scraped, read

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=1.0.0;q=0.6,"
    "text/plain;version=0.0.4;q=0.4,*/*;q=0.2"
)


@pytest.fixture
async def running(sqlite: Database) -> AsyncIterator[Running]:
    async with service(sqlite) as made:
        yield made


@pytest.fixture
async def client(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app_of(running)) as opened:
        yield opened


async def look(client: httpx.AsyncClient) -> Scraped:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return read(answer.text)


async def test_requests_go_by_method_route_and_status_and_no_path_is_shown(client: httpx.AsyncClient) -> None:
    job = {"tenant": "acme", "test_suite": "smoke"}
    stored = (await client.post("/jobs", json=job)).json()
    await client.post("/jobs", json=job | {"priority": 11})
    await client.get(f"/jobs/{stored['id']}")
    await client.get("/jobs/no-such-job")
    await client.get("/jobs?tenant=secret-tenant")
    await client.get("/secret-path")
    await client.delete("/jobs")
    seen = await look(client)

    def requests(method: str, route: str, status: str) -> float:
        return seen("http_requests_total", method=method, route=route, status=status)

    assert requests("POST", "/jobs", "201") == 1
    assert requests("POST", "/jobs", "400") == 1
    assert requests("GET", "/jobs/{job_id}", "200") == 1
    assert requests("GET", "/jobs/{job_id}", "404") == 1
    assert requests("GET", "/jobs", "200") == 1
    assert requests("GET", "none", "404") == 1
    assert requests("DELETE", "none", "405") == 1
    assert seen("http_request_seconds_count", method="GET", route="/jobs/{job_id}") == 2
    assert "secret" not in seen.text
    assert stored["id"] not in seen.text


async def test_nothing_that_a_client_invents_makes_a_label(running: Running, client: httpx.AsyncClient) -> None:
    await look(client)
    before = await look(client)
    app = app_of(running)
    for n in range(30):
        await Call(f"INVENTED{n}", f"/invented/{n}".encode()).of(app)
        await Call("GET", f"/jobs//{n}".encode()).of(app)
    after = await look(client)
    assert after.values("method") - before.values("method") == {"other"}
    assert after.values("route") - before.values("route") == {"none"}
    assert len(after.text) < len(before.text) + 6_000


async def test_the_text_is_what_the_scraper_asks_for(client: httpx.AsyncClient) -> None:
    plain = await client.get("/metrics")
    assert plain.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]
    assert "_created" not in plain.text
    wished = await client.get("/metrics", headers={"accept": PROMETHEUS})
    assert wished.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in read_openmetrics(wished.text)}  # type: ignore[no-untyped-call]
    assert names
    assert all(name.startswith("fairlane_") for name in names)
    assert (await client.get("/metrics?name[]=x")).status_code == 400
    assert (await client.post("/metrics")).status_code == 405


@settings(derandomize=True, deadline=None, database=None)
@given(
    st.text(st.characters(max_codepoint=255), max_size=60)
    | st.builds(
        "{};{}={}".format,
        st.sampled_from(["application/openmetrics-text", "text/plain"]),
        st.sampled_from(["version", "escaping", ""]),
        st.text(st.sampled_from("0123456789.ab-;=,"), max_size=30),
    )
)
@example("application/openmetrics-text;version=abc")
@example("application/openmetrics-text;version=" + "9" * 5000)
@example("")
def test_whatever_is_accepted_something_is_sent(accept: str) -> None:
    registry = CollectorRegistry()
    Counter("fairlane_tried", "Tried.", registry=registry).inc()
    media_type, text = write(registry.collect(), accept)
    assert media_type.startswith(("text/plain; version=", "application/openmetrics-text; version="))
    assert "fairlane_tried_total 1.0\n" in text.decode()
