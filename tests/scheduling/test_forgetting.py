"""What may be forgotten is, and nobody notices (test_policies.py forgets on random days)."""

from __future__ import annotations

import pytest

from app.scheduling.scheduler import SHARE, LaneTime, Policy, Scheduler, Snapshot
from tests.scheduling.portrait import portrait
from tests.scheduling.workload import Claim, Finish, SetTenant, Submit, World


def worked_off(*tenants: str) -> tuple[Scheduler, World]:
    """A queue in which each of `tenants` had one job, picked and not ended yet."""
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    for tenant in tenants:
        Submit(tenant, "q", 0)(world)
    for _ in tenants:
        Claim("q")(world)
    return scheduler, world


def test_empty_lanes_at_the_clock_are_forgotten_oldest_first() -> None:
    scheduler, _ = worked_off("ada", "bob", "cyd")
    assert scheduler.forget_idle(2) == [("q", "ada"), ("q", "bob")]
    assert scheduler.forget_idle(2) == [("q", "cyd")]
    assert scheduler.forget_idle(2) == []


def test_a_lane_that_still_owes_is_kept_until_the_clock_is_there() -> None:
    scheduler, world = worked_off()
    Submit("ada", "q", 0, cost=3)(world)
    Submit("bob", "q", 9)(world)
    Claim("q")(world)
    assert scheduler.forget_idle(10) == []
    Claim("q")(world)  # the queue runs empty, the clock catches up
    assert scheduler.forget_idle(10) == [("q", "ada"), ("q", "bob")]


def test_a_lane_with_jobs_is_kept() -> None:
    scheduler, world = worked_off("ada")
    Submit("ada", "q", 0)(world)
    assert scheduler.forget_idle(10) == []
    assert scheduler.queued_of("q", "ada") == 1


def test_a_tenant_without_lanes_jobs_or_settings_is_forgotten() -> None:
    scheduler, world = worked_off("ada", "bob")
    SetTenant("bob", weight=2)(world)
    scheduler.forget_idle(10)
    assert [tenant.name for tenant in scheduler.snapshot().tenants] == ["ada", "bob"]  # both still run
    Finish(0)(world)
    Finish(0)(world)
    assert [tenant.name for tenant in scheduler.snapshot().tenants] == ["bob"]
    SetTenant("bob")(world)
    assert list(scheduler.snapshot().tenants) == []


def test_a_forgotten_lane_has_nothing_to_write() -> None:
    scheduler, _ = worked_off("ada")
    scheduler.forget_idle(10)
    lanes, _ = scheduler.take_dirty()
    assert lanes == []


def test_forgetting_within_a_journal_is_refused() -> None:
    scheduler, _ = worked_off("ada")
    scheduler.begin()
    with pytest.raises(RuntimeError, match="journal is open"):
        scheduler.forget_idle(10)


def test_a_lane_whose_making_was_rolled_back_is_no_longer_looked_at() -> None:
    scheduler, _ = worked_off("ada")
    was = portrait(scheduler)
    scheduler.begin()
    world = World(scheduler, submitted=10)
    Submit("zoe", "q", 0)(world)
    Claim("q")(world)
    scheduler.rollback()
    assert portrait(scheduler) == was
    assert scheduler.forget_idle(10) == [("q", "ada")]


def test_memory_stays_small_under_an_endless_stream_of_tenants() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    for number in range(2_000):
        Submit(f"tenant {number}", "q", 5)(world)
        Claim("q")(world)
        Finish(0)(world)
        scheduler.forget_idle(2)
        assert len(list(scheduler.snapshot().tenants)) <= 3


def test_an_empty_lane_that_was_loaded_can_be_forgotten() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.load(Snapshot(lanes=[LaneTime("q", "ada", 0), LaneTime("q", "bob", 5)]))
    assert scheduler.may_forget
    assert scheduler.forget_idle(10) == [("q", "ada")]
    assert scheduler.lane("q", "bob") == ("q", "bob", 5)
