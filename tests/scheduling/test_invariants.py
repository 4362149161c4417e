"""What always holds of the order, on random days."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Pick, Policy, QueuedJob, Scheduler
from tests.scheduling.workload import (
    QUEUES,
    STEPS,
    TENANTS,
    Claim,
    Event,
    Requeue,
    SetTenant,
    Submit,
    World,
    days,
    fixed_settings,
    id_of,
    lists_of,
    thorough,
)


def clocks(scheduler: Scheduler) -> dict[str, int]:
    return {queue: scheduler.queue(queue).clock for queue in QUEUES}


@thorough(120)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_the_clock_never_falls(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler = Scheduler(policy, step)
    world = World(scheduler)
    for event in day:
        before = clocks(scheduler)
        event(world)
        assert all(before[queue] <= clock for queue, clock in clocks(scheduler).items())


@thorough(120)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_a_lane_is_never_further_ahead_than_its_last_charge(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler = Scheduler(policy, step)
    world = World(scheduler)
    last_charge: dict[tuple[str, str], int] = {}
    for event in day:
        answer = event(world)
        if isinstance(event, Claim) and isinstance(answer, Pick):
            last_charge[answer.job.queue, answer.job.tenant] = answer.charge
        for lane in scheduler.snapshot().lanes:
            lead = lane.virtual_time - scheduler.queue(lane.queue).clock
            assert lead <= last_charge.get((lane.queue, lane.tenant), 0)


@thorough(120)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_a_pickable_lane_is_never_far_behind_the_clock(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler = Scheduler(policy, step)
    world = World(scheduler)
    for event in day:
        event(world)
        for lane in scheduler.snapshot().lanes:
            if scheduler.is_pickable(lane.queue, lane.tenant):
                assert scheduler.queue(lane.queue).clock <= lane.virtual_time + 10 * step + SHARE


# -- the bound on overtaking


@dataclass
class Overtaking:
    """What goes before `job` from the moment its lane is pickable with it in, until that ends."""

    job: QueuedJob
    last_charge: int
    own_charges: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    smallest: dict[str, int] = field(default_factory=dict)

    def count(self, pick: Pick) -> None:
        rival = pick.job.tenant
        if rival == self.job.tenant:
            self.own_charges += pick.charge
        else:
            self.counted[rival] = self.counted.get(rival, 0) + 1
            self.smallest[rival] = min(pick.charge, self.smallest.get(rival, pick.charge))

    def uncount(self, pick: Pick) -> None:
        if pick.job.tenant in self.counted:
            self.counted[pick.job.tenant] -= 1

    def check(self, step: int) -> None:
        head_start = step * (self.job.priority + 10)
        budget = self.last_charge + self.own_charges + head_start + SHARE
        for rival, number in self.counted.items():
            assert number <= 1 + budget // self.smallest[rival]


class Overtakings:
    """Follows every waiting job of a world whose settings and priorities stay as they are."""

    def __init__(self, scheduler: Scheduler, step: int) -> None:
        self.world = World(scheduler)
        self._scheduler = scheduler
        self._step = step
        self._open: dict[str, Overtaking] = {}
        self._last_charge: dict[tuple[str, str], int] = {}

    def play(self, event: Event) -> None:
        answer = event(self.world)
        if isinstance(answer, Pick):
            if isinstance(event, Claim):
                self._picked(answer)
            elif getattr(event, "refund", False):
                self._given_back(answer)
        self._follow_waiting()

    def _picked(self, pick: Pick) -> None:
        self._open.pop(pick.job.id, None)
        for overtaking in self._in(pick.job.queue):
            overtaking.count(pick)
            overtaking.check(self._step)
        self._last_charge[pick.job.queue, pick.job.tenant] = pick.charge

    def _given_back(self, pick: Pick) -> None:
        for overtaking in self._in(pick.job.queue):
            overtaking.uncount(pick)

    def _in(self, queue: str) -> list[Overtaking]:
        return [each for each in self._open.values() if each.job.queue == queue]

    def _follow_waiting(self) -> None:
        waiting = {
            job.id: job for job in self._scheduler.snapshot().jobs if self._scheduler.is_pickable(job.queue, job.tenant)
        }
        for job_id in self._open.keys() - waiting.keys():
            del self._open[job_id]
        for job_id, job in waiting.items():
            if job_id not in self._open:
                last_charge = self._last_charge.get((job.queue, job.tenant), 0)
                self._open[job_id] = Overtaking(job, last_charge)


@thorough(250)
@given(
    st.sampled_from((0, SHARE // 2, SHARE)),
    st.lists(
        st.builds(
            SetTenant,
            st.sampled_from(TENANTS),
            weight=st.integers(1, 4),
            max_running=st.sampled_from((None, 1, 3)),
        ),
        max_size=3,
    ),
    lists_of(fixed_settings, 100),
)
def test_overtaking_is_bounded(step: int, setup: list[SetTenant], day: list[Event]) -> None:
    """A pick that is given back is not counted, and one from before counts against the others."""
    scheduler = Scheduler(Policy.VIRTUAL_TIME, step)
    overtakings = Overtakings(scheduler, step)
    for tenant in setup:
        overtakings.play(tenant)
    for event in day:
        overtakings.play(event)


def test_a_pick_from_before_that_is_given_back_buys_one_more() -> None:
    """Why the bound must count every give-back, not only those of picks that it had counted.

    No step, and job 4 waits in cyd's lane: a share for cyd's job ahead and one more make two, less than
    bob's smallest charge of three, so one of bob's jobs may go before it. Two do, as bob gives back a
    pick from before job 4 was there.
    """
    scheduler = Scheduler(Policy.VIRTUAL_TIME, step_units=0)
    overtakings = Overtakings(scheduler, step=0)
    before: list[Event] = [Submit("bob", "q", 0, cost=3), Claim("q"), Submit("bob", "q", 0, cost=3)]
    waiting: list[Event] = [Submit("cyd", "q", 0), Submit("cyd", "q", 0)]
    served: list[Event] = [Claim("q"), Claim("q"), Requeue(0), Claim("q"), Claim("q")]
    for event in (*before, *waiting, *served):
        overtakings.play(event)
    order = [pick.job.id for pick in overtakings.world.leased]
    assert order == [id_of(2), id_of(3), id_of(1), id_of(4)]
