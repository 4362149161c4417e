"""How the service is."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency

from app.api.document import documented
from app.api.schemas import HealthAnswer
from app.errors import Unavailable
from app.flow.core import Core


@get("/health/live", **documented(Unavailable))
async def is_live(core: NamedDependency[Core]) -> HealthAnswer:
    """Whether the loops turn."""
    health = core.health()
    if not health.live:
        raise Unavailable(health.why)
    return HealthAnswer(status="live")


@get("/health/ready", **documented(Unavailable))
async def is_ready(core: NamedDependency[Core]) -> HealthAnswer:
    """Whether requests are served; if not, the error says what stands in the way."""
    health = core.health()
    if not health.ready:
        raise Unavailable(health.why)
    return HealthAnswer(status="ready")


HANDLERS = (is_live, is_ready)
