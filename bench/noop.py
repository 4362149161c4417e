"""The service with nothing behind it: the same server, front, routes and schemas, but a submit stores nothing. What is
left is what HTTP and JSON cost on one core, which no database could make good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from unittest.mock import patch

from app.api import jobs
from app.cli import main as fairlane
from app.flow.core import Core
from app.flow.submit import JobRequest, Submitted
from app.scheduling.job import Job, State
from bench.payload import PAYLOAD


def main() -> None:
    """`fairlane`, but for submits over HTTP."""
    with patch.object(jobs, "submit", _answer):
        fairlane()


async def _answer(_: Core, requests: Sequence[JobRequest]) -> list[Submitted]:
    return [_submitted()] * len(requests)


@cache
def _submitted() -> Submitted:
    """A job like those that are submitted, as it would be answered."""
    now = datetime.now(UTC)
    job = Job(
        seq=1,
        id="0197" * 8,
        tenant="team-0",
        test_suite="tests/login",
        queue="default",
        priority=0,
        effective_priority=0,
        cost=1,
        state=State.QUEUED,
        delay_sec=0,
        payload=PAYLOAD,
        attempt=0,
        max_attempts=3,
        timeout_sec=None,
        submitted_at=now,
        due_at=now,
        run_at=now,
        queued_at=now,
        scheduled_at=None,
        started_at=None,
        completed_at=None,
        worker=None,
        token=None,
        lease_sec=None,
        lease_expires_at=None,
        charge=None,
        dispatch_weight=None,
        progress=None,
        result=None,
        error=None,
        retry_of=None,
        idempotency_key=None,
        request_digest=None,
    )
    return Submitted(job, replayed=False)
