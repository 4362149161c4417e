"""Traces of the service as people run it: off unless wanted, sent where OTEL_ says, never in the way of its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import Database
from tests.served import serving
from tests.traces.conftest import Collector

SERVE = "from app.cli import main; main(['serve', '--traces', 'true', '--port', '0'])"


async def test_spans_reach_the_collector_at_the_end_at_the_latest(
    sqlite: Database, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "fairlane-of-ours")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    async with serving(sqlite.url, traces="true") as served:
        async with served.client() as client:
            assert (await client.get("/stats")).status_code == 200
        assert await served.stop() == 0
    resources = [
        resource for path, sent in collector.requests for resource in sent.resource_spans if path == "/v1/traces"
    ]
    names = {span.name for resource in resources for scope in resource.scope_spans for span in scope.spans}
    services = {
        attribute.value.string_value
        for resource in resources
        for attribute in resource.resource.attributes
        if attribute.key == "service.name"
    }
    assert {"GET /stats", "tick"} <= names
    assert services == {"fairlane-of-ours"}


async def test_a_collector_that_is_away_holds_nothing_up(
    sqlite: Database, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused_port}")
    async with serving(sqlite.url, traces="true") as served:
        async with served.client() as client:
            assert (await client.get("/health/ready")).status_code == 200
        assert await served.stop() == 0
    assert served.events[-1]["event"] == "server_stopped"


def test_without_the_extra_a_sentence_says_what_is_missing(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['opentelemetry'] = None; "
    command = [sys.executable, "-c", missing + SERVE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ended.returncode == 1
    assert (
        "FAIRLANE_TRACES needs what the extra otel installs, pip install 'fairlane[otel]'"
        in ended.stderr + ended.stdout
    )
    assert "Traceback" not in ended.stderr


def test_a_service_that_is_not_traced_loads_nothing_of_it() -> None:
    look = "import sys, app.main; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", look], timeout=60, check=True)


def test_a_variable_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    environ = {**os.environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5000"}  # more than its queue holds
    command = [sys.executable, "-c", SERVE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environ)
    assert ended.returncode == 1
    assert "an OTEL_ variable cannot be used: " in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
