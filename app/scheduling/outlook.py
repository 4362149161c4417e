"""What a queued job waits for: which jobs go before it if nothing else arrives, what would make it the next one, and
how often it can be overtaken. Looked at in one moment, without touching the order; what may be long is counted in
steps, while the order goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from app.scheduling.heap import Key
from app.scheduling.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from app.scheduling.lanes import Lane
from app.scheduling.line import Blocks, Line
from app.scheduling.policies import SHARE, Ordering
from app.scheduling.queue import Queue
from app.scheduling.records import QueuedJob, TenantState


@dataclass(frozen=True, slots=True)
class Bound:
    """How often a waiting job can be overtaken from now on, while its lane stays pickable and weights and step stay as
    they are. docs/fairness.md has the argument.

    `credit` says how many units the virtual time of another lane can lie below the key with which the job will be
    picked, at most. A job of its own tenant that comes ahead of it later adds its charge to that.
    """

    credit: int

    def picks(self, weight: int, cost: int = 1, given_back: int = 0) -> int:
        """The most jobs of another tenant that go before it: of one with that weight, none of whose jobs costs less
        than `cost`, and which gives back `given_back` jobs of this queue meanwhile."""
        return 1 + self.credit // (cost * (SHARE // weight)) + given_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A queued job and all that its place depends on, at one moment; times and charges in units.

    `virtual_time` is its lane's, as it would be if what holds the job were lifted now. `own_charges` is what the jobs
    of its own lane that go before it will be charged, None if there were too many to look at. `needed_priority` is
    the least urgent priority, no less urgent than its own, with which it would be the next of its queue once nothing
    holds it, None if none will do.
    """

    job: QueuedJob
    tenant: TenantState
    is_queue_paused: bool
    virtual_time: int
    clock: int
    step: int
    charge: int
    own_charges: int | None
    needed_priority: int | None
    keeps_time: bool

    @property
    def is_at_cap(self) -> bool:
        """Whether its tenant runs as many jobs as it may."""
        return self.tenant.max_running is not None and self.tenant.running >= self.tenant.max_running

    @property
    def bound(self) -> Bound | None:
        """None where none holds: under the penalty rule, while its lane is not pickable, and if its own lane's part
        in it is not known."""
        if not self.keeps_time or self.own_charges is None or self.tenant.paused or self.is_at_cap:
            return None
        head_start = self.step * (self.job.priority + LOWEST_PRIORITY)
        return Bound(self.virtual_time - self.clock + self.own_charges + head_start + SHARE)


class _Lent(NamedTuple):
    """Another lane as it was at that moment. Its jobs are lent, so that nothing is copied to look at them."""

    tenant: str
    weight: int
    virtual_time: int
    jobs: Line[bytes]
    blocks: Blocks[bytes]


class Outlook:
    """Who goes before a job if nothing else arrives, no tenant comes to its cap or leaves it, and what holds the job
    itself is lifted now: its queue's pause, its tenant's pause, its tenant's cap.

    To make one costs O(jobs of its own lane that go before it + lanes that have one that does), neither followed
    beyond `most`; the jobs of other lanes are counted in steps by `count`. `close` it in the end.

    Why each lane can be counted by itself: if nothing arrives, a pick only adds to its lane's virtual time, and the
    next head is no more urgent than the one before. So the keys of a lane rise from pick to pick, and always to pick
    the smallest is to merge sorted sequences. What comes out before a job are, of each lane, the jobs whose keys are
    smaller than the job's own will be once it is its lane's head.
    """

    def __init__(self, home: Queue, lane: Lane, job: QueuedJob, ordering: Ordering, most: int) -> None:
        weight = lane.tenant.weight
        virtual_time = lane.virtual_time if lane.tenant.may_run else home.returned_time(lane)
        own = list(islice(lane.jobs.below(ordering.pack(job, lane.number)), most + 1))
        own_charges = sum(ordering.charge(ordering.form.cost(each), weight) for each in own)
        key = ordering.lane_key(virtual_time + own_charges, ordering.job_key(job))
        self.standing = Standing(
            job=job,
            tenant=lane.tenant.state(),
            is_queue_paused=home.paused,
            keeps_time=ordering.keeps_time,
            virtual_time=virtual_time,
            clock=home.clock,
            step=home.step,
            charge=ordering.charge(job.cost, weight),
            own_charges=own_charges if len(own) <= most else None,
            needed_priority=_needed_priority(home, lane, job, ordering, virtual_time),
        )
        self.ahead = min(len(own), most)
        """How many go before it, as far as they are counted."""
        self.is_exact = len(own) <= most
        """Whether that will be all of them; if not, there are more than `most`."""
        self.by_tenant = Counter({job.tenant: self.ahead} if self.ahead else {})
        self._most = most
        self._lent = [_lend(other) for other in self._lanes_before(home, lane, key)] if self.is_exact else []
        self._uncounted = self._of_others(ordering, key)

    @property
    def weights(self) -> dict[str, int]:
        """Of the other tenants that have jobs that go before it, as far as they were looked at; until it is closed."""
        return {lent.tenant: lent.weight for lent in self._lent}

    def count(self, jobs: int) -> bool:
        """Count up to so many more, at a few microseconds each; whether any may be left."""
        counted = 0
        for tenant in islice(self._uncounted, jobs):
            if self.ahead == self._most:
                self.is_exact = False
                return False
            self.ahead += 1
            self.by_tenant[tenant] += 1
            counted += 1
        return counted == jobs

    def close(self) -> None:
        """Nothing more is counted."""
        for lent in self._lent:
            lent.jobs.take_back(lent.blocks)
        self._lent = []

    def _lanes_before(self, home: Queue, own: Lane, key: Key) -> Iterator[Lane]:
        """The other lanes with a job that goes before `key`; one more than can matter is enough."""
        found = (lane for lane in home.pickable.below(key) if lane is not own)
        return islice(found, self._most - self.ahead + 1)

    def _of_others(self, ordering: Ordering, key: Key) -> Iterator[str]:
        """The tenant of each job of another lane that goes before `key`."""
        for lent in self._lent:
            virtual_time = lent.virtual_time
            for job in chain.from_iterable(lent.blocks):
                if ordering.lane_key(virtual_time, ordering.form.key(job)) > key:
                    break
                yield lent.tenant
                virtual_time += ordering.charge(ordering.form.cost(job), lent.weight)


def _lend(lane: Lane) -> _Lent:
    return _Lent(lane.tenant.name, lane.tenant.weight, lane.virtual_time, lane.jobs, lane.jobs.lend())


def _needed_priority(home: Queue, lane: Lane, job: QueuedJob, ordering: Ordering, virtual_time: int) -> int | None:
    """See `Standing`."""
    in_lane, others = lane.jobs.least_but(ordering.pack(job, lane.number)), home.pickable.least_but(lane)
    for priority in range(job.priority, HIGHEST_PRIORITY - 1, -1):
        urgent = ordering.job_key(job.with_priority(priority))
        if in_lane is not None and ordering.form.key(in_lane) < urgent:
            continue
        if others is None or ordering.lane_key(virtual_time, urgent) < others:
            return priority
    return None
