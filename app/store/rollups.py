"""The figures of hours that are over. The views of the migrations count live rows by the same rules from `until` on;
a test holds the two together. What a figure is keyed by is known when its hour ends: a submit by its own time, a
dispatch by its own, an end by its own. So what is rolled up never changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    bindparam,
    case,
    cast,
    column,
    delete,
    func,
    literal,
    null,
    select,
    table,
    union,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.job import Outcome, State
from app.store import dialect
from app.store.dialect import micros_between, minute_of
from app.store.schema import (
    HOURLY,
    IS_ACTIVE,
    IS_QUEUED,
    hourly_fairness,
    hourly_suites,
    hourly_tenants,
    hourly_workers,
    job_attempts,
    jobs,
    minutely_queues,
    rollups,
    tenants,
)
from app.store.types import Choice, HexId, Moment, PlainText, Whole

HOURS: Final = "hours"
HOUR: Final = timedelta(hours=1)
_ROWS_OF_A_QUIET_TIME: Final = 5000
_BEGINNING: Final = datetime(1, 1, 2, tzinfo=UTC)  # the first moment of all is what asyncpg takes for infinity
ROWS_AT_ONCE: Final = 500
"""Most rows written in one transaction, so that claims and submits come in between."""

Row = Mapping[str, Any]

_attempts: Final = table(  # those that are still held too, which `job_attempts` has not
    "report_attempts",
    column("job_id", HexId()),
    *(column(name, PlainText()) for name in ("tenant", "queue", "test_suite", "worker")),
    column("outcome", Choice(Outcome)),
    *(column(name, Whole()) for name in ("number", "weight", "cost")),
    *(column(name, Moment()) for name in ("queued_at", "scheduled_at", "started_at", "ended_at")),
)

_begin: Final = bindparam("begin", type_=Moment())
_end: Final = bindparam("end", type_=Moment())


@dataclass(frozen=True, slots=True)
class Portion:
    """Some rows of a table."""

    into: Table
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the hours from `hour` until `until` come to: rows of each table."""

    hour: datetime
    until: datetime
    rows: Mapping[str, Sequence[Row]]

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(len(rows) for rows in self.rows.values())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened in the hour; there may be jobs that wait."""
        return not any(rows for name, rows in self.rows.items() if name != hourly_fairness.name)

    def repeated(self, until: datetime) -> Figures:
        """The same for each hour of a quiet time, but for no more hours than a round may take."""
        waiting = self.rows[hourly_fairness.name]
        most = max(1, _ROWS_OF_A_QUIET_TIME // len(waiting)) if waiting else None
        hours = (until - self.hour) // HOUR
        count = hours if most is None else min(hours, most)
        repeated = [{**row, "hour": self.hour + n * HOUR} for n in range(count) for row in waiting]
        return Figures(self.hour, self.hour + count * HOUR, {**self.rows, hourly_fairness.name: repeated})

    def portions(self) -> Iterator[Portion]:
        """The rows, in portions of a transaction each."""
        for into in HOURLY:
            rows = self.rows[into.name]
            for first in range(0, len(rows), ROWS_AT_ONCE):
                yield Portion(into, rows[first : first + ROWS_AT_ONCE])


@dataclass(slots=True)
class _Merged:
    """Rows with the same key, from several statements, put together. What none says is 0, or null where it may be."""

    into: Table
    by_key: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        key = tuple(row[column.name] for column in self.into.primary_key)
        merged = self.by_key.setdefault(key, {c.name: None if c.nullable else 0 for c in self.into.columns})
        for name, value in row.items():
            # The newer of two times; everything else is said by one statement alone.
            merged[name] = max(value, merged[name] or value) if name == "last_seen_at" else value

    def rows(self) -> list[Row]:
        return [self.by_key[key] for key in sorted(self.by_key)]


async def until(connection: AsyncConnection) -> datetime | None:
    """Where the roll-up stands: every hour before is rolled up, none from there on. None: nothing was yet.

    What may still be counted lies at or after this time: only what ended before may be deleted from the history.
    """
    wanted = select(rollups.c.until).where(rollups.c.name == HOURS)
    moment: datetime | None = (await connection.execute(wanted)).scalar_one_or_none()
    return moment


async def next_change(connection: AsyncConnection, since: datetime | None) -> datetime | None:
    """The first hour, from the hour `since` on, in which anything happened; None if there is none. That a job goes on
    waiting is not counted as happening."""
    found = (await connection.execute(_next_change(), {"begin": since or _BEGINNING})).scalar_one()
    return None if found is None else hour_of(found)


async def figures(connection: AsyncConnection, hour: datetime) -> Figures:
    """What the hour that begins at `hour` comes to. It must be over and everything in it committed."""
    given = {"begin": hour, "end": hour + HOUR}
    merged = {into.name: _Merged(into) for into in HOURLY}
    for name, statement in _statements():
        for row in (await connection.execute(statement, given)).mappings():
            merged[name].add(row if "minute" in row else {"hour": hour, **row})
    _add_totals(merged[hourly_fairness.name])
    return Figures(hour, hour + HOUR, {name: each.rows() for name, each in merged.items()})


async def unfinished(connection: AsyncConnection, hour: datetime) -> list[datetime]:
    """The hours from `hour` on of which a roll-up that was cut has left something. No view has shown it."""
    moments = (into.primary_key.columns[0] for into in HOURLY)
    left = union(*(select(moment.label("moment")).where(moment >= hour) for moment in moments))
    return sorted({hour_of(moment) for moment in (await connection.execute(left)).scalars()})


async def forget(connection: AsyncConnection, hour: datetime) -> None:
    """Delete the figures of an hour."""
    for into in HOURLY:
        moment = into.primary_key.columns[0]
        await connection.execute(delete(into).where(moment >= hour, moment < hour + HOUR))


async def save(connection: AsyncConnection, portion: Portion) -> None:
    """Write a portion of an hour's figures. No view shows them before the hour is closed."""
    keys = [column.name for column in portion.into.primary_key]
    others = [column.name for column in portion.into.columns if column.name not in keys]
    await connection.execute(dialect.upsert(connection, portion.into, keys=keys, update=others), list(portion.rows))


