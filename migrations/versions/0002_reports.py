"""Reports: views that are a contract (docs/reporting.md), and the figures of hours that are over.

This text is frozen and imports nothing of the application: it must build the same database for ever. Whoever alters
`jobs`, `job_attempts` or `tenants` later has to drop the views before and to make them again after.
"""
# ruff: noqa: S608 - every name put into SQL stands in this file

from __future__ import annotations

from typing import Final, NamedTuple

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
kind: str = "expanding"
oldest_code: str = "0001"
release: str = "0.1.0"


class _Words(NamedTuple):
    """What the two engines say differently. `since` is where the figures that are rolled up end."""

    time: str
    big: str
    options: str
    state: str
    since: str
    hour_now: str
    no_time: str
    no_text: str
    hour_of: str
    minute_of: str
    hour_after: str
    micros_between: str
    seconds_of: str
    share_of: str

    def hour(self, moment: str) -> str:
        """The hour in which `moment` lies."""
        return self.hour_of.format(moment)

    def minute(self, moment: str) -> str:
        """The minute in which `moment` lies."""
        return self.minute_of.format(moment)

    def after(self, hour: str) -> str:
        """The hour after `hour`."""
        return self.hour_after.format(hour)

    def micros(self, begin: str, end: str) -> str:
        """From one moment to another, in whole microseconds: sums of them are the same in any order."""
        return self.micros_between.format(begin, end)

    def seconds(self, micros: str) -> str:
        """Microseconds as seconds."""
        return self.seconds_of.format(micros)

    def share(self, part: str, whole: str) -> str:
        """A part of a whole, 1 being all of it."""
        return self.share_of.format(part, whole)

    def total(self, number: str) -> str:
        """A sum that stays a whole number."""
        return f"CAST(sum({number}) AS {self.big})"

    def between(self, begin: str, end: str) -> str:
        """From one moment to another, in seconds."""
        return self.seconds(self.micros(begin, end))


_WORDS: Final = {
    "sqlite": _Words(
        time="TEXT",
        big="INTEGER",
        options=" STRICT",
        state="+j.state",  # as the partial indexes have it
        since="coalesce((SELECT until FROM rollups WHERE name = 'hours'), '')",
        hour_now="strftime('%Y-%m-%dT%H:00:00.000000Z', 'now')",
        no_time="NULL",
        no_text="NULL",
        hour_of="(substr({0}, 1, 13) || ':00:00.000000Z')",
        minute_of="(substr({0}, 1, 16) || ':00.000000Z')",
        hour_after="strftime('%Y-%m-%dT%H:00:00.000000Z', {0}, '+1 hour')",
        # julianday() loses half a millisecond, and unixepoch() rounds fractions up: so without them.
        micros_between=(
            "((unixepoch(substr({1}, 1, 19)) - unixepoch(substr({0}, 1, 19))) * 1000000"
            " + substr({1}, 21, 6) - substr({0}, 21, 6))"
        ),
        seconds_of="({0} / 1000000.0)",
        share_of="(1.0 * {0} / {1})",
    ),
    "postgresql": _Words(
        time="TIMESTAMP WITH TIME ZONE",
        big="BIGINT",
        options="",
        state="j.state",
        since="report_rolled_until()",
        hour_now="date_trunc('hour', now(), 'UTC')",
        no_time="NULL::timestamptz",
        no_text="NULL::text",
        hour_of="date_trunc('hour', {0}, 'UTC')",
        minute_of="date_trunc('minute', {0}, 'UTC')",
        hour_after="({0} + interval '1 hour')",
        micros_between="CAST(extract(epoch FROM ({1} - {0})) * 1000000 AS BIGINT)",
        seconds_of="({0}::double precision / 1000000.0)",
        share_of="({0}::double precision / {1})",
    ),
}

_TIMES: Final = {
    "sqlite": "({0} IS NULL OR ({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z' AND {0} >= '0001'"
    " AND substr({0}, 12, 2) < '24' AND date(substr({0}, 1, 10), '+0 days') IS substr({0}, 1, 10)))",
    "postgresql": "{0} BETWEEN '0001-01-01 00:00:00+00'::timestamptz AND '9999-12-31 23:59:59.999999+00'::timestamptz",
}

