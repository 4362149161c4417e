"""Both policies against models that apply the page's rules literally and sort everything at each pick."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.policies import step_units
from app.scheduling.scheduler import SHARE, Policy, Scheduler
from tests.scheduling.models import Model, PenaltyModel, VirtualTimeModel
from tests.scheduling.workload import QUEUES, STEPS, TENANTS, Event, World, days, thorough

MODELS: dict[Policy, type[Model]] = {
    Policy.VIRTUAL_TIME: VirtualTimeModel,
    Policy.PENALTY: PenaltyModel,
}


def assert_same_state(scheduler: Scheduler, model: Model) -> None:
    for queue in QUEUES:
        state = scheduler.queue(queue)
        assert (state.name, state.clock, state.since_move, state.horizon) == model.time_of(queue)
        assert state.paused == model.queue_of(queue).paused
        assert scheduler.queued_in(queue) == sum(job.queue == queue for job in model.waiting)
        for tenant in TENANTS:
            assert scheduler.queued_of(queue, tenant) == len(model.jobs_of(queue, tenant))
            assert scheduler.is_pickable(queue, tenant) is (tenant in model.pickable_lanes(queue))
            assert_same_lane(scheduler, model, queue, tenant)
    for tenant in TENANTS:
        assert scheduler.running(tenant) == model.tenant_of(tenant).running
    assert set(scheduler.snapshot().jobs) == set(model.waiting)


def assert_same_lane(scheduler: Scheduler, model: Model, queue: str, tenant: str) -> None:
    lane = scheduler.lane(queue, tenant)
    if lane is None:  # never made or forgotten, which may not tell it from one at the clock
        assert model.virtual_times.get((queue, tenant), 0) <= model.queue_of(queue).clock
    else:
        assert lane.virtual_time == model.virtual_times[queue, tenant]


def play(policy: Policy, step: int, day: list[Event], forget_every: int) -> None:
    scheduler, model = Scheduler(policy, step), MODELS[policy](step)
    real, ideal = World(scheduler), World(model)
    for number, event in enumerate(day, start=1):
        assert event(real) == event(ideal)
        if number % forget_every == 0:
            scheduler.forget_idle(2)
        assert_same_state(scheduler, model)


@thorough(250)
@given(st.sampled_from(STEPS), days, st.integers(1, 61))
def test_virtual_time_does_what_the_page_says(step: int, day: list[Event], forget_every: int) -> None:
    play(Policy.VIRTUAL_TIME, step, day, forget_every)


@thorough(150)
@given(st.sampled_from(STEPS), days, st.integers(1, 61))
def test_penalty_does_what_the_page_says(step: int, day: list[Event], forget_every: int) -> None:
    play(Policy.PENALTY, step, day, forget_every)


@pytest.mark.parametrize(
    ("shares", "units"),
    [
        ("0", 0),
        ("1", SHARE),
        ("0.5", 500_000),
        ("0.0000019", 1),
        ("1e30", 10**36),
        ("1" * 40, int("1" * 40) * SHARE),
    ],
)
def test_a_step_in_shares_is_exact_in_units(shares: str, units: int) -> None:
    assert step_units(Decimal(shares)) == units


@pytest.mark.parametrize("shares", ["-0.1", "NaN", "Infinity"])
def test_a_step_that_is_none_is_refused(shares: str) -> None:
    with pytest.raises(ValueError, match="priority step"):
        step_units(Decimal(shares))
