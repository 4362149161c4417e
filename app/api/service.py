"""How the service is: for probes, and for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.status_codes import HTTP_200_OK

from app.api.document import METRICS, documented
from app.api.request import CheckedRequest
from app.api.schemas import HealthAnswer, ReadyAnswer
from app.errors import Unavailable

Scrape: TypeAlias = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Answers an `Accept` header with a media type and all metrics."""


async def nothing_measured(accept: str) -> tuple[str, bytes]:  # noqa: ARG001 - whatever is accepted
    """A `Scrape` where there are no metrics."""
    return "text/plain; charset=utf-8", b""


@get("/health/live", answered_anywhere=True, **documented(Unavailable, needs_key=False))
async def is_live(request: CheckedRequest) -> HealthAnswer:
    """Whether the loops turn."""
    health = request.core.health()
    if not health.live:
        raise Unavailable(health.why)
    return HealthAnswer(status="live")


@get("/health/ready", answered_anywhere=True, **documented(Unavailable, needs_key=False))
async def is_ready(request: CheckedRequest) -> ReadyAnswer:
    """Whether requests are served; if not, the error says what stands in the way."""
    health = request.core.health()
    if not health.ready:
        raise Unavailable(health.why)
    return ReadyAnswer(status="ready", role=request.core.role)


@get("/metrics", answered_anywhere=True, **documented(also={HTTP_200_OK: METRICS}))
async def metrics(request: CheckedRequest, scrape: NamedDependency[Scrape]) -> Response[bytes]:
    """What Prometheus reads: in its text format, or as OpenMetrics if `Accept` says so."""
    media_type, text = await scrape(",".join(request.headers.getall("Accept", [])))
    return Response(text, headers={"content-type": media_type})


HANDLERS = (is_live, is_ready, metrics)
