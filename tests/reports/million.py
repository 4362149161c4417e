"""A month of a busy farm: a million finished jobs up to the moment in which the sample of docs/reporting.md stands,
so that the questions of that page can be put to it. Made inside the database, in a minute or two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tests.databases import Database

JOBS: Final = 1_000_000
END: Final = datetime(2026, 3, 2, 10, 30, tzinfo=UTC)
DAYS: Final = 30
BEGIN: Final = END - timedelta(days=DAYS)
TENANTS, SUITES, WORKERS = 50, 400, 100

_SQLITE: Final = {
    "numbers": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs})",
    "from": "n",
    "time": "strftime('%Y-%m-%dT%H:%M:%S', {begin} + {sec}, 'unixepoch') || '.000000Z'",
    "id": "printf('%032x', i)",
}
_POSTGRES: Final = {
    "numbers": "",
    "from": "generate_series(1, {jobs}) AS n(i)",
    "time": "to_timestamp({begin} + {sec})",
    "id": "lpad(to_hex(i), 32, '0')::uuid",
}


async def fill(database: Database, jobs: int = JOBS, *, is_analyzed: bool = True) -> None:
    """Into an empty database. Every hundredth job was called off while it waited, three of a hundred failed, one in
    twenty needed a second attempt; a job waited up to ten minutes and took up to twenty."""
    words = _SQLITE if database.kind == "sqlite" else _POSTGRES

    def time(sec: str) -> str:
        return words["time"].format(begin=int(BEGIN.timestamp()), sec=sec)

    numbers, source = words["numbers"].format(jobs=jobs), words["from"].format(jobs=jobs)
    submitted = f"CAST(i AS BIGINT) * {DAYS * 86400 - 1800} / {jobs}"
    wait, run = "(CAST(i AS BIGINT) * 7919 % 601)", "(1 + CAST(i AS BIGINT) * 6007 % 1199)"
    scheduled, ended = f"{submitted} + {wait}", f"{submitted} + {wait} + {run}"
    again = "i % 20 = 7"
    state = "CASE WHEN i % 100 = 99 THEN 'cancelled' WHEN i % 100 < 3 THEN 'failed' ELSE 'completed' END"
    called_off = "i % 100 = 99"
    job = {
        "seq": "i",
        "id": words["id"],
        "tenant": f"'t' || (i % {TENANTS})",
        "test_suite": f"'suites/' || (i * 31 % {SUITES})",
        "queue": "CASE WHEN i % 10 = 0 THEN 'gpu' ELSE 'default' END",
        "priority": "i % 11",
        "effective_priority": "i % 11",
        "cost": "1 + i % 3",
        "state": state,
        "attempt": f"CASE WHEN {called_off} THEN 0 WHEN {again} THEN 2 ELSE 1 END",
        "submitted_at": time(submitted),
        "due_at": time(submitted),
        "run_at": time(submitted),
        "queued_at": time(submitted),
        "scheduled_at": f"CASE WHEN {called_off} THEN NULL ELSE {time(scheduled)} END",
        "started_at": f"CASE WHEN {called_off} THEN NULL ELSE {time(scheduled)} END",
        "completed_at": time(ended),
        "worker": f"CASE WHEN {called_off} THEN NULL ELSE 'w' || (i % {WORKERS}) END",
        "charge": f"CASE WHEN {called_off} THEN NULL ELSE 1 END",
        "dispatch_weight": f"CASE WHEN {called_off} THEN NULL ELSE 1 + i % {TENANTS} % 4 END",
        "error": "CASE WHEN i % 100 < 3 THEN 'it broke' END",
    }

    def attempts(number: int, where: str, outcome: str) -> str:
        attempt = {
            "job_id": words["id"],
            "number": str(number),
            "token": f"'{number}-' || i",
            "worker": f"'w' || (i % {WORKERS})",
            "queued_at": time(submitted),
            "scheduled_at": time(scheduled),
            "started_at": time(scheduled),
            "ended_at": time(ended),
            "outcome": outcome,
            "weight": f"1 + i % {TENANTS} % 4",
            "cost": "1 + i % 3",
        }
        return _insert("job_attempts", attempt, numbers, f"{source} WHERE NOT ({called_off}) AND ({where})")

    names = [f"INSERT INTO tenants (name, weight) VALUES ('t{n}', {1 + n % 4})" for n in range(TENANTS)]
    outcome = "CASE WHEN i % 100 < 3 THEN 'failed' ELSE 'completed' END"
    await database.execute(
        *names,
        "INSERT INTO queues (name) VALUES ('gpu')",
        *await _without_triggers(
            database,
            [
                _insert("jobs", job, numbers, source),
                attempts(1, again, "'lapsed'"),
                attempts(2, again, outcome),
                attempts(1, f"NOT ({again})", outcome),
            ],
        ),
    )
    if database.kind == "postgres":
        await database.execute(f"SELECT setval('jobs_seq_seq', {jobs})")
        if is_analyzed:
            await database.execute("VACUUM ANALYZE")  # what autovacuum does in time
    else:
        await database.execute(f"UPDATE sqlite_sequence SET seq = {jobs} WHERE name = 'jobs'")


def _insert(table: str, row: dict[str, str], numbers: str, source: str) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) {numbers} SELECT {', '.join(row.values())} FROM {source}"


async def _without_triggers(database: Database, statements: list[str]) -> list[str]:
    if database.kind == "postgres":
        tables = ("jobs", "job_attempts")
        off, on = (
            [f"ALTER TABLE {table} {switch} TRIGGER USER" for table in tables] for switch in ("DISABLE", "ENABLE")
        )
        return [*off, *statements, *on]
    triggers = await database.fetch(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('jobs', 'job_attempts')"
    )
    return [*(f"DROP TRIGGER {name}" for name, _ in triggers), *statements, *(sql for _, sql in triggers)]
