"""What a view says, in words that are the same on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from app.clock import rfc3339
from app.store import rollups
from app.store.engine import open_engines
from tests.databases import Database

BY_HOUR: Final = (
    "report_tenants_by_hour",
    "report_throughput_by_minute",
    "report_fairness_by_hour",
    "report_failures_by_suite",
    "report_workers",
)
VIEWS: Final = ("report_job_waits", "report_attempts", "report_queue_depth", *BY_HOUR)


def plain(value: Any) -> Any:
    """A value as SQLite has it."""
    if isinstance(value, UUID):
        return value.hex
    return rfc3339(value) if isinstance(value, datetime) else value


async def said(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    return [tuple(map(plain, row)) for row in await database.fetch(sql)]


async def view(database: Database, name: str, until: str = "9") -> list[tuple[Any, ...]]:
    """The rows of a view, in an order; of one by hour those of hours before `until`."""
    time = "minute" if "minute" in name else "hour"
    where = f" WHERE {time} < '{until}'" if name in BY_HOUR and until != "9" else ""
    return sorted(await said(database, f"SELECT * FROM {name}{where}"), key=repr)


async def views(database: Database, until: str) -> dict[str, Sequence[Any]]:
    """The rows of every view."""
    return {name: await view(database, name, until) for name in VIEWS}


async def roll_up(database: Database, hour: datetime) -> None:
    """Roll up one hour, as the service does it in several transactions."""
    async with open_engines(database.url) as engines, engines.writer.begin() as connection:
        was = await rollups.until(connection)
        figures = await rollups.figures(connection, hour)
        for portion in figures.portions():
            await rollups.save(connection, portion)
        assert await rollups.close_if_open(connection, was, hour + rollups.HOUR)
