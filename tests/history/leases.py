"""No two valid leases of one job: by what the workers know, in whose hands they are, and by the tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from typing import Any, Final

from app.scheduling.job import Outcome
from tests.history.acknowledged import jobs_in
from tests.history.record import Call, History
from tests.history.tables import Tables
from tests.history.terms import Terms

_SLACK_SEC: Final = 0.05
"""The wall clock may be slewed against the monotonic one."""

_ENDINGS: Final = ("complete", "fail", "release", "cancel", "cancel many", "finish")


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease that a worker was given, and all that was said about it. Whatever happened, it held until `until` by
    the monotonic clock, if nobody moved the wall clock over a restart."""

    claim: Call
    job: dict[str, Any]
    said: Sequence[Call]

    @property
    def token(self) -> str:
        token: str = self.job["lease"]["token"]
        return token

    @property
    def length(self) -> int:
        length: int = self.claim.body.get("lease_sec", 30)
        return length

    @property
    def until(self) -> float:
        """An end that was asked for may have come when it was sent, a beat may have shortened the lease."""
        until = self.claim.invoked_at + self.length
        started_at = self.claim.invoked_at if self.claim.body.get("start") else math.inf
        for call in self.said:
            if call.kind == "heartbeat":
                beaten = call.invoked_at + call.body.get("lease_sec", self.length)
                until = beaten if call.is_ok else min(until, beaten)
            elif call.kind == "start":
                started_at = min(started_at, call.invoked_at)
        ended = min((call.invoked_at for call in self.said if call.kind in _ENDINGS), default=math.inf)
        return min(until, ended, started_at + (self.job["timeout_sec"] or math.inf)) - _SLACK_SEC

    @property
    def lapses_after(self) -> datetime:
        """By the wall clock: no lapse is earlier."""
        beats = [call for call in self.said if call.kind == "heartbeat"]
        ends = [call.invoked_wall + timedelta(seconds=call.body.get("lease_sec", self.length)) for call in beats]
        oks = [end for call, end in zip(beats, ends, strict=True) if call.is_ok]
        first = self.claim.invoked_wall + timedelta(seconds=self.length)
        doubtful = [end for call, end in zip(beats, ends, strict=True) if not call.is_ok]
        return min([max([first, *oks]), *doubtful]) - timedelta(seconds=_SLACK_SEC)


def grants(history: History) -> dict[str, list[Grant]]:
    """Every lease that a worker was told of, by job, in the order in which they were told."""
    said: dict[str, list[Call]] = defaultdict(list)
    cancelled: dict[str, list[Call]] = defaultdict(list)
    for call in history.of("start", "heartbeat", *_ENDINGS):
        if not call.may_have_happened:
            continue
        if call.kind in ("cancel", "cancel many"):
            cancelled[call.job_id or call.body["tenant"]].append(call)
        elif call.kind == "finish":
            for item in call.body["results"]:
                said[item["token"]].append(call)
        else:
            said[call.body["token"]].append(call)
    found: dict[str, list[Grant]] = defaultdict(list)
    for claim in sorted(history.of("claim"), key=lambda call: call.returned_at):
        for job in jobs_in(claim):
            swept = [call for call in cancelled[job["tenant"]] if call.returned_at > claim.invoked_at]
            calls = [*said[job["lease"]["token"]], *cancelled[job["id"]], *swept]
            found[job["id"]].append(Grant(claim, job, calls))
    return found


def overlapping(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """Two leases of one job that were valid at the same time."""
    tokens = set[str]()
    for job_id, given in grants(history).items():
        for grant in given:
            if grant.token in tokens:
                yield f"overlap: two claims were answered with the same lease of job {job_id}"
            tokens.add(grant.token)
        for one, other in combinations(given, 2):
            if other.claim.returned_at < one.until and not terms.is_clock_moved and one.token != other.token:
                yield f"overlap: {other.claim} was given job {job_id}, which {one.claim} had for {one.length} s"
    for row in tables.jobs.values():
        for before, after in pairwise(tables.attempts(row.id)):
            if after.scheduled_at < before.ended_at:
                yield f"overlap: attempt {after.number} of job {row.id} begins before the one before it ends"
        ended = [attempt.ended_at for attempt in tables.attempts(row.id)]
        if row.token is not None and row.scheduled_at is not None and ended and row.scheduled_at < ended[-1]:
            yield f"overlap: job {row.id} is leased since before its last attempt ended"


def vanished(history: History, tables: Tables) -> Iterator[str]:
    """Leases that workers were given and that the tables do not know, or know of another job."""
    for job_id, given in grants(history).items():
        row = tables.jobs.get(job_id)
        for grant in given:
            attempt = tables.by_token.get(grant.token)
            if row is not None and row.token != grant.token and (attempt is None or attempt.job_id != job_id):
                yield f"vanished: the lease of job {job_id} that {grant.claim} was given is nowhere"


def lapsed_early(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """Leases that lapsed before their time."""
    if terms.is_clock_moved:
        return
    for job_id, given in grants(history).items():
        for grant in given:
            attempt = tables.by_token.get(grant.token)
            if attempt is not None and attempt.outcome is Outcome.LAPSED and attempt.ended_at < grant.lapses_after:
                yield f"early: a lease of job {job_id} lapsed at {attempt.ended_at}, not after {grant.lapses_after}"
