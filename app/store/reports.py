"""The reports as others may ask for them: which there are, their columns, and their rows. What each says is made by
the migrations' views and promised in docs/reporting.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, column, select, table
from sqlalchemy.ext.asyncio import AsyncEngine

from app.store.types import HexId, Moment, PlainText, Real, Whole

ROWS_AT_ONCE: Final = 5000


class Kind(Enum):
    """What a column holds."""

    ID = HexId()
    TEXT = PlainText()
    WHOLE = Whole(64)
    SECONDS = "seconds"
    SHARE = "share"
    MOMENT = Moment()

    @property
    def type(self) -> Any:
        """As SQLAlchemy sees it."""
        return self.value if self not in (Kind.SECONDS, Kind.SHARE) else Real


@dataclass(frozen=True, slots=True)
class Report:
    """A view: its columns in order; `time` is the one by which rows are chosen and ordered, `keys` tell a row from
    every other one. `is_single` says that a row is one job or attempt, not a figure over many."""

    name: str
    about: str
    columns: dict[str, Kind]
    keys: tuple[str, ...]
    time: str | None
    is_single: bool = False

    @property
    def view(self) -> str:
        """What it is called in SQL."""
        return "report_" + self.name.replace("-", "_")


_NAMES: Final = {
    Kind.ID: "job_id",
    Kind.TEXT: "tenant queue test_suite state worker outcome",
    Kind.WHOLE: "seq priority cost attempt number weight waiting_weight queue_cost pending queued scheduled running"
    " submitted dispatched finished completed failed cancelled ended lapsed timed_out released flaky"
    " attempts failed_attempts lapsed_attempts timed_out_attempts",
    Kind.SECONDS: "delay_sec wait_sec queue_sec start_sec run_sec total_sec work_sec"
    " wait_p50_sec wait_p90_sec wait_p99_sec",
    Kind.SHARE: "weight_share cost_share",
    Kind.MOMENT: "submitted_at due_at first_scheduled_at queued_at scheduled_at started_at completed_at ended_at"
    " oldest_queued_at next_run_at last_seen_at hour minute",
}
_KIND_OF: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""A name means the same in every report."""


def _columns(names: str) -> dict[str, Kind]:
    return {name: _KIND_OF[name] for name in names.split()}


REPORTS: Final = (
    Report(
        "job-waits",
        "each job, its times, and how long it waited for what",
        _columns(
            "job_id seq tenant queue test_suite priority cost state attempt submitted_at due_at first_scheduled_at"
            " queued_at scheduled_at started_at completed_at delay_sec wait_sec queue_sec start_sec run_sec total_sec"
        ),
        ("seq",),
        "submitted_at",
        is_single=True,
    ),
    Report(
        "attempts",
        "each attempt, those still at work included",
        _columns(
            "job_id number tenant queue test_suite worker outcome weight cost queued_at scheduled_at started_at"
            " ended_at wait_sec start_sec work_sec"
        ),
        ("job_id", "number"),
        "scheduled_at",
        is_single=True,
    ),
    Report(
        "tenants-by-hour",
        "what each tenant submitted, finished and waited for in each hour",
        _columns(
            "hour tenant submitted dispatched finished completed failed cancelled wait_p50_sec wait_p90_sec"
            " wait_p99_sec work_sec"
        ),
        ("hour", "tenant"),
        "hour",
    ),
    Report(
        "throughput-by-minute",
        "how many jobs came, began and ended in each minute",
        _columns("minute queue submitted dispatched finished completed failed cancelled"),
        ("minute", "queue"),
        "minute",
    ),
    Report(
        "fairness-by-hour",
        "the share each waiting tenant was due in each hour, and the share it was given",
        _columns("hour queue tenant weight waiting_weight weight_share dispatched cost queue_cost cost_share"),
        ("hour", "queue", "tenant"),
        "hour",
    ),
    Report(
        "queue-depth",
        "what waits and what runs, now",
        _columns("queue tenant pending queued scheduled running oldest_queued_at next_run_at"),
        ("queue", "tenant"),
        None,
    ),
    Report(
        "failures-by-suite",
        "how each test suite ended in each hour",
        _columns(
            "hour tenant test_suite finished completed failed cancelled flaky attempts failed_attempts"
            " lapsed_attempts timed_out_attempts work_sec"
        ),
        ("hour", "tenant", "test_suite"),
        "hour",
    ),
    Report(
        "workers",
        "what each worker did in each hour",
        _columns(
            "hour worker dispatched ended completed failed lapsed timed_out released cancelled work_sec last_seen_at"
        ),
        ("hour", "worker"),
        "hour",
    ),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows: those whose time is at or after `since` and before `until`, of a tenant; None is any. The newest
    come first, and no more than `limit`."""

    since: datetime | None = None
    until: datetime | None = None
    tenant: str | None = None
    limit: int | None = None


async def read(engine: AsyncEngine, report: Report, wanted: Wanted) -> AsyncIterator[Sequence[Sequence[Any]]]:
    """The rows of a report, some thousand at a time, all as of one moment."""
    async with engine.connect() as connection:
        result = await connection.stream(_query(report, wanted))
        async for rows in result.partitions(ROWS_AT_ONCE):
            yield rows


def _query(report: Report, wanted: Wanted) -> Select[Any]:
    view = table(report.view, *(column(name, kind.type) for name, kind in report.columns.items()))
    query: Select[Any] = select(*view.c)
    if wanted.tenant is not None:
        query = query.where(view.c.tenant == wanted.tenant)
    keys: list[ColumnElement[Any]] = [view.c[key] for key in report.keys]
    if report.time is not None:
        time = view.c[report.time]
        if wanted.since is not None:
            query = query.where(time >= wanted.since)
        if wanted.until is not None:
            query = query.where(time < wanted.until)
        keys = [time.desc(), *(key.desc() if report.is_single else key for key in keys if key is not time)]
    return query.order_by(*keys).limit(wanted.limit)
