"""The views say the same on both engines, and the same before and after an hour is rolled up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.databases import Database
from tests.reports.history import write
from tests.reports.looking import BY_HOUR, VIEWS, roll_up, said, view, views
from tests.reports.sample import DAY, STORIES, WEIGHTS

EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC)
ELEVEN = f"{DAY}T11:00:00.000000Z"


@pytest.mark.parametrize("name", VIEWS)
async def test_a_view_says_the_same_on_both_engines(both: tuple[Database, Database], name: str) -> None:
    on_sqlite, on_postgres = [await view(database, name, ELEVEN) for database in both]

    assert on_sqlite == on_postgres
    assert on_sqlite


async def test_columns_have_the_same_names_on_both_engines(both: tuple[Database, Database]) -> None:
    sqlite, postgres = both
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'report_%'"
    on_postgres = sorted(await said(postgres, columns))
    on_sqlite = sorted(
        [(name, row[1]) for name in VIEWS for row in await sqlite.fetch(f"PRAGMA table_info({name})")],
    )

    assert on_sqlite == on_postgres


async def test_an_hour_says_the_same_after_it_is_rolled_up(database: Database) -> None:
    await write(database, DAY, WEIGHTS, STORIES)
    before = await views(database, ELEVEN)

    for hours in range(3):
        await roll_up(database, EIGHT + timedelta(hours=hours))
        assert await views(database, ELEVEN) == before
    for table in ("jobs", "lanes", "tenants"):
        await database.execute(f"DELETE FROM {table}")

    after = await views(database, ELEVEN)
    for name, rows in after.items():
        assert rows == (before[name] if name in BY_HOUR else [])


INDEXES = {
    "report_tenants_by_hour": (
        "ix_jobs_submitted_at",
        "ix_jobs_finished",
        "ix_job_attempts_scheduled_at_queued_at",
        "ix_job_attempts_ended_at",
    ),
    "report_throughput_by_minute": (
        "ix_jobs_submitted_at",
        "ix_jobs_finished",
        "ix_job_attempts_scheduled_at_queued_at",
    ),
    "report_fairness_by_hour": ("ix_jobs_withdrawn", "ix_jobs_queued", "ix_job_attempts_scheduled_at_queued_at"),
    "report_failures_by_suite": ("ix_jobs_finished", "ix_job_attempts_ended_at"),
    "report_workers": ("ix_job_attempts_scheduled_at_queued_at", "ix_job_attempts_ended_at"),
    "report_queue_depth": ("ix_jobs_pending", "ix_jobs_queued", "ix_jobs_active"),
}


@pytest.mark.parametrize("name", INDEXES)
async def test_a_view_reads_no_more_of_the_history_than_it_counts(both: tuple[Database, Database], name: str) -> None:
    """As SQLite plans it, which knows only what the migrations have told it; Postgres plans by what is there."""
    plan = [str(row[-1]) for row in await both[0].fetch(f"EXPLAIN QUERY PLAN SELECT * FROM {name}")]

    for index in INDEXES[name]:
        assert any(index in step for step in plan), plan
    assert not [step for step in plan if step in ("SCAN j", "SCAN a", "SCAN jobs", "SCAN job_attempts")]
