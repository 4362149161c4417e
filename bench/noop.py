"""The service with nothing behind it: the same server, front, routes and schemas, but a submit stores nothing. What is
left is what HTTP and JSON cost on one core, which no database could make good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
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
    asked: dict[str, Any] = {
        "tenant": "team-0",
        "test_suite": "tests/login",
        "queue": "default",
        "priority": 0,
        "cost": 1,
        "delay_sec": 0,
        "payload": PAYLOAD,
        "max_attempts": 3,
    }
    given = {
        "seq": 1,
        "id": "0197" * 8,
        "effective_priority": 0,
        "state": State.QUEUED,
        "attempt": 0,
        "submitted_at": now,
        "due_at": now,
        "run_at": now,
        "queued_at": now,
    }
    nothing: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    return Submitted(Job(**nothing | asked | given), replayed=False)
