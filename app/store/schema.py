"""The tables as SQLAlchemy sees them, and the name of everything a database can refuse.
What a database really holds is made by `migrations/`, whose text is frozen; a test compares the two.
The triggers exist only there: SQLAlchemy has no words for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    and_,
    false,
    literal_column,
    text,
)

from app.keys import Role
from app.scheduling.job import Outcome, State
from app.scheduling.shape import SHAPES, Cell, Shape
from app.store.dialect import new_id_by_default, now_by_default, tested_only
from app.store.types import (
    Choice,
    Flag,
    HexId,
    Json,
    Moment,
    PlainText,
    Real,
    Whole,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# What a refused write is mapped by. CHECK constraints are called ck_<table>_<what>, as they are declared below.
PK_JOBS: Final = "pk_jobs"
PK_JOB_ATTEMPTS: Final = "pk_job_attempts"
UQ_JOBS_ID: Final = "uq_jobs_id"
UQ_JOBS_IDEMPOTENCY_KEY: Final = "uq_jobs_tenant_idempotency_key"
UQ_JOB_ATTEMPTS_TOKEN: Final = "uq_job_attempts_token"  # noqa: S105 - a constraint's name
FK_JOBS_TENANT: Final = "fk_jobs_tenant_tenants"
FK_JOBS_QUEUE: Final = "fk_jobs_queue_queues"
TR_JOBS_FIRST_STATE: Final = "tr_jobs_first_state"
TR_JOBS_LEGAL_MOVE: Final = "tr_jobs_legal_move"
TR_JOBS_FINAL: Final = "tr_jobs_final"
TR_JOBS_IDENTITY: Final = "tr_jobs_identity"
TR_JOBS_REQUEST: Final = "tr_jobs_request"
TR_JOBS_PRIORITY: Final = "tr_jobs_priority"
TR_JOB_ATTEMPTS_FIXED: Final = "tr_job_attempts_fixed"
TR_COPIES_INTO_EMPTY: Final = "tr_copies_into_empty"
TR_COPIES_FIXED: Final = "tr_copies_fixed"


def _check(name: str, sql: str) -> CheckConstraint:
    return CheckConstraint(sql, name=name)


def _check_on(dialect: str, name: str, sql: str) -> CheckConstraint:
    check = CheckConstraint(sql, name=name)
    check.ddl_if(dialect=dialect)
    return check


def _check_each(name: str, form: str, columns: tuple[str, ...]) -> tuple[CheckConstraint, ...]:
    """A check a column, all of one name: in an update SQLite looks only at those of columns that are set."""
    return tuple(_check_on("sqlite", name, form.format(column)) for column in columns)


def _times(*columns: str) -> tuple[CheckConstraint, ...]:
    """Times a Python program can read back: SQLite would take any text, Postgres the years past 9999."""
    # date() reads what the pattern leaves open. Told to add nothing, it turns February 31 into March 3, and the hour 24
    # into the day after: what it leaves alone is a day and an hour that exist. A fraction it might round up.
    real = (
        "({0} IS NULL OR ({0} GLOB '??????????T??:??:??." + "[0-9]" * 6 + "Z' AND {0} >= '0001'"
        " AND date(substr({0}, 1, 19), '+0 days') IS substr({0}, 1, 10)))"
    )
    sane = "{0} BETWEEN '0001-01-01 00:00:00+00'::timestamptz AND '9999-12-31 23:59:59.999999+00'::timestamptz"
    return (
        *_check_each("times", real, columns),
        _check_on("postgresql", "times", " AND ".join(sane.format(c) for c in columns)),
    )


def _ids(*columns: str) -> tuple[CheckConstraint, ...]:
    return _check_each("ids", "({0} IS NULL OR (length({0}) = 32 AND {0} NOT GLOB '*[^0-9a-f]*'))", columns)


def _json(*columns: str) -> tuple[CheckConstraint, ...]:
    return _check_each("json", "({0} IS NULL OR json_valid({0}))", columns)


def _flags(*columns: str) -> tuple[CheckConstraint, ...]:
    return _check_each("flags", "{0} IN (0, 1)", columns)


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _check_words(name: str, sql: str) -> tuple[CheckConstraint, CheckConstraint]:
    """On SQLite words are compared one by one: of a list of three and more it makes a table, anew for each statement,
    and to look a word up there takes it ten times as long."""
    return _check_on("sqlite", name, _LONG_LIST.sub(_compared, sql)), _check_on("postgresql", name, sql)


_LONG_LIST: Final = re.compile(r"(\w+) (IN|NOT IN) \(([^(),]+(?:, [^(),]+){2,})\)")


def _compared(found: re.Match[str]) -> str:
    subject, test, words = found.groups()
    sign, joint = {"IN": ("=", " OR "), "NOT IN": ("<>", " AND ")}[test]
    return f"({joint.join(f'{subject} {sign} {word}' for word in words.split(', '))})"


def _states(shape: Shape, cell: Cell) -> str:
    return _words(state for state, wanted in shape.cells.items() if wanted is cell)


def _check_shape(shape: Shape) -> tuple[CheckConstraint, CheckConstraint]:
    rules = [
        f"(state NOT IN ({_states(shape, cell)}) OR ({' AND '.join(f'{c} {test}' for c in shape.columns)}))"
        for cell, test in ((Cell.SET, "IS NOT NULL"), (Cell.NULL, "IS NULL"))
        if _states(shape, cell)
    ]
    return _check_words(shape.name, " AND ".join(rules))


def _name_length() -> CheckConstraint:
    return _check("name_length", "length(name) BETWEEN 1 AND 128 AND trim(name) <> ''")


def _name_checks() -> tuple[CheckConstraint, ...]:
    return (
        _name_length(),
        _check("name_without_slash", "name NOT LIKE '%/%'"),  # names stand in paths of the API
    )


tenants: Final = Table(
    "tenants",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("weight", Whole, nullable=False, server_default=text("1")),
    # Null is the service's default rate; no limit at all is `unlimited`.
    Column("rate_per_sec", Real),
    Column("burst", Whole(64)),
    Column("unlimited", Flag, nullable=False, server_default=false()),
    Column("max_running", Whole(64)),
    Column("max_queued", Whole(64)),
    Column("paused", Flag, nullable=False, server_default=false()),
    Column("created_at", Moment, nullable=False, server_default=now_by_default()),
    Column("updated_at", Moment, nullable=False, server_default=now_by_default()),
    *_name_checks(),
    _check("weight_range", "weight BETWEEN 1 AND 1000"),
    _check("rate_range", "rate_per_sec > 0 AND rate_per_sec <= 1e300"),  # not infinite
    _check("burst_range", "burst >= 1"),
    _check("unlimited_without_rate", "NOT (unlimited AND rate_per_sec IS NOT NULL)"),
    _check("max_running_range", "max_running >= 1"),
    _check("max_queued_range", "max_queued >= 0"),
    *_flags("unlimited", "paused"),
    *_times("created_at", "updated_at"),
    sqlite_strict=True,
)

queues: Final = Table(
    "queues",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("clock", Whole(64), nullable=False, server_default=text("0")),
    Column("since_move", Whole(64), nullable=False, server_default=text("0")),
    Column("horizon", Whole(64), nullable=False, server_default=text("0")),
    Column("paused", Flag, nullable=False, server_default=false()),
    *_name_checks(),
    _check("clock_range", "clock >= 0"),
    _check("since_move_range", "since_move >= 0"),
    _check("horizon_range", "horizon >= 0"),
    *_flags("paused"),
    sqlite_strict=True,
)

lanes: Final = Table(
    "lanes",
    metadata,
    Column("queue", PlainText, ForeignKey("queues.name"), primary_key=True),
    Column("tenant", PlainText, ForeignKey("tenants.name"), primary_key=True),
    Column("virtual_time", Whole(64), nullable=False, server_default=text("0")),
    _check("virtual_time_range", "virtual_time >= 0"),
    sqlite_strict=True,
)

jobs: Final = Table(
    "jobs",
    metadata,
    # The one source of order, also for rows typed by hand: a sequence (jobs_seq_seq) or AUTOINCREMENT.
    Column("seq", Whole(64), Identity(), primary_key=True),
    Column("id", HexId, nullable=False, server_default=new_id_by_default()),
    Column("tenant", PlainText, ForeignKey("tenants.name"), nullable=False),
    Column("test_suite", PlainText, nullable=False),
    Column("queue", PlainText, ForeignKey("queues.name"), nullable=False, server_default=text("'default'")),
    Column("priority", Whole, nullable=False, server_default=text("0")),
    Column("effective_priority", Whole(64)),
    Column("cost", Whole, nullable=False, server_default=text("1")),
    Column("state", Choice(State), nullable=False, server_default=text("'pending'")),
    Column("delay_sec", Whole),
    Column("payload", Json),
    Column("attempt", Whole, nullable=False, server_default=text("0")),
    Column("max_attempts", Whole, nullable=False, server_default=text("3")),
    Column("timeout_sec", Whole),
    Column("submitted_at", Moment, nullable=False, server_default=now_by_default()),
    Column("due_at", Moment, nullable=False, server_default=now_by_default()),
    Column("run_at", Moment, nullable=False, server_default=now_by_default()),
    Column("queued_at", Moment),
    Column("scheduled_at", Moment),
    Column("started_at", Moment),
    Column("completed_at", Moment),
    Column("worker", PlainText),
    Column("token", PlainText),
    Column("lease_sec", Whole),
    # In no index and in no index's predicate, like `progress`: so a heartbeat is a HOT update on Postgres.
    Column("lease_expires_at", Moment),
    Column("charge", Whole(64)),
    Column("dispatch_weight", Whole),
    Column("progress", Real),
    Column("result", Json),
    Column("error", PlainText),
    # No foreign key: the old job may be retired from the history before the new one.
    Column("retry_of", HexId),
    Column("idempotency_key", PlainText),
    Column("request_digest", PlainText),
    UniqueConstraint("id"),
    _check("seq_range", "seq >= 1"),
    _check("test_suite_length", "length(test_suite) BETWEEN 1 AND 512 AND trim(test_suite) <> ''"),
    _check("priority_range", "priority BETWEEN 0 AND 10"),
    _check("effective_priority_range", "effective_priority >= 0"),
    _check("cost_range", "cost BETWEEN 1 AND 1000"),
    *_check_words("state", f"state IN ({_words(State)})"),
    _check("delay_sec_range", "delay_sec BETWEEN 0 AND 31536000"),
    _check("attempt_range", "attempt BETWEEN 0 AND max_attempts"),
    # A claim counts one more: a waiting job without any left would stop its queue.
    _check("attempt_left_while_waiting", "state NOT IN ('pending', 'queued') OR attempt <> max_attempts"),
    _check("max_attempts_range", "max_attempts BETWEEN 1 AND 100"),
    _check("timeout_sec_range", "timeout_sec BETWEEN 1 AND 604800"),
    _check("worker_length", "length(worker) BETWEEN 1 AND 128"),
    _check("token_length", "length(token) BETWEEN 1 AND 128"),
    _check("lease_sec_range", "lease_sec BETWEEN 1 AND 3600"),
    _check("charge_range", "charge >= 0"),
    _check("dispatch_weight_range", "dispatch_weight BETWEEN 1 AND 1000"),
    _check("progress_range", "progress BETWEEN 0 AND 1"),
    _check("idempotency_key_length", "length(idempotency_key) BETWEEN 1 AND 255"),
    # `run_at` is set in every state, which NOT NULL says already.
    *(check for shape in SHAPES if shape.columns != ("run_at",) for check in _check_shape(shape)),
    *_times(
        "submitted_at",
        "due_at",
        "run_at",
        "queued_at",
        "scheduled_at",
        "started_at",
        "completed_at",
        "lease_expires_at",
    ),
    *_ids("id", "retry_of"),
    *_json("payload", "result"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
    postgresql_with={"fillfactor": 70},  # room on each page for the HOT updates of heartbeats
)

job_attempts: Final = Table(
    "job_attempts",
    metadata,
    Column("job_id", HexId, ForeignKey("jobs.id", ondelete="CASCADE")),
    Column("number", Whole),
    Column("token", PlainText, nullable=False),
    Column("worker", PlainText, nullable=False),
    Column("queued_at", Moment, nullable=False),
    Column("scheduled_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("ended_at", Moment, nullable=False),
    Column("outcome", Choice(Outcome), nullable=False),
    Column("error", PlainText),
    Column("weight", Whole, nullable=False),
    Column("cost", Whole, nullable=False),
    PrimaryKeyConstraint("job_id", "number"),
    UniqueConstraint("token"),
    _check("number_range", "number >= 1"),
    _check("token_length", "length(token) BETWEEN 1 AND 128"),
    _check("worker_length", "length(worker) BETWEEN 1 AND 128"),
    *_check_words("outcome", f"outcome IN ({_words(Outcome)})"),
    _check("weight_range", "weight BETWEEN 1 AND 1000"),
    _check("cost_range", "cost BETWEEN 1 AND 1000"),
    *_times("queued_at", "scheduled_at", "started_at", "ended_at"),
    *_ids("job_id"),
    sqlite_strict=True,
)

dispatcher: Final = Table(
    "dispatcher",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("holder", PlainText),
    Column("epoch", Whole(64), nullable=False, server_default=text("0")),
    Column("address", PlainText),
    Column("expires_at", Moment),
    Column("last_time", Moment),  # the newest time given out, so that times never fall over a restart
    _check("epoch_range", "epoch >= 0"),
    *_times("expires_at", "last_time"),
    sqlite_strict=True,
)

# The servers on this database, as each says of itself: `app.store.replicas`.
replicas: Final = Table(
    "replicas",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("address", PlainText, nullable=False),
    Column("version", PlainText, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("last_seen_at", Moment, nullable=False),
    Column("dispatching_since", Moment),
    *_times("started_at", "last_seen_at", "dispatching_since"),
    sqlite_strict=True,
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", HexId, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("role", Choice(Role), nullable=False),
    # No foreign keys: a key may be made before the first job of its tenant, or the first in its queues.
    Column("tenant", PlainText),
    Column("queues", Json),
    Column("digest", PlainText, nullable=False),
    # A login of a browser is a key of its own, which ends with the one that was shown.
    Column("session_of", HexId, ForeignKey("api_keys.id", ondelete="CASCADE")),
    Column("created_at", Moment, nullable=False, server_default=now_by_default()),
    Column("expires_at", Moment),
    Column("revoked_at", Moment),
    Column("last_used_at", Moment),
    _name_length(),
    _check("role", f"role IN ({_words(Role)})"),
    _check("tenant_of_role", "(role = 'tenant') = (tenant IS NOT NULL)"),
    _check("queues_of_role", "role = 'worker' OR queues IS NULL"),
    _check("digest_length", "length(digest) = 64"),
    *_times("created_at", "expires_at", "revoked_at", "last_used_at"),
    *_ids("id", "session_of"),
    *_json("queues"),
    sqlite_strict=True,
)
Index(None, api_keys.c.session_of)

# What this database was copied from (`in`) or into (`out`): `app.store.copies`. While the first is not finished, jobs
# may come in the middle of their life. Nobody serves half a copy, nor what was copied away.
copies: Final = Table(
    "copies",
    metadata,
    Column("direction", PlainText, primary_key=True),
    Column("id", HexId, nullable=False),  # the same on both sides
    Column("other", PlainText, nullable=False),
    Column("begun_at", Moment, nullable=False),
    Column("position", PlainText),
    Column("finished_at", Moment),
    _check("direction", "direction IN ('in', 'out')"),
    *_times("begun_at", "finished_at"),
    *_ids("id"),
    sqlite_strict=True,
)


# --- The figures of hours that are over, made once by `app.store.rollups`. They refer to no other table: they stay
# when jobs and tenants go. The views that show them (docs/reporting.md) exist only in the migrations.

rollups: Final = Table(
    "rollups",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("until", Moment),  # from here on the views count the jobs themselves
    *_times("until"),
    sqlite_strict=True,
)


def _hourly(name: str, time: str, keys: tuple[str, ...], counts: tuple[str, ...], *others: Column[Any]) -> Table:
    """Figures by `time` and `keys`. What ends in `_us` is in microseconds, whose sums are the same in any order."""
    moments = [time, *(other.name for other in others if isinstance(other.type, Moment))]
    return Table(
        name,
        metadata,
        Column(time, Moment, primary_key=True),
        *(Column(key, PlainText, primary_key=True) for key in keys),
        *(Column(count, Whole(64), nullable=False, server_default=text("0")) for count in counts),
        *others,
        *_times(*moments),
        sqlite_strict=True,
    )


hourly_tenants: Final = _hourly(
    "hourly_tenants",
    "hour",
    ("tenant",),
    ("submitted", "dispatched", "completed", "failed", "cancelled", "work_us"),
    *(Column(f"wait_p{percent}_us", Whole(64)) for percent in (50, 90, 99)),
)
hourly_fairness: Final = _hourly(
    "hourly_fairness",
    "hour",
    ("queue", "tenant"),
    ("dispatched", "weight", "waiting_weight", "cost", "queue_cost"),
)
hourly_suites: Final = _hourly(
    "hourly_suites",
    "hour",
    ("tenant", "test_suite"),
    (
        *("completed", "failed", "cancelled", "flaky"),
        *("attempts", "failed_attempts", "lapsed_attempts", "timed_out_attempts", "work_us"),
    ),
)
hourly_workers: Final = _hourly(
    "hourly_workers",
    "hour",
    ("worker",),
    ("dispatched", "ended", "completed", "failed", "lapsed", "timed_out", "released", "cancelled", "work_us"),
    Column("last_seen_at", Moment, nullable=False),
)
minutely_queues: Final = _hourly(
    "minutely_queues",
    "minute",
    ("queue",),
    ("submitted", "dispatched", "completed", "failed", "cancelled"),
)
HOURLY: Final = (hourly_tenants, hourly_fairness, hourly_suites, hourly_workers, minutely_queues)


# Both planners use a partial index only for a condition that they see written out, without bound values; and
# SQLite's prefers the list by state to it unless that is put out of its reach, here and in the index alike.
_state: Final = tested_only(jobs.c.state)


def _literal(state: State) -> ColumnElement[str]:
    return literal_column(f"'{state}'", Text)


IS_PENDING: Final = _state == _literal(State.PENDING)
IS_QUEUED: Final = _state == _literal(State.QUEUED)
IS_ACTIVE: Final = _state.in_([_literal(State.SCHEDULED), _literal(State.RUNNING)])
HAS_IDEMPOTENCY_KEY: Final = jobs.c.idempotency_key.is_not(None)


def _partial(name: str, *columns: str, where: ColumnElement[bool], unique: bool = False) -> None:
    Index(name, *(jobs.c[c] for c in columns), unique=unique, sqlite_where=where, postgresql_where=where)


_partial("ix_jobs_pending", "run_at", "seq", where=IS_PENDING)
_partial("ix_jobs_queued", "queue", "tenant", "seq", where=IS_QUEUED)
_partial("ix_jobs_active", "tenant", "seq", where=IS_ACTIVE)
_partial(UQ_JOBS_IDEMPOTENCY_KEY, "tenant", "idempotency_key", where=HAS_IDEMPOTENCY_KEY, unique=True)

for _listed_by in ("tenant", "state", "queue", "test_suite"):
    Index(None, jobs.c[_listed_by], jobs.c.seq)  # a page of the list, newest or oldest first

# What happened in an hour, for reports and their roll-up. None has a column that a heartbeat changes.
Index(None, jobs.c.submitted_at)
_partial("ix_jobs_finished", "completed_at", where=jobs.c.completed_at.is_not(None))
_partial(
    "ix_jobs_withdrawn",
    "completed_at",
    "queued_at",
    where=and_(jobs.c.completed_at.is_not(None), jobs.c.scheduled_at.is_(None)),
)
Index(None, job_attempts.c.scheduled_at, job_attempts.c.queued_at)
Index(None, job_attempts.c.ended_at)
