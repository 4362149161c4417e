"""Databases as the tests of `flow` have them, and a memory for spans."""

from __future__ import annotations

import pytest
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
