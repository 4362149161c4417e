"""Databases as the tests of `flow` have them, a memory for spans, and a collector to send them to."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.traces import Traces
from tests.flow.conftest import kept, nobody_waits, sqlite

__all__ = ["kept", "nobody_waits", "sqlite"]


@pytest.fixture
def exported() -> InMemorySpanExporter:
    """The spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def traces(exported: InMemorySpanExporter) -> Traces:
    return Traces(SimpleSpanProcessor(exported))


class Collector(ThreadingHTTPServer):
    """Takes spans by OTLP over HTTP."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.requests: list[tuple[str, ExportTraceServiceRequest]] = []


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server_port}")
        serving = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        yield made
        made.shutdown()
        serving.join()