async def close_if_open(connection: AsyncConnection, was_until: datetime | None, now_until: datetime) -> bool:
    """From now on the views read the figures before `now_until`; False if somebody else has moved that meanwhile."""
    unchanged = rollups.c.until.is_not_distinct_from(was_until)
    moved = await connection.execute(update(rollups).where(rollups.c.name == HOURS, unchanged).values(until=now_until))
    return moved.rowcount == 1


async def hours_of(connection: AsyncConnection, tenant: str) -> list[datetime]:
    """The hours of which figures of a tenant are kept."""
    hours = union(*(select(each.c.hour).where(each.c.tenant == tenant) for each in _OF_TENANTS))
    return sorted((await connection.execute(hours)).scalars())


async def forget_tenant(connection: AsyncConnection, tenant: str, hours: Sequence[datetime]) -> None:
    """Delete what is kept of a tenant in these hours. What it was a part of in others' shares stays."""
    for each in _OF_TENANTS:
        its = delete(each).where(each.c.hour == bindparam("of_hour"), each.c.tenant == tenant)
        await connection.execute(its, [{"of_hour": hour} for hour in hours])


_OF_TENANTS: Final = tuple(each for each in HOURLY if "tenant" in each.c)


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour, in UTC, in which a moment lies."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _add_totals(fairness: _Merged) -> None:
    """What shares are parts of: the weights of all that waited in a queue, the cost of all that was dispatched."""
    weights: dict[str, int] = {}
    costs: dict[str, int] = {}
    for row in fairness.by_key.values():
        weights[row["queue"]] = weights.get(row["queue"], 0) + row["weight"]
        costs[row["queue"]] = costs.get(row["queue"], 0) + row["cost"]
    for row in fairness.by_key.values():
        row |= {"waiting_weight": weights[row["queue"]], "queue_cost": costs[row["queue"]]}


