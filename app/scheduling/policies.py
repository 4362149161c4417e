"""The two policies, and nothing but what differs between them: what a lane's jobs and a queue's lanes are
ordered by, the effective priority, the charge. Pure arithmetic on whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Final, Protocol

from app.scheduling.heap import Key
from app.scheduling.packing import BYTE, WHOLE, Form
from app.scheduling.records import QueuedJob, UnnamedJob

SHARE: Final = 1_000_000
"""One share in units, the whole numbers that virtual time is counted in."""


class Policy(StrEnum):
    """How the next job is chosen."""

    VIRTUAL_TIME = "virtual-time"
    PENALTY = "penalty"


def step_units(priority_step: Decimal) -> int:
    """The head start of one step of priority in units, for a setting in shares.

    Exact, decimals below a unit are cut off. `ValueError` for a negative or non-finite setting.
    """
    if not priority_step.is_finite() or priority_step < 0:
        raise ValueError(f"a priority step is a finite number, not negative: {priority_step}")
    return int(Fraction(priority_step) * SHARE)


class Ordering(Protocol):
    """What a policy decides. All keys end in the job's `seq`, so no two are equal."""

    keeps_time: ClassVar[bool]
    """Whether picks are charged and move the clock."""

    form: ClassVar[Form]
    """How waiting jobs are packed; what they compare by is their `job_key`."""

    def job_key(self, job: QueuedJob) -> Key:
        """What jobs go by within their lane."""

    def pack(self, job: UnnamedJob, lane: int) -> bytes:
        """The job in `form`, waiting in the lane with this number."""

    def unpack(self, packed: bytes, tenant: str, queue: str) -> QueuedJob:
        """The job that was packed; it waits in a lane of these."""

    def lane_key(self, virtual_time: int, head: Key) -> Key:
        """What a lane that holds `virtual_time` units and starts with a job of that key goes by within its queue."""

    def effective_priority(self, priority: int, *, ahead: int, weight: int, lead: int) -> int:
        """The number recorded on a job that is queued behind `ahead` others of its lane.

        `lead` is how far the lane's virtual time lies past the clock, in units, after the join.
        """

    def charge(self, cost: int, weight: int) -> int:
        """What a lane pays for one attempt, in units."""


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """Start-time fair queueing with priority as a head start of `step` units for each step of it.

    Source: Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996.
    """

    keeps_time: ClassVar[bool] = True
    form: ClassVar[Form] = Form(BYTE, WHOLE)
    step: int

    def job_key(self, job: QueuedJob) -> Key:
        return (job.priority, job.due_at, job.seq)

    def pack(self, job: UnnamedJob, lane: int) -> bytes:
        job_id, seq, _, _, priority, cost, due_at, submitted_at, effective = job
        return self.form.pack(priority, due_at, seq, effective, submitted_at, job_id, cost, lane)

    def unpack(self, packed: bytes, tenant: str, queue: str) -> QueuedJob:
        priority, due_at, seq, effective, submitted_at, job_id, cost, _ = self.form.unpack(packed)
        return QueuedJob(job_id, seq, tenant, queue, priority, cost, due_at, submitted_at, effective)

    def lane_key(self, virtual_time: int, head: Key) -> Key:
        priority, due_at, seq = head
        return (virtual_time + self.step * priority, due_at, seq)

    def effective_priority(self, priority: int, *, ahead: int, weight: int, lead: int) -> int:
        return max(0, priority + lead // SHARE + ahead // weight)

    def charge(self, cost: int, weight: int) -> int:
        return cost * (SHARE // weight)


@dataclass(frozen=True, slots=True)
class Penalty:
    """The rule of the first design: each job that its tenant already has waiting costs a step of priority.

    Lanes keep their virtual times untouched, so a restart may change the policy either way.
    """

    keeps_time: ClassVar[bool] = False
    form: ClassVar[Form] = Form(WHOLE, BYTE)

    def job_key(self, job: QueuedJob) -> Key:
        return (job.effective_priority, job.submitted_at, job.seq)

    def pack(self, job: UnnamedJob, lane: int) -> bytes:
        job_id, seq, _, _, priority, cost, due_at, submitted_at, effective = job
        return self.form.pack(effective, submitted_at, seq, priority, due_at, job_id, cost, lane)

    def unpack(self, packed: bytes, tenant: str, queue: str) -> QueuedJob:
        effective, submitted_at, seq, priority, due_at, job_id, cost, _ = self.form.unpack(packed)
        return QueuedJob(job_id, seq, tenant, queue, priority, cost, due_at, submitted_at, effective)

    def lane_key(self, virtual_time: int, head: Key) -> Key:  # noqa: ARG002 - a lane's offset is zero
        return head

    def effective_priority(self, priority: int, *, ahead: int, weight: int, lead: int) -> int:  # noqa: ARG002
        return priority + ahead // weight

    def charge(self, cost: int, weight: int) -> int:  # noqa: ARG002 - nothing is charged
        return 0


def ordering(policy: Policy, step: int) -> Ordering:
    """The ordering of `policy`, where `step` is a priority step in units."""
    return VirtualTime(step) if policy is Policy.VIRTUAL_TIME else Penalty()
