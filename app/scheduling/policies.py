"""The two policies, and nothing but what differs between them: what a lane's jobs and a queue's lanes are
ordered by, the effective priority, the charge. Pure arithmetic on whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Final, Protocol

from app.scheduling.heap import Key
from app.scheduling.records import QueuedJob

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

    def job_key(self, job: QueuedJob) -> Key:
        """What jobs go by within their lane."""

    def lane_key(self, virtual_time: int, head: QueuedJob) -> Key:
        """What a lane that holds `virtual_time` units and starts with `head` goes by within its queue."""

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
    step: int

    def job_key(self, job: QueuedJob) -> Key:
        return (job.priority, job.due_at, job.seq)

    def lane_key(self, virtual_time: int, head: QueuedJob) -> Key:
        return (virtual_time + self.step * head.priority, head.due_at, head.seq)

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

    def job_key(self, job: QueuedJob) -> Key:
        return (job.effective_priority, job.submitted_at, job.seq)

    def lane_key(self, virtual_time: int, head: QueuedJob) -> Key:  # noqa: ARG002 - a lane's offset is zero
        return self.job_key(head)

    def effective_priority(self, priority: int, *, ahead: int, weight: int, lead: int) -> int:  # noqa: ARG002
        return priority + ahead // weight

    def charge(self, cost: int, weight: int) -> int:  # noqa: ARG002 - nothing is charged
        return 0


def ordering(policy: Policy, step: int) -> Ordering:
    """The ordering of `policy`, where `step` is a priority step in units."""
    return VirtualTime(step) if policy is Policy.VIRTUAL_TIME else Penalty()