# --- Statements, built once -----------------------------------------------------------------------------------


def _within(moment: ColumnElement[Any]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return moment >= _begin, moment < _end


def _total(number: ColumnElement[Any]) -> ColumnElement[int]:
    """A sum that stays a whole number; Postgres would make a decimal of it."""
    return cast(func.coalesce(func.sum(number), 0), Whole(64))


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return _total(case((condition, 1), else_=0))


def _work(attempts: Any) -> ColumnElement[int]:
    return _total(micros_between(attempts.started_at, attempts.ended_at)).label("work_us")


_IS_WITHDRAWN: Final = (jobs.c.completed_at.is_not(None), jobs.c.scheduled_at.is_(None), jobs.c.queued_at.is_not(None))
_FINISHED: Final = [
    _count_if(jobs.c.state == state).label(state.value) for state in (State.COMPLETED, State.FAILED, State.CANCELLED)
]


@cache
def _statements() -> tuple[tuple[str, Select[Any]], ...]:
    """(table, a statement that says some of its columns by its key); the hour is `begin` to `end`."""
    return (
        *((hourly_tenants.name, statement) for statement in _of_tenants()),
        *((hourly_suites.name, statement) for statement in _of_suites()),
        *((hourly_workers.name, statement) for statement in _of_workers()),
        *((minutely_queues.name, statement) for statement in _of_minutes()),
        (hourly_fairness.name, _of_fairness()),
    )


def _of_tenants() -> Iterator[Select[Any]]:
    j, a = jobs.c, _attempts.c
    yield select(j.tenant, func.count().label("submitted")).where(*_within(j.submitted_at)).group_by(j.tenant)
    yield select(j.tenant, *_FINISHED).where(*_within(j.completed_at)).group_by(j.tenant)
    yield _of_waits()
    yield select(a.tenant, _work(a)).where(*_within(a.ended_at)).group_by(a.tenant)


def _of_waits() -> Select[Any]:
    """Nearest rank: the smallest wait of which that many percent of all are not larger."""
    a = _attempts.c
    waits = (
        select(a.tenant, micros_between(a.queued_at, a.scheduled_at).label("wait_us"))
        .where(*_within(a.scheduled_at))
        .subquery("waits")
    )
    ranked = select(
        waits.c.tenant,
        waits.c.wait_us,
        func.row_number().over(partition_by=waits.c.tenant, order_by=waits.c.wait_us).label("place"),
        func.count().over(partition_by=waits.c.tenant).label("amount"),
    ).subquery("ranked")
    at_ranks = (
        func.max(case((ranked.c.place == (ranked.c.amount * percent + 99) // 100, ranked.c.wait_us))).label(
            f"wait_p{percent}_us"
        )
        for percent in (50, 90, 99)
    )
    return select(ranked.c.tenant, func.count().label("dispatched"), *at_ranks).group_by(ranked.c.tenant)


def _of_suites() -> Iterator[Select[Any]]:
    j, a = jobs.c, _attempts.c
    flaky = _count_if((j.state == State.COMPLETED) & (j.attempt > 1)).label("flaky")
    finished = select(j.tenant, j.test_suite, *_FINISHED, flaky)
    yield finished.where(*_within(j.completed_at)).group_by(j.tenant, j.test_suite)
    ended = select(
        a.tenant,
        a.test_suite,
        func.count().label("attempts"),
        *(
            _count_if(a.outcome == outcome).label(f"{outcome.name.lower()}_attempts")
            for outcome in (Outcome.FAILED, Outcome.LAPSED, Outcome.TIMED_OUT)
        ),
        _work(a),
    )
    yield ended.where(*_within(a.ended_at)).group_by(a.tenant, a.test_suite)


def _of_workers() -> Iterator[Select[Any]]:
    a, e = _attempts.c, job_attempts.c
    begun = select(a.worker, func.count().label("dispatched"), func.max(a.scheduled_at).label("last_seen_at"))
    yield begun.where(*_within(a.scheduled_at)).group_by(a.worker)
    ended = select(
        e.worker,
        func.count().label("ended"),
        *(_count_if(e.outcome == outcome).label(outcome.name.lower()) for outcome in Outcome),
        _work(e),
        func.max(e.ended_at).label("last_seen_at"),
    )
    yield ended.where(*_within(e.ended_at)).group_by(e.worker)


def _of_minutes() -> Iterator[Select[Any]]:
    j, a = jobs.c, _attempts.c

    def by_minute(moment: ColumnElement[Any], queue: ColumnElement[str], *counts: ColumnElement[Any]) -> Select[Any]:
        minute: ColumnElement[Any] = minute_of(moment).label("minute")
        return select(*(minute, queue, *counts)).where(*_within(moment)).group_by("minute", queue)

    yield by_minute(j.submitted_at, j.queue, func.count().label("submitted"))
    yield by_minute(a.scheduled_at, a.queue, func.count().label("dispatched"))
    yield by_minute(j.completed_at, j.queue, *_FINISHED)


def _of_fairness() -> Select[Any]:
    """The tenants that had a job waiting in the hour: what left the queue in it, and what still waited at its end."""
    j, a = jobs.c, _attempts.c
    nothing = (literal(0).label("dispatched"), null().label("weight"), literal(0).label("cost"))
    present = union_all(
        select(a.queue, a.tenant, literal(1).label("dispatched"), a.weight, a.cost).where(*_within(a.scheduled_at)),
        select(a.queue, a.tenant, *nothing).where(a.scheduled_at >= _end, a.queued_at < _end),
        select(j.queue, j.tenant, *nothing).where(*_IS_WITHDRAWN, *_within(j.completed_at)),
        select(j.queue, j.tenant, *nothing).where(*_IS_WITHDRAWN, j.completed_at >= _end, j.queued_at < _end),
        select(j.queue, j.tenant, *nothing).where(IS_QUEUED, j.queued_at < _end).group_by(j.queue, j.tenant),
    ).subquery("present")
    p = present.c
    lanes = (
        select(
            p.queue,
            p.tenant,
            _total(p.dispatched).label("dispatched"),
            func.max(p.weight).label("weight"),
            _total(p.cost).label("cost"),
        )
        .group_by(p.queue, p.tenant)
        .subquery("lanes")
    )
    weight = func.coalesce(lanes.c.weight, tenants.c.weight).label("weight")
    shown = (lanes.c.queue, lanes.c.tenant, lanes.c.dispatched, lanes.c.cost, weight)
    return select(*shown).join_from(lanes, tenants, tenants.c.name == lanes.c.tenant)


@cache
def _next_change() -> Select[Any]:
    j, a = jobs.c, job_attempts.c
    firsts = union_all(
        select(func.min(j.submitted_at).label("moment")).where(j.submitted_at >= _begin),
        select(func.min(j.completed_at)).where(j.completed_at >= _begin),
        select(func.min(j.queued_at)).where(*_IS_WITHDRAWN, j.completed_at >= _begin, j.queued_at >= _begin),
        select(func.min(j.queued_at)).where(IS_QUEUED, j.queued_at >= _begin),
        select(func.min(j.queued_at)).where(IS_ACTIVE, j.queued_at >= _begin),
        select(func.min(j.scheduled_at)).where(IS_ACTIVE, j.scheduled_at >= _begin),
        select(func.min(a.queued_at)).where(a.scheduled_at >= _begin, a.queued_at >= _begin),
        select(func.min(a.scheduled_at)).where(a.scheduled_at >= _begin),
        select(func.min(a.ended_at)).where(a.ended_at >= _begin),
    ).subquery("firsts")
    return select(func.min(firsts.c.moment))
