"""The metrics of the service as people run it."""

from __future__ import annotations

from importlib.metadata import version

from tests.databases import Database
from tests.metrics.scraped import read
from tests.served import serving


async def test_a_server_shows_what_it_serves_and_how_its_ticker_is(sqlite: Database) -> None:
    async with serving(sqlite.url, metrics_queues=1, metrics_tenants=1) as served, served.client() as client:
        for queue in ("default", "gpu"):
            body = {"tenant": "acme", "test_suite": "unit", "queue": queue, "delay_sec": 0}
            assert (await client.post("/jobs", json=body)).status_code == 201
        answer = await client.get("/metrics")
        seen = read(answer.text)
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert seen("http_requests_total", method="POST", route="/jobs", status="201") == 2
        assert seen("jobs", queue="default", state="queued") == seen("jobs", queue="other", state="queued") == 1
        assert seen("tenant_jobs", tenant="acme", state="queued") == 2
        assert seen("loop_period_seconds", loop="ticker") == 0.5
        assert seen("build_info", database="sqlite", policy="virtual-time", version=version("fairlane")) == 1
        assert seen("ready") == 1
        assert seen("process_resident_memory_bytes") > 0
        assert await served.stop() == 0
