"""The history: every call is written down before it is sent and again when it is answered, so that what became of it
is known to the client or known to be unknown. Faults stand beside the calls."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import httpx

_JOB: Final = re.compile(r"/jobs/([0-9a-f]{32})")


class Outcome(StrEnum):
    """What a client knows of a call of its own."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Call:
    """One call. Until it is answered its outcome is unknown, and it stays so if the answer never comes."""

    client: str
    kind: str
    path: str = ""
    body: Any = None
    key: str | None = None
    invoked_at: float = 0.0
    invoked_wall: datetime = datetime.max.replace(tzinfo=UTC)
    returned_at: float = math.inf
    returned_wall: datetime = datetime.max.replace(tzinfo=UTC)
    status: int | None = None
    answer: Any = None

    @property
    def outcome(self) -> Outcome:
        """A 5xx may have been stored, as may be what timed out or was cut off."""
        if self.status is None or self.status >= 500:
            return Outcome.UNKNOWN
        return Outcome.OK if self.status < 300 else Outcome.FAILED

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def may_have_happened(self) -> bool:
        return self.outcome is not Outcome.FAILED

    @property
    def job_id(self) -> str | None:
        """The job that its path names."""
        found = _JOB.match(self.path)
        return found and found[1]

    def __str__(self) -> str:
        return f"{self.kind} by {self.client} ({self.status or self.outcome})"


@dataclass(slots=True)
class Fault:
    """Something bad that lasted from `began` to `ended`, by the wall clock of the test."""

    name: str
    began: datetime
    began_at: float
    ended: datetime = datetime.max.replace(tzinfo=UTC)
    ended_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Watched:
    """A move as `GET /events` told it. Within one `stream` nothing is left out."""

    stream: str
    job_id: str
    old: str | None
    new: str


@dataclass
class History:
    """All that clients did and were told, in the order in which it was begun."""

    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)

    def of(self, *kinds: str) -> Iterator[Call]:
        """The calls of these kinds."""
        return (call for call in self.calls if call.kind in kinds)

    @contextmanager
    def fault(self, name: str) -> Iterator[Fault]:
        """While this lasts, nothing is promised but that nothing is lost."""
        fault = Fault(name, datetime.now(UTC), time.monotonic())
        self.faults.append(fault)
        yield fault
        fault.ended, fault.ended_at = datetime.now(UTC), time.monotonic()


class Voice:
    """One client of the service. What it says is written down."""

    def __init__(self, history: History, http: httpx.AsyncClient, name: str) -> None:
        self.name = name
        self._history = history
        self._http = http

    async def submit(self, job: dict[str, Any], key: str | None = None) -> Call:
        return await self._say("submit", "POST", "/jobs", job, key)

    async def submit_batch(self, jobs: list[dict[str, Any]]) -> Call:
        return await self._say("submit batch", "POST", "/jobs/batch", {"jobs": jobs})

    async def claim(self, **wanted: Any) -> Call:
        return await self._say("claim", "POST", "/jobs/claim", {"worker": self.name, **wanted})

    async def report(self, kind: str, job_id: str, token: str, **more: Any) -> Call:
        """`start`, `heartbeat`, `complete`, `fail` or `release`."""
        return await self._say(kind, "POST", f"/jobs/{job_id}/{kind}", {"token": token, **more})

    async def finish(self, results: list[dict[str, Any]]) -> Call:
        return await self._say("finish", "POST", "/jobs/finish", {"results": results})

    async def cancel(self, job_id: str) -> Call:
        return await self._say("cancel", "POST", f"/jobs/{job_id}/cancel")

    async def cancel_many(self, **wanted: Any) -> Call:
        return await self._say("cancel many", "POST", "/jobs/cancel", wanted)

    async def retry(self, job_id: str) -> Call:
        return await self._say("retry", "POST", f"/jobs/{job_id}/retry")

    async def prioritize(self, job_id: str, priority: int) -> Call:
        return await self._say("prioritize", "PATCH", f"/jobs/{job_id}", {"priority": priority})

    async def look_at(self, job_id: str) -> Call:
        return await self._say("look at a job", "GET", f"/jobs/{job_id}")

    async def look(self, path: str) -> Call:
        return await self._say("look", "GET", path)

    async def list_jobs(self, query: str) -> Call:
        return await self._say("list", "GET", "/jobs" + query)

    async def set_tenant(self, name: str, **settings: Any) -> Call:
        return await self._say("set a tenant", "PATCH", f"/tenants/{name}", settings)

    async def put_tenant(self, name: str, **settings: Any) -> Call:
        return await self._say("set a tenant", "PUT", f"/tenants/{name}", settings)

    async def look_at_tenant(self, name: str) -> Call:
        return await self._say("look at a tenant", "GET", f"/tenants/{name}")

    async def switch_queue(self, name: str, *, paused: bool) -> Call:
        return await self._say("switch a queue", "PUT", f"/queues/{name}", {"paused": paused})

    async def _say(self, kind: str, method: str, path: str, body: Any = None, key: str | None = None) -> Call:
        call = Call(self.name, kind, path, body, key, time.monotonic(), datetime.now(UTC))
        self._history.calls.append(call)
        headers = {} if key is None else {"Idempotency-Key": key}
        try:
            response = await self._http.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            return call
        call.answer = response.json()
        call.status = response.status_code
        call.returned_at, call.returned_wall = time.monotonic(), datetime.now(UTC)
        return call