# --- Tables -------------------------------------------------------------------------------------------------

# (table, its times, the rest of its key, its counts, its other columns)
_HOURLY: Final = (
    (
        "hourly_tenants",
        ("hour",),
        ("tenant",),
        ("submitted", "dispatched", "completed", "failed", "cancelled", "work_us"),
        ("wait_p50_us {big}", "wait_p90_us {big}", "wait_p99_us {big}"),
    ),
    (
        "hourly_fairness",
        ("hour",),
        ("queue", "tenant"),
        ("dispatched", "weight", "waiting_weight", "cost", "queue_cost"),
        (),
    ),
    (
        "hourly_suites",
        ("hour",),
        ("tenant", "test_suite"),
        (
            "completed",
            "failed",
            "cancelled",
            "flaky",
            "attempts",
            "failed_attempts",
            "lapsed_attempts",
            "timed_out_attempts",
            "work_us",
        ),
        (),
    ),
    (
        "hourly_workers",
        ("hour", "last_seen_at"),
        ("worker",),
        ("dispatched", "ended", "completed", "failed", "lapsed", "timed_out", "released", "cancelled", "work_us"),
        ("last_seen_at {time} NOT NULL",),
    ),
    (
        "minutely_queues",
        ("minute",),
        ("queue",),
        ("submitted", "dispatched", "completed", "failed", "cancelled"),
        (),
    ),
)


def _tables(dialect: str, w: _Words) -> list[str]:
    def times(table: str, *columns: str) -> str:
        return f"CONSTRAINT ck_{table}_times CHECK ({' AND '.join(_TIMES[dialect].format(c) for c in columns)})"

    made = [
        f"""
CREATE TABLE rollups (
    name TEXT NOT NULL,
    until {w.time},
    CONSTRAINT pk_rollups PRIMARY KEY (name),
    {times("rollups", "until")}
){w.options}""",
        "INSERT INTO rollups (name, until) VALUES ('hours', NULL)",
    ]
    for table, moments, names, counts, others in _HOURLY:
        parts = [
            f"{moments[0]} {w.time} NOT NULL",
            *(f"{name} TEXT NOT NULL" for name in names),
            *(f"{count} {w.big} DEFAULT 0 NOT NULL" for count in counts),
            *(other.format(big=w.big, time=w.time) for other in others),
            f"CONSTRAINT pk_{table} PRIMARY KEY ({', '.join((moments[0], *names))})",
            times(table, *moments),
        ]
        made.append(f"CREATE TABLE {table} ({', '.join(parts)}){w.options}")
    return made


# --- Indexes: what happened in an hour is found without a look at the rest of the history -------------------

# (name, table, definition, what SQLite's planner is told of it)
_INDEXES: Final = (
    ("ix_jobs_submitted_at", "jobs", "(submitted_at)", "10000000 1"),
    ("ix_jobs_finished", "jobs", "(completed_at) WHERE completed_at IS NOT NULL", "10000000 1"),
    # Those that left their queue without being dispatched: few, and nothing else says how long they waited.
    (
        "ix_jobs_withdrawn",
        "jobs",
        "(completed_at, queued_at) WHERE completed_at IS NOT NULL AND scheduled_at IS NULL",
        "100000 1 1",
    ),
    ("ix_job_attempts_scheduled_at_queued_at", "job_attempts", "(scheduled_at, queued_at)", "10000000 1 1"),
    ("ix_job_attempts_ended_at", "job_attempts", "(ended_at)", "10000000 1"),
)

# --- Views --------------------------------------------------------------------------------------------------

_ROLLED_UNTIL: Final = """
CREATE FUNCTION report_rolled_until() RETURNS timestamptz LANGUAGE sql STABLE
RETURN coalesce((SELECT until FROM rollups WHERE name = 'hours'), '-infinity'::timestamptz)"""


def _held(w: _Words) -> str:
    return f"{w.state} IN ('scheduled', 'running')"


