"""Shares, caps, pauses, priority and credit, each in a small story."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Policy, Scheduler
from tests.scheduling.workload import (
    Cancel,
    Claim,
    Finish,
    Reprioritize,
    Requeue,
    SetQueue,
    SetTenant,
    Submit,
    World,
    id_of,
    thorough,
)


def fresh(step: int = SHARE) -> tuple[Scheduler, World]:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, step)
    return scheduler, World(scheduler)


def submit(world: World, tenant: str, *, number: int = 1, priority: int = 5, queue: str = "q") -> None:
    for _ in range(number):
        Submit(tenant, queue, priority)(world)


def claim(world: World, number: int = 1, queue: str = "q") -> list[str]:
    """The tenants of the next `number` picks, fewer if no more can be picked."""
    picks = [Claim(queue)(world) for _ in range(number)]
    return [pick.job.tenant for pick in picks if pick]


def virtual_time(scheduler: Scheduler, tenant: str, queue: str = "q") -> int:
    lane = scheduler.lane(queue, tenant)
    assert lane is not None
    return lane.virtual_time


# -- shares


@thorough(60)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 9), st.integers(0, 10)), min_size=2),
    st.integers(1, 3),
)
def test_shares_converge_to_the_weights(tenants: dict[str, tuple[int, int]], cost: int) -> None:
    _, world = fresh()
    rounds, total = 20, sum(weight for weight, _ in tenants.values())
    for tenant, (weight, priority) in tenants.items():
        SetTenant(tenant, weight=weight)(world)
        for _ in range(rounds * weight + 12 * weight):
            Submit(tenant, "q", priority, cost=cost)(world)
    served = Counter(claim(world, rounds * total))
    for tenant, (weight, _) in tenants.items():
        # Priority is a head start of at most ten shares, the last charge one more; in time it is lost.
        assert abs(served[tenant] * cost / weight - rounds * cost) <= 10 + cost + 1


def test_a_costly_job_uses_as_much_share_as_many_cheap_ones() -> None:
    _, world = fresh()
    for _ in range(10):
        Submit("costly", "q", 5, cost=4)(world)
    submit(world, "cheap", number=40)
    assert Counter(claim(world, 25)) == {"costly": 5, "cheap": 20}


def test_a_weight_change_applies_to_later_charges() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=3)
    claim(world)
    SetTenant("ada", weight=4)(world)
    assert virtual_time(scheduler, "ada") == SHARE
    pick = Claim("q")(world)
    assert pick is not None
    assert (pick.charge, pick.weight) == (SHARE // 4, 4)
    assert virtual_time(scheduler, "ada") == SHARE + SHARE // 4


def test_an_idle_tenant_earns_no_credit() -> None:
    _, world = fresh()
    submit(world, "idle")
    submit(world, "busy", number=60)
    claim(world, 40)
    submit(world, "idle", number=20)
    assert Counter(claim(world, 20)) == {"busy": 10, "idle": 10}


def test_debts_do_not_outlive_the_backlog() -> None:
    _, world = fresh()
    Submit("ada", "q", 5, cost=50)(world)
    claim(world)
    submit(world, "bob", number=10)
    submit(world, "ada", number=10)
    assert Counter(claim(world, 10)) == {"ada": 5, "bob": 5}


# -- priority


def test_an_urgent_job_goes_first_within_its_tenant() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=3, priority=5)
    submit(world, "ada", priority=0)
    pick = scheduler.pick("q")
    assert pick is not None
    assert pick.job.priority == 0


def test_jobs_of_one_priority_go_by_due_time_then_by_seq() -> None:
    _, world = fresh()
    for due in (3, 1, 2, 1):
        Submit("ada", "q", 5, due=due)(world)
    picks = [Claim("q")(world) for _ in range(4)]
    assert [pick.job.seq for pick in picks if pick] == [2, 4, 3, 1]


def test_a_step_of_priority_is_a_head_start_of_a_share() -> None:
    _, world = fresh()
    submit(world, "patient", number=5, priority=2)
    submit(world, "urgent", number=5, priority=0)
    assert claim(world, 5) == ["urgent", "urgent", "patient", "urgent", "patient"]


def test_without_a_step_priority_counts_only_within_the_tenant() -> None:
    _, world = fresh(step=0)
    submit(world, "patient", number=3, priority=10)
    submit(world, "urgent", number=3, priority=0)
    assert claim(world, 4) == ["patient", "urgent", "patient", "urgent"]


def test_a_huge_step_is_strict_priority() -> None:
    _, world = fresh(step=10**9 * SHARE)
    submit(world, "patient", number=3, priority=1)
    submit(world, "urgent", number=50, priority=0)
    assert set(claim(world, 50)) == {"urgent"}


def test_a_new_priority_is_in_force_at_once() -> None:
    _, world = fresh()
    submit(world, "ada", priority=5)
    submit(world, "bob", priority=5)
    changed = Reprioritize(1, 0)(world)
    assert changed is not None
    assert (changed.priority, changed.effective_priority) == (0, 0)
    assert claim(world, 2) == ["bob", "ada"]


def test_a_new_priority_moves_the_effective_one_but_not_below_zero() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=4, priority=5)
    assert [job.effective_priority for job in scheduler.snapshot().jobs] == [5, 6, 7, 8]
    last = scheduler.reprioritize(id_of(4), 2)
    assert last is not None
    assert last.effective_priority == 5
    urgent = scheduler.reprioritize(id_of(4), 10)
    assert urgent is not None
    assert urgent.effective_priority == 13


def test_the_effective_priority_counts_the_lead_over_the_clock() -> None:
    scheduler, world = fresh()
    submit(world, "bob", priority=10)
    Submit("ada", "q", 0, cost=3)(world)
    claim(world)
    assert (virtual_time(scheduler, "ada"), scheduler.queue("q").clock) == (3 * SHARE, SHARE // 2)
    assert Submit("ada", "q", 4)(world).effective_priority == 4 + 2
    assert Submit("ada", "q", 4)(world).effective_priority == 4 + 2 + 1


# -- caps and pauses


def test_a_cap_counts_over_all_queues() -> None:
    scheduler, world = fresh()
    SetTenant("ada", max_running=2)(world)
    submit(world, "ada", number=3)
    submit(world, "ada", number=3, queue="r")
    assert claim(world) == ["ada"]
    assert claim(world, queue="r") == ["ada"]
    assert claim(world) == []
    assert claim(world, queue="r") == []
    assert not scheduler.can_pick("r")
    Finish(0)(world)
    assert claim(world, 5, queue="r") == ["ada"]
    assert scheduler.running("ada") == 2


def test_a_cap_below_what_runs_waits_for_it_to_end() -> None:
    _, world = fresh()
    submit(world, "ada", number=5)
    claim(world, 3)
    SetTenant("ada", max_running=2)(world)
    Finish(0)(world)
    assert claim(world) == []
    Finish(0)(world)
    assert claim(world, 2) == ["ada"]


def test_a_paused_tenant_is_passed_over() -> None:
    _, world = fresh()
    submit(world, "ada", number=2)
    submit(world, "bob")
    SetTenant("ada", paused=True)(world)
    assert claim(world, 3) == ["bob"]
    SetTenant("ada")(world)
    assert claim(world, 3) == ["ada", "ada"]


def test_a_paused_queue_is_only_not_claimed_from() -> None:
    scheduler, world = fresh()
    submit(world, "ada")
    SetQueue("q", paused=True)(world)
    submit(world, "bob", priority=0)
    assert claim(world, 2) == []
    assert scheduler.is_pickable("q", "ada")
    assert not scheduler.can_pick("q")
    SetQueue("q", paused=False)(world)
    assert claim(world, 2) == ["bob", "ada"]


def test_a_return_keeps_the_place_with_bounded_credit() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=5, priority=2)
    SetTenant("ada", paused=True)(world)
    submit(world, "bob", number=60)
    claim(world, 50)
    SetTenant("ada")(world)
    assert virtual_time(scheduler, "ada") == scheduler.queue("q").clock - SHARE - 2 * SHARE


def test_a_pause_that_ends_at_the_cap_is_no_return() -> None:
    scheduler, world = fresh()
    SetTenant("ada", max_running=1)(world)
    submit(world, "ada", number=2)
    claim(world)
    before = virtual_time(scheduler, "ada")
    SetTenant("ada", max_running=1, paused=True)(world)
    submit(world, "bob", number=60)
    claim(world, 50)
    SetTenant("ada", max_running=1)(world)
    assert virtual_time(scheduler, "ada") == before
    Finish(0)(world)
    assert virtual_time(scheduler, "ada") == scheduler.queue("q").clock - SHARE - 5 * SHARE


def test_an_open_lane_does_not_return_when_a_job_of_its_tenant_ends() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=2, priority=10)
    claim(world)
    submit(world, "bob", number=60, priority=0)
    claim(world, 9)
    submit(world, "ada", priority=0)
    credit = scheduler.queue("q").clock - virtual_time(scheduler, "ada")
    assert credit > SHARE, "more than a return would leave it, now that its head is urgent"
    Finish(0)(world)
    assert scheduler.queue("q").clock - virtual_time(scheduler, "ada") == credit


def test_hidden_lanes_do_not_weigh_on_the_clock() -> None:
    scheduler, world = fresh()
    SetTenant("heavy", weight=1000)(world)
    submit(world, "heavy")
    SetTenant("heavy", weight=1000, paused=True)(world)
    submit(world, "ada", number=2)
    claim(world)
    assert scheduler.queue("q").clock == SHARE


def test_a_count_never_falls_below_zero() -> None:
    scheduler, world = fresh()
    submit(world, "ada")
    scheduler.end("ada", "q")
    assert scheduler.running("ada") == 0


# -- giving back


def test_a_release_gives_the_charge_back() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=2)
    submit(world, "bob", number=2)
    released = Claim("q")(world)
    assert released is not None
    Requeue(0)(world)
    assert scheduler.queued_job(released.job.id) == released.job
    assert virtual_time(scheduler, "ada") == scheduler.queue("q").clock == SHARE // 2
    assert scheduler.running("ada") == 0


def test_a_release_without_a_refund_keeps_the_charge() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=2)
    Claim("q")(world)
    Requeue(0, refund=False)(world)
    assert virtual_time(scheduler, "ada") == SHARE


def test_a_lapse_before_the_start_that_fails_gives_the_charge_back() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=2)
    submit(world, "bob")
    Claim("q")(world)
    Finish(0, refund=True)(world)
    assert virtual_time(scheduler, "ada") == scheduler.queue("q").clock == SHARE // 2


def test_a_refund_gives_no_credit_below_the_clock() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=10)
    submit(world, "bob", number=10)
    claim(world, 8)
    before = virtual_time(scheduler, "ada")
    for _ in range(8):
        Finish(0, refund=True)(world)
    clock = scheduler.queue("q").clock
    assert virtual_time(scheduler, "ada") == min(before, clock)
    assert virtual_time(scheduler, "bob") >= min(before, clock)


def test_a_job_that_goes_back_keeps_its_effective_priority() -> None:
    scheduler, world = fresh()
    submit(world, "ada", number=4)
    claim(world, 3)
    Requeue(2)(world)
    back = scheduler.queued_job(id_of(3))
    assert back is not None
    assert back.effective_priority == 7


def test_penalty_counts_what_waits_now() -> None:
    scheduler = Scheduler(Policy.PENALTY, SHARE)
    world = World(scheduler)
    SetTenant("ada", weight=2)(world)
    submit(world, "ada", number=4)
    assert [job.effective_priority for job in scheduler.snapshot().jobs] == [5, 5, 6, 6]
    pick = Claim("q")(world)
    Cancel(0)(world)
    assert pick is not None
    assert pick.charge == 0
    assert Submit("ada", "q", 5)(world).effective_priority == 6
    assert scheduler.queue("q").clock == 0


@pytest.mark.parametrize("policy", Policy)
def test_the_last_job_to_leave_settles_the_debts(policy: Policy) -> None:
    scheduler = Scheduler(policy, SHARE)
    world = World(scheduler)
    submit(world, "ada", number=2)
    SetTenant("bob", paused=True)(world)
    submit(world, "bob")
    claim(world, 2)
    horizon = scheduler.queue("q").horizon
    assert scheduler.queue("q").clock <= horizon
    Cancel(0)(world)  # bob's, hidden
    assert scheduler.queue("q").clock == horizon
