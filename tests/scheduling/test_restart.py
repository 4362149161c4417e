"""A restart is invisible in the order, and mends only what no rule could have made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import (
    SHARE,
    LaneTime,
    Policy,
    QueuedJob,
    QueueState,
    Scheduler,
    Snapshot,
    TenantState,
)
from tests.scheduling.portrait import portrait
from tests.scheduling.workload import STEPS, Event, World, days, id_of, thorough


def reloaded(scheduler: Scheduler, step: int, policy: Policy | None = None) -> Scheduler:
    other = Scheduler(policy or scheduler.policy, step)
    other.load(scheduler.snapshot())
    return other


def job(number: int, *, tenant: str = "ada", priority: int = 0) -> QueuedJob:
    return QueuedJob(id_of(number), number, tenant, "q", priority, 1, number, number, priority)


@thorough(130)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days, days)
def test_the_jobs_come_out_as_if_it_had_not_stopped(
    policy: Policy, step: int, before: list[Event], after: list[Event]
) -> None:
    scheduler = Scheduler(policy, step)
    world = World(scheduler)
    for event in before:
        event(world)
    scheduler.take_dirty()
    restarted = reloaded(scheduler, step)
    assert portrait(restarted) == portrait(scheduler)
    twin = world.play_with(restarted)
    for event in after:
        assert event(twin) == event(world)
    assert restarted.queue("q") == scheduler.queue("q")


@thorough(80)
@given(st.sampled_from(STEPS), st.sampled_from(STEPS), days, days)
def test_policy_and_step_may_change_at_a_restart(
    step: int, new_step: int, before: list[Event], after: list[Event]
) -> None:
    world = World(Scheduler(Policy.VIRTUAL_TIME, step))
    for event in before:
        event(world)
    assert isinstance(world.order, Scheduler)
    for policy in (Policy.PENALTY, Policy.VIRTUAL_TIME):
        assert isinstance(world.order, Scheduler)
        world = world.play_with(reloaded(world.order, new_step, policy))
        for event in after:
            event(world)
    assert isinstance(world.order, Scheduler)
    for lane in world.order.snapshot().lanes:
        if world.order.is_pickable(lane.queue, lane.tenant):
            clock = world.order.queue(lane.queue).clock
            assert clock <= lane.virtual_time + 10 * new_step + SHARE


def test_only_a_pickable_lane_too_far_behind_is_raised() -> None:
    clock = 100 * SHARE
    floor = clock - SHARE - 10 * SHARE
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(
        Snapshot(
            tenants=[TenantState("paused", 1, None, paused=True, running=0)],
            queues=[QueueState("q", clock, since_move=3, horizon=clock + 5, paused=False)],
            lanes=[
                LaneTime("q", "far behind", 7),
                LaneTime("q", "paused", 7),
                LaneTime("q", "empty", 7),
                LaneTime("q", "within", floor),
                LaneTime("q", "ahead", clock + 3),
            ],
            jobs=[
                job(number, tenant=tenant, priority=number)
                for number, tenant in enumerate(("far behind", "paused", "within", "ahead", "no row"))
            ],
        )
    )
    assert scheduler.take_dirty() == (
        [("q", "no row", clock), ("q", "far behind", floor)],
        [],
    )
    assert scheduler.lane("q", "paused") == ("q", "paused", 7)
    assert scheduler.lane("q", "empty") == ("q", "empty", 7)
    assert scheduler.lane("q", "within") == ("q", "within", floor)
    assert scheduler.lane("q", "ahead") == ("q", "ahead", clock + 3)
    assert scheduler.queue("q") == QueueState("q", clock, 3, clock + 5, paused=False)


def test_loading_never_joins() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(
        Snapshot(
            queues=[QueueState("q", 5 * SHARE, 0, 0, paused=False)],
            lanes=[LaneTime("q", "ada", SHARE), LaneTime("q", "bob", 5 * SHARE)],
            jobs=[job(1, tenant="bob"), job(2, tenant="ada")],
        )
    )
    picks = [scheduler.pick("q"), scheduler.pick("q")]
    assert [pick.job.tenant for pick in picks if pick] == ["ada", "bob"]
    assert picks[0] is not None
    assert picks[0].charge == SHARE


def test_penalty_does_not_look_at_virtual_times_from_before() -> None:
    scheduler = Scheduler(Policy.PENALTY, SHARE)
    scheduler.load(
        Snapshot(
            queues=[QueueState("q", 5 * SHARE, 0, 9 * SHARE, paused=False)],
            lanes=[LaneTime("q", "ada", 9 * SHARE), LaneTime("q", "bob", 5 * SHARE)],
            jobs=[job(1, tenant="ada"), job(2, tenant="bob")],
        )
    )
    first = scheduler.pick("q")
    assert first is not None
    assert (first.job.tenant, first.charge) == ("ada", 0)
    assert scheduler.lane("q", "ada") == ("q", "ada", 9 * SHARE)
    assert scheduler.queue("q").clock == 5 * SHARE


def test_a_job_of_an_unknown_queue_makes_one_that_sql_has_to_write() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(Snapshot(jobs=[job(1)]))
    assert scheduler.take_dirty() == ([("q", "ada", 0)], [("q", 0, 0, 0)])


def test_loading_replaces_what_was_there() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(Snapshot(jobs=[job(1), job(2)]))
    scheduler.load(Snapshot(jobs=[job(3)]))
    assert scheduler.queued_in("q") == 1
    assert scheduler.queued_job(id_of(3)) == job(3)


def test_running_jobs_count_against_the_cap_after_a_restart() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(Snapshot(tenants=[TenantState("ada", 1, 2, paused=False, running=2)], jobs=[job(1)]))
    assert scheduler.pick("q") is None
    scheduler.end("ada", "q")
    assert scheduler.pick("q") is not None


def test_loading_within_a_journal_is_refused() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.begin()
    with pytest.raises(RuntimeError, match="journal is open"):
        scheduler.load(Snapshot())


def test_a_job_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a job comes twice"):
        Scheduler(Policy.VIRTUAL_TIME, SHARE).load(Snapshot(jobs=[job(1), job(1)]))
