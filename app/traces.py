"""Traces by OpenTelemetry: the one place that knows it, loaded only where `FAIRLANE_TRACES` says so. Where they go, and
how many, is read by its SDK from the standard OTEL_ variables. Nothing here is global."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from http import HTTPMethod
from importlib.metadata import version
from threading import Thread
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.errors import FairlaneError, Unavailable
from app.spans import Span

CLOSE_SEC: Final = 2.0
"""How long the end of the service waits for the last spans to be sent."""

_INCOMING: Final = frozenset({b"traceparent", b"tracestate"})
_FAULT: Final = 500


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self.span = span

    def link(self, other: Span) -> None:
        if isinstance(other, _Span):
            self.span.add_link(other.span.get_span_context())


class Traces:
    """Opens spans, and one around each request. `close` it at the end."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        """`processor` is told each span; without one they are sent to a collector as OTEL_EXPORTER_OTLP_ says."""
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("fairlane", version("fairlane"))
        self._context_of = TraceContextTextMapPropagator().extract

    def span(self, name: str, links: Sequence[Span] = (), **attributes: int | str) -> AbstractContextManager[Span]:
        """`Spans.span`."""
        named = {f"fairlane.{key}": value for key, value in attributes.items()}
        linked = [Link(each.span.get_span_context()) for each in links if isinstance(each, _Span)]
        return self._open(self._tracer.start_span(name, attributes=named, links=linked))

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application with a span around each request, which carries on the trace of its `traceparent`."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == ScopeType.HTTP:
                await self._serve(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return traced

    async def close(self) -> None:
        """Send what is left, as far as that goes in a moment: a collector that is away must not hold the end."""
        sending = Thread(target=self._provider.shutdown, name="the last spans", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, CLOSE_SEC)

    async def _serve(self, app: ASGIApp, scope: HTTPScope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["method"] in HTTPMethod.__members__ else "_OTHER"
        span = self._tracer.start_span(
            method,
            context=self._context_of(_incoming(scope)),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method},
        )

        async def note_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= _FAULT:
                    span.set_status(Status(StatusCode.ERROR))
            await send(message)

        with self._open(span):
            try:
                await app(scope, receive, note_status)
            finally:
                if route := scope.get("path_template"):  # Litestar leaves it there once it has found the route
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)

    @contextmanager
    def _open(self, span: trace.Span) -> Iterator[_Span]:
        # Not the SDK's own way: it would note the texts of errors, and those may name what a client has sent.
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield _Span(span)
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            if isinstance(error, Exception) and (
                isinstance(error, Unavailable) or not isinstance(error, FairlaneError)
            ):
                span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            context.detach(token)
            span.end()


def _incoming(scope: HTTPScope) -> dict[str, str]:
    """What the request says of the trace it belongs to; nothing if it says it twice."""
    found = [(name.lower(), value) for name, value in scope["headers"] if name.lower() in _INCOMING]
    said = {name.decode(): value.decode("latin-1") for name, value in found}
    return said if len(said) == len(found) else {}


def _resource() -> Resource:
    found = Resource.create({"service.version": version("fairlane")})
    if "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return found
    return found.merge(Resource({"service.name": "fairlane"}))
