"""The front page: how the service stands, on one screen."""

from __future__ import annotations

import asyncio

from app.api.page import charts
from app.api.page.render import render
from app.flow.core import Core
from app.flow.watch.last_hour import MINUTES
from app.flow.watch.overview import Overview, overview


async def front_page(core: Core) -> str:
    """The page as HTML. Raises `Unavailable`."""
    seen = await overview(core)
    return await asyncio.to_thread(
        _render, seen, core.settings.keys == "required"
    )  # tens of milliseconds, in which others are served


def _render(seen: Overview, has_logins: bool) -> str:  # noqa: FBT001 - called through a thread
    is_whole_hour = (seen.at - seen.since).total_seconds() >= MINUTES * 60
    return render(
        "overview.html",
        may_log_out=has_logins,
        seen=seen,
        completed=sum(minute.completed for minute in seen.minutes),
        failed=sum(minute.failed for minute in seen.minutes),
        largest_share=max((max(line.given or 0, line.due or 0) for line in seen.tenants), default=0) or 1,
        since=None if is_whole_hour else seen.since,
        throughput=charts.throughput(seen.minutes, seen.since),
        waiting=charts.waiting(seen.minutes, seen.since),
    )