def _facts_views(w: _Words) -> list[str]:
    first = "(SELECT a.scheduled_at FROM job_attempts a WHERE a.job_id = j.id AND a.number = 1)"
    next_number = "(SELECT coalesce(max(a.number), 0) + 1 FROM job_attempts a WHERE a.job_id = j.id)"
    return [
        f"""
CREATE VIEW report_job_waits AS
SELECT j.id AS job_id, j.seq, j.tenant, j.queue, j.test_suite, j.priority, j.cost, j.state, j.attempt,
    j.submitted_at, j.due_at, coalesce({first}, j.scheduled_at) AS first_scheduled_at,
    j.queued_at, j.scheduled_at, j.started_at, j.completed_at,
    {w.between("j.submitted_at", "j.due_at")} AS delay_sec,
    {w.between("j.due_at", f"coalesce({first}, j.scheduled_at)")} AS wait_sec,
    {w.between("j.queued_at", "j.scheduled_at")} AS queue_sec,
    {w.between("j.scheduled_at", "j.started_at")} AS start_sec,
    {w.between("j.started_at", "j.completed_at")} AS run_sec,
    {w.between("j.submitted_at", "j.completed_at")} AS total_sec
FROM jobs j""",
        f"""
CREATE VIEW report_attempts AS
SELECT a.job_id, a.number, j.tenant, j.queue, j.test_suite, a.worker, a.outcome, a.weight, a.cost,
    a.queued_at, a.scheduled_at, a.started_at, a.ended_at,
    {w.between("a.queued_at", "a.scheduled_at")} AS wait_sec,
    {w.between("a.scheduled_at", "a.started_at")} AS start_sec,
    {w.between("a.started_at", "a.ended_at")} AS work_sec
FROM job_attempts a JOIN jobs j ON j.id = a.job_id
UNION ALL
SELECT j.id, {next_number}, j.tenant, j.queue, j.test_suite, j.worker, {w.no_text}, j.dispatch_weight, j.cost,
    j.queued_at, j.scheduled_at, j.started_at, {w.no_time},
    {w.between("j.queued_at", "j.scheduled_at")},
    {w.between("j.scheduled_at", "j.started_at")},
    {w.seconds(w.micros("j.started_at", w.no_time))}
FROM jobs j WHERE {_held(w)}""",
        f"""
CREATE VIEW report_queue_depth AS
SELECT queue, tenant, {w.total("pending")} AS pending, {w.total("queued")} AS queued,
    {w.total("scheduled")} AS scheduled, {w.total("running")} AS running,
    min(oldest_queued_at) AS oldest_queued_at, min(next_run_at) AS next_run_at
FROM (
    SELECT j.queue, j.tenant, count(*) AS pending, 0 AS queued, 0 AS scheduled, 0 AS running,
        {w.no_time} AS oldest_queued_at, min(j.run_at) AS next_run_at
    FROM jobs j WHERE {w.state} = 'pending' GROUP BY j.queue, j.tenant
    UNION ALL
    SELECT j.queue, j.tenant, 0, count(*), 0, 0, min(j.queued_at), {w.no_time}
    FROM jobs j WHERE {w.state} = 'queued' GROUP BY j.queue, j.tenant
    UNION ALL
    SELECT j.queue, j.tenant, 0, 0, sum(CASE WHEN j.state = 'scheduled' THEN 1 ELSE 0 END),
        sum(CASE WHEN j.state = 'running' THEN 1 ELSE 0 END), {w.no_time}, {w.no_time}
    FROM jobs j WHERE {_held(w)} GROUP BY j.queue, j.tenant
) AS waiting GROUP BY queue, tenant""",
    ]


# Every arm of a view over live rows says itself from when on: SQLite pushes no subquery down into a view.


def _dispatched(w: _Words) -> str:
    """The attempts that began after what is rolled up, those still held included."""
    return f"""
    SELECT j.tenant, j.queue, a.worker, a.weight, a.cost, a.queued_at, a.scheduled_at
    FROM job_attempts a JOIN jobs j ON j.id = a.job_id WHERE a.scheduled_at >= {w.since}
    UNION ALL
    SELECT j.tenant, j.queue, j.worker, j.dispatch_weight, j.cost, j.queued_at, j.scheduled_at
    FROM jobs j WHERE {_held(w)} AND j.scheduled_at >= {w.since}"""


