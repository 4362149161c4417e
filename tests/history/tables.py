"""The tables as they are at one moment, to be held against a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec

from app.api.schemas import JobAnswer
from app.scheduling.job import Attempt, Job
from app.scheduling.tenant import TenantSettings
from app.store import tenants
from app.store.engine import open_engines
from tests import twin
from tests.databases import Database


@dataclass(frozen=True)
class Tables:
    """All jobs with their attempts, and how tenants are set; `read_at` by the wall clock of the test."""

    written: twin.History
    tenants: Mapping[str, TenantSettings]
    read_at: datetime

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """By id."""
        return {job.id: job for job in self.written.jobs}

    @cached_property
    def by_token(self) -> dict[str, Attempt]:
        """The ended attempts."""
        return {attempt.token: attempt for attempts in self.written.attempts.values() for attempt in attempts}

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        """The ended attempts of a job, first to last."""
        return self.written.attempts.get(job_id, ())


async def read_tables(database: Database) -> Tables:
    """One look. On Postgres it is one look only while nobody writes."""
    async with open_engines(database.url) as engines:
        written = await twin.read_history(engines)
        async with engines.reader.begin() as connection:
            rows = await tenants.every(connection)
    return Tables(written, {row.name: row.settings for row in rows}, datetime.now(UTC))


def shown(job: Job) -> dict[str, Any]:
    """A row as the interface shows it."""
    answer: dict[str, Any] = msgspec.to_builtins(JobAnswer.of(job))
    return answer
