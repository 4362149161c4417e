"""What clients have sent. A request may have its effect from when it is sent until it is answered or its service is
dead, and never again after that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.flow.cancel import CancelFilter
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from tests.contract.model import Call


@dataclass(eq=False, kw_only=True)
class Sent:
    """A request, sent at a time of its service's monotonic clock, when there had been `began` commits."""

    number: int = 0
    at: float = 0.0
    began: int = 0
    is_over: bool = False
    over_at: int = 0
    was_hung_up: bool = False
    task: asyncio.Task[Any] | None = None

    @property
    def overwrites(self) -> str | None:
        """What it sets, if that leaves no trace of what was set before."""
        return None


@dataclass(eq=False, kw_only=True)
class Submit(Sent):
    """A batch; each job's `test_suite` is a name that no other batch has."""

    jobs: Sequence[JobRequest]

    def __str__(self) -> str:
        return "submit " + ", ".join(_described(job) for job in self.jobs)


@dataclass(eq=False, kw_only=True)
class Claim(Sent):
    """Its worker's name says which one it is."""

    asked: ClaimRequest

    def __str__(self) -> str:
        asked = self.asked
        started = " and start" if asked.start else ""
        wait = f", waiting {asked.wait_sec} s" if asked.wait_sec else ""
        return f"claim{started} {asked.limit} of {'+'.join(asked.queues)} as {asked.worker}{wait}"


@dataclass(eq=False, kw_only=True)
class Report(Sent):
    """What a worker says under a token."""

    job: str
    token: str
    call: Call

    def __str__(self) -> str:
        return f"{self.call} {self.job} under {self.token[:6]}"


@dataclass(eq=False, kw_only=True)
class ReportMany(Sent):
    """Several in one call."""

    reports: Sequence[Report]

    def __str__(self) -> str:
        return "many: " + "; ".join(str(report) for report in self.reports)


@dataclass(eq=False, kw_only=True)
class OfJob(Sent):
    """Something about one job: cancel, prioritize, retry, look."""

    kind: str
    job: str
    priority: int = 0

    @property
    def overwrites(self) -> str | None:
        return f"priority of {self.job}" if self.kind == "prioritize" else None

    def __str__(self) -> str:
        return f"{self.kind} {self.job}" + (f" to {self.priority}" if self.kind == "prioritize" else "")


@dataclass(eq=False, kw_only=True)
class CancelMany(Sent):
    """All that match."""

    wanted: CancelFilter

    def __str__(self) -> str:
        return f"cancel all of {self.wanted.tenant} queue={self.wanted.queue} state={self.wanted.state}"


@dataclass(eq=False, kw_only=True)
class SetTenant(Sent):
    """All settings of a tenant."""

    name: str
    settings: TenantSettings

    @property
    def overwrites(self) -> str | None:
        return f"tenant {self.name}"

    def __str__(self) -> str:
        return f"set {self.name}: {self.settings}"


@dataclass(eq=False, kw_only=True)
class SetQueue(Sent):
    """A queue's switch."""

    name: str
    paused: bool

    @property
    def overwrites(self) -> str | None:
        return f"queue {self.name}"

    def __str__(self) -> str:
        return f"{'pause' if self.paused else 'open'} queue {self.name}"


@dataclass
class Box:
    """All that was sent. What may still have an effect is `open`."""

    count: int = 0
    open: dict[int, Sent] = field(default_factory=dict)
    overwriting: dict[str, list[Sent]] = field(default_factory=dict)

    def put(self, sent: Sent, *, at: float, began: int) -> None:
        self.count += 1
        sent.number, sent.at, sent.began = self.count, at, began
        self.open[sent.number] = sent
        if sent.overwrites is not None:
            self.overwriting.setdefault(sent.overwrites, []).append(sent)

    def has_met_others(self, sent: Sent) -> bool:
        """Whether somebody set the same while this was under way: the last one counts, and only that is seen."""
        same = [other for other in self.overwriting.get(sent.overwrites or "", ()) if other is not sent]
        return any(not other.is_over or other.number > sent.number or other.over_at >= sent.began for other in same)

    def has_overwritten(self, kind: str) -> bool:
        """Whether anything of this kind was set by two at a time."""
        several = (sent for what, sent in self.overwriting.items() if what.startswith(kind))
        return any(self.has_met_others(each) for sent in several for each in sent)

    def close(self, sent: Sent, commit: int = 0) -> None:
        sent.is_over, sent.over_at = True, commit
        self.open.pop(sent.number, None)

    def close_all(self) -> None:
        for sent in list(self.open.values()):
            self.close(sent)


def _described(job: JobRequest) -> str:
    parts = [f"{job.test_suite} of {job.tenant} in {job.queue}", f"priority {job.priority}"]
    parts += [f"in {job.delay_sec} s"] if job.delay_sec else []
    parts += [f"key {job.idempotency_key}"] if job.idempotency_key else []
    return " ".join(parts)
