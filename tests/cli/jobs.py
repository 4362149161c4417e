"""Jobs made up for tests that need no service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from app.client import ClaimedJob, Lease, State

LONG_AGO = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def a_job(**given: Any) -> ClaimedJob:
    """A job in a worker's hands, with what is given in place of what is usual."""
    usual: dict[str, Any] = {
        "id": "0" * 32,
        "tenant": "acme",
        "test_suite": "tests/login",
        "queue": "default",
        "priority": 2,
        "effective_priority": 2,
        "cost": 1,
        "state": State.RUNNING,
        "delay_sec": 0,
        "payload": None,
        "attempt": 1,
        "max_attempts": 3,
        "timeout_sec": None,
        "submitted_at": LONG_AGO,
        "run_at": LONG_AGO,
        "queued_at": LONG_AGO,
        "scheduled_at": LONG_AGO,
        "started_at": LONG_AGO,
        "completed_at": None,
        "worker": "w",
        "lease_expires_at": LONG_AGO,
        "progress": None,
        "result": None,
        "error": None,
        "retry_of": None,
        "lease": Lease(
            token="t",  # noqa: S106  # of no lease
            expires_at=LONG_AGO,
            heartbeat_sec=10.0,
        ),
    }
    return ClaimedJob(**usual | given)