def _is(value: str, column: str = "j.state") -> str:
    return f"CASE WHEN {column} = '{value}' THEN 1 ELSE 0 END"


def _tenants_view(w: _Words) -> str:
    def at_place(percent: int) -> str:  # the nearest rank: the smallest of which that many percent are not larger
        return f"max(CASE WHEN place = (amount * {percent} + 99) / 100 THEN wait_us END)"

    return f"""
CREATE VIEW report_tenants_by_hour AS
SELECT hour, tenant, submitted, dispatched, completed + failed + cancelled AS finished, completed, failed, cancelled,
    {w.seconds("wait_p50_us")} AS wait_p50_sec, {w.seconds("wait_p90_us")} AS wait_p90_sec,
    {w.seconds("wait_p99_us")} AS wait_p99_sec, {w.seconds("work_us")} AS work_sec
FROM (
    SELECT hour, tenant, submitted, dispatched, completed, failed, cancelled,
        wait_p50_us, wait_p90_us, wait_p99_us, work_us
    FROM hourly_tenants WHERE hour < {w.since}
    UNION ALL
    SELECT hour, tenant, {", ".join(map(w.total, ("submitted", "dispatched", "completed", "failed", "cancelled")))},
        max(wait_p50_us), max(wait_p90_us), max(wait_p99_us), {w.total("work_us")}
    FROM (
        SELECT {w.hour("j.submitted_at")} AS hour, j.tenant, 1 AS submitted, 0 AS dispatched,
            0 AS completed, 0 AS failed, 0 AS cancelled,
            CAST(NULL AS {w.big}) AS wait_p50_us, CAST(NULL AS {w.big}) AS wait_p90_us,
            CAST(NULL AS {w.big}) AS wait_p99_us, 0 AS work_us
        FROM jobs j WHERE j.submitted_at >= {w.since}
        UNION ALL
        SELECT {w.hour("j.completed_at")}, j.tenant, 0, 0, {_is("completed")}, {_is("failed")}, {_is("cancelled")},
            NULL, NULL, NULL, 0
        FROM jobs j WHERE j.completed_at >= {w.since}
        UNION ALL
        SELECT hour, tenant, 0, count(*), 0, 0, 0, {at_place(50)}, {at_place(90)}, {at_place(99)}, 0
        FROM (
            SELECT hour, tenant, wait_us, row_number() OVER (PARTITION BY hour, tenant ORDER BY wait_us) AS place,
                count(*) OVER (PARTITION BY hour, tenant) AS amount
            FROM (
                SELECT {w.hour("scheduled_at")} AS hour, tenant, {w.micros("queued_at", "scheduled_at")} AS wait_us
                FROM ({_dispatched(w)}) AS dispatched
            ) AS waits
        ) AS ranked GROUP BY hour, tenant
        UNION ALL
        SELECT {w.hour("a.ended_at")}, j.tenant, 0, 0, 0, 0, 0, NULL, NULL, NULL,
            coalesce({w.micros("a.started_at", "a.ended_at")}, 0)
        FROM job_attempts a JOIN jobs j ON j.id = a.job_id WHERE a.ended_at >= {w.since}
    ) AS facts GROUP BY hour, tenant
) AS hourly"""


def _throughput_view(w: _Words) -> str:
    counts = ("submitted", "dispatched", "completed", "failed", "cancelled")
    return f"""
CREATE VIEW report_throughput_by_minute AS
SELECT minute, queue, submitted, dispatched, completed + failed + cancelled AS finished, completed, failed, cancelled
FROM (
    SELECT minute, queue, {", ".join(counts)} FROM minutely_queues WHERE minute < {w.since}
    UNION ALL
    SELECT minute, queue, {", ".join(map(w.total, counts))}
    FROM (
        SELECT {w.minute("j.submitted_at")} AS minute, j.queue, 1 AS submitted, 0 AS dispatched,
            0 AS completed, 0 AS failed, 0 AS cancelled
        FROM jobs j WHERE j.submitted_at >= {w.since}
        UNION ALL
        SELECT {w.minute("j.completed_at")}, j.queue, 0, 0, {_is("completed")}, {_is("failed")}, {_is("cancelled")}
        FROM jobs j WHERE j.completed_at >= {w.since}
        UNION ALL
        SELECT {w.minute("scheduled_at")}, queue, 0, 1, 0, 0, 0 FROM ({_dispatched(w)}) AS dispatched
    ) AS facts GROUP BY minute, queue
) AS minutely"""


