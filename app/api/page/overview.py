"""The front page: how the service stands, on one screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.api.page import charts
from app.api.page.render import render
from app.flow.core import Core
from app.flow.watch.last_hour import MINUTES, Minute
from app.flow.watch.overview import Overview, overview


@dataclass(frozen=True, slots=True)
class Totals:
    """Of the last hour."""

    submitted: int
    started: int
    completed: int
    failed: int

    @staticmethod
    def of(minutes: Sequence[Minute]) -> Totals:
        """Summed up."""
        return Totals(
            submitted=sum(minute.submitted for minute in minutes),
            started=sum(minute.started for minute in minutes),
            completed=sum(minute.completed for minute in minutes),
            failed=sum(minute.failed for minute in minutes),
        )


async def front_page(core: Core) -> str:
    """The page as HTML. Raises `Unavailable`."""
    seen = await overview(core)
    return await asyncio.to_thread(_render, seen)  # tens of milliseconds, in which others are served


def _render(seen: Overview) -> str:
    is_whole_hour = (seen.at - seen.since).total_seconds() >= MINUTES * 60
    return render(
        "overview.html",
        seen=seen,
        totals=Totals.of(seen.minutes),
        largest_share=max((max(line.given or 0, line.due or 0) for line in seen.tenants), default=0) or 1,
        since=None if is_whole_hour else seen.since,
        throughput=charts.throughput(seen.minutes, seen.since),
        waiting=charts.waiting(seen.minutes, seen.since),
    )