def _fairness_view(w: _Words) -> str:
    return f"""
CREATE VIEW report_fairness_by_hour AS
WITH RECURSIVE
dispatched AS ({_dispatched(w)}),
-- From the first hour to the last in which a lane had a job waiting. What is rolled up does not begin anew.
spans (queue, tenant, hour, last_hour) AS (
    SELECT queue, tenant, CASE WHEN first_hour < {w.since} THEN {w.since} ELSE first_hour END, last_hour
    FROM (
        SELECT j.queue, j.tenant, {w.hour("min(j.queued_at)")} AS first_hour, {w.hour_now} AS last_hour
        FROM jobs j WHERE {w.state} = 'queued' GROUP BY j.queue, j.tenant
        UNION ALL
        SELECT j.queue, j.tenant, {w.hour("j.queued_at")}, {w.hour("j.completed_at")}
        FROM jobs j WHERE j.completed_at >= {w.since} AND j.scheduled_at IS NULL AND j.queued_at IS NOT NULL
        UNION ALL
        SELECT queue, tenant, {w.hour("queued_at")}, {w.hour("scheduled_at")} FROM dispatched
        WHERE {w.hour("queued_at")} < {w.hour("scheduled_at")}
    ) AS waits
    UNION
    SELECT queue, tenant, {w.after("hour")}, last_hour FROM spans WHERE {w.after("hour")} <= last_hour
),
present AS (
    SELECT lanes.hour, lanes.queue, lanes.tenant, lanes.dispatched, lanes.cost,
        coalesce(lanes.weight, t.weight) AS weight
    FROM (
        SELECT hour, queue, tenant, {w.total("dispatched")} AS dispatched, {w.total("cost")} AS cost,
            max(weight) AS weight
        FROM (
            SELECT {w.hour("scheduled_at")} AS hour, queue, tenant, 1 AS dispatched, weight, cost FROM dispatched
            UNION ALL
            SELECT hour, queue, tenant, 0, NULL, 0 FROM spans
        ) AS facts GROUP BY hour, queue, tenant
    ) AS lanes JOIN tenants t ON t.name = lanes.tenant
)
SELECT hour, queue, tenant, weight, waiting_weight, {w.share("weight", "waiting_weight")} AS weight_share,
    dispatched, cost, queue_cost, CASE WHEN queue_cost > 0 THEN {w.share("cost", "queue_cost")} END AS cost_share
FROM (
    SELECT hour, queue, tenant, dispatched, weight, waiting_weight, cost, queue_cost
    FROM hourly_fairness WHERE hour < {w.since}
    UNION ALL
    SELECT hour, queue, tenant, dispatched, weight, CAST(sum(weight) OVER same AS {w.big}), cost,
        CAST(sum(cost) OVER same AS {w.big})
    FROM present WINDOW same AS (PARTITION BY hour, queue)
) AS hourly"""


_OF_JOBS: Final = ("completed", "failed", "cancelled", "flaky")
_OF_ATTEMPTS: Final = ("attempts", "failed_attempts", "lapsed_attempts", "timed_out_attempts", "work_us")
_OUTCOMES: Final = ("completed", "failed", "lapsed", "timed out", "released", "cancelled")


def _suites_view(w: _Words) -> str:
    counts = (*_OF_JOBS, *_OF_ATTEMPTS)
    return f"""
CREATE VIEW report_failures_by_suite AS
SELECT hour, tenant, test_suite, completed + failed + cancelled AS finished, {", ".join(counts[:-1])},
    {w.seconds("work_us")} AS work_sec
FROM (
    SELECT hour, tenant, test_suite, {", ".join(counts)} FROM hourly_suites WHERE hour < {w.since}
    UNION ALL
    SELECT hour, tenant, test_suite, {", ".join(map(w.total, counts))}
    FROM (
        SELECT {w.hour("j.completed_at")} AS hour, j.tenant, j.test_suite, {_is("completed")} AS completed,
            {_is("failed")} AS failed, {_is("cancelled")} AS cancelled,
            CASE WHEN j.state = 'completed' AND j.attempt > 1 THEN 1 ELSE 0 END AS flaky,
            {", ".join(f"0 AS {name}" for name in _OF_ATTEMPTS)}
        FROM jobs j WHERE j.completed_at >= {w.since}
        UNION ALL
        SELECT {w.hour("a.ended_at")}, j.tenant, j.test_suite, 0, 0, 0, 0, 1, {_is("failed", "a.outcome")},
            {_is("lapsed", "a.outcome")}, {_is("timed out", "a.outcome")},
            coalesce({w.micros("a.started_at", "a.ended_at")}, 0)
        FROM job_attempts a JOIN jobs j ON j.id = a.job_id WHERE a.ended_at >= {w.since}
    ) AS facts GROUP BY hour, tenant, test_suite
) AS hourly"""


def _workers_view(w: _Words) -> str:
    outcomes = tuple(outcome.replace(" ", "_") for outcome in _OUTCOMES)
    counts = ("dispatched", "ended", *outcomes, "work_us")
    return f"""
CREATE VIEW report_workers AS
SELECT hour, worker, {", ".join(counts[:-1])}, {w.seconds("work_us")} AS work_sec, last_seen_at
FROM (
    SELECT hour, worker, {", ".join(counts)}, last_seen_at FROM hourly_workers WHERE hour < {w.since}
    UNION ALL
    SELECT hour, worker, {", ".join(map(w.total, counts))}, max(seen_at)
    FROM (
        SELECT {w.hour("scheduled_at")} AS hour, worker, 1 AS dispatched, 0 AS ended,
            {", ".join(f"0 AS {outcome}" for outcome in outcomes)}, 0 AS work_us, scheduled_at AS seen_at
        FROM ({_dispatched(w)}) AS dispatched
        UNION ALL
        SELECT {w.hour("a.ended_at")}, a.worker, 0, 1,
            {", ".join(_is(outcome, "a.outcome") for outcome in _OUTCOMES)},
            coalesce({w.micros("a.started_at", "a.ended_at")}, 0), a.ended_at
        FROM job_attempts a WHERE a.ended_at >= {w.since}
    ) AS facts GROUP BY hour, worker
) AS hourly"""


_VIEWS: Final = (
    "report_job_waits",
    "report_attempts",
    "report_queue_depth",
    "report_tenants_by_hour",
    "report_throughput_by_minute",
    "report_fairness_by_hour",
    "report_failures_by_suite",
    "report_workers",
)


def _statements(dialect: str) -> list[str]:
    w = _WORDS[dialect]
    statements = _tables(dialect, w)
    if dialect == "postgresql":
        statements.append(_ROLLED_UNTIL)
    statements += [f"CREATE INDEX {name} ON {table} {definition}" for name, table, definition, _ in _INDEXES]
    if dialect == "sqlite":
        told = ", ".join(f"('{table}', '{name}', '{stat}')" for name, table, _, stat in _INDEXES)
        statements.append(f"INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES {told}")
    by_hour = (_tenants_view, _throughput_view, _fairness_view, _suites_view, _workers_view)
    return [*statements, *_facts_views(w), *(view(w) for view in by_hour)]


def upgrade() -> None:
    connection = op.get_bind()
    for statement in _statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    connection = op.get_bind()
    for view in _VIEWS:
        connection.exec_driver_sql(f"DROP VIEW {view}")
    for name, *_ in _INDEXES:
        connection.exec_driver_sql(f"DROP INDEX {name}")
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION report_rolled_until()")
    for table, *_ in _HOURLY:
        connection.exec_driver_sql(f"DROP TABLE {table}")
    connection.exec_driver_sql("DROP TABLE rollups")
