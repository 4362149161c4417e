"""Who goes before a job, against the queue itself run on; and that looking changes nothing and holds nothing up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Outlook, Policy, QueuedJob, Scheduler, Snapshot
from tests.scheduling.counting import comparisons, count_keys
from tests.scheduling.portrait import portrait
from tests.scheduling.workload import (
    STEPS,
    Cancel,
    Claim,
    Event,
    Reprioritize,
    SetQueue,
    SetTenant,
    Submit,
    World,
    days,
    id_of,
    thorough,
)


def played(policy: Policy, step: int, day: list[Event]) -> tuple[Scheduler, World]:
    scheduler = Scheduler(policy, step)
    world = World(scheduler)
    for event in day:
        event(world)
    return scheduler, world


def look(scheduler: Scheduler, job_id: str, most: int = 10_000) -> Outlook:
    outlook = scheduler.outlook(job_id, most)
    assert outlook is not None
    return outlook


def counted(outlook: Outlook, at_once: int = 7) -> Counter[str]:
    """By tenant, all that go before, and that the sums agree."""
    while outlook.count(at_once):
        pass
    outlook.close()
    assert outlook.ahead == outlook.by_tenant.total()
    assert 0 not in outlook.by_tenant.values()
    return outlook.by_tenant


def run_on_to(scheduler: Scheduler, job: QueuedJob, step: int) -> Counter[str]:
    """By tenant, what comes out of a copy of the order before `job`, with what holds `job` lifted and no tenant coming
    to its cap."""
    copy = lifted(scheduler, job, step)
    gone: Counter[str] = Counter()
    while (pick := copy.pick(job.queue)) and pick.job.id != job.id:
        gone[pick.job.tenant] += 1
    assert pick is not None
    return gone


def lifted(scheduler: Scheduler, job: QueuedJob, step: int) -> Scheduler:
    copy = Scheduler(scheduler.policy, step)
    copy.load(scheduler.snapshot())
    copy.set_queue(job.queue, paused=False)
    for tenant in scheduler.snapshot().tenants:
        is_held = tenant.paused or (tenant.max_running is not None and tenant.running >= tenant.max_running)
        if tenant.name == job.tenant or not is_held:
            copy.set_tenant(tenant.name, weight=tenant.weight, max_running=None, paused=False)
    return copy


# -- against the order itself


@thorough(150)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_what_goes_first_is_what_comes_out_first(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler, _ = played(policy, step, day)
    for job in scheduler.snapshot().jobs:
        outlook = look(scheduler, job.id)
        assert counted(outlook) == run_on_to(scheduler, job, step)
        assert outlook.is_exact


@thorough(60)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days, st.integers(0, 6))
def test_beyond_the_most_it_says_so_and_counts_no_further(
    policy: Policy, step: int, day: list[Event], most: int
) -> None:
    scheduler, _ = played(policy, step, day)
    for job in scheduler.snapshot().jobs:
        all_of_them = run_on_to(scheduler, job, step)
        outlook = look(scheduler, job.id, most)
        few = counted(outlook)
        assert outlook.is_exact is (all_of_them.total() <= most)
        assert outlook.ahead == min(most, all_of_them.total())
        assert few <= all_of_them


@thorough(60)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days, days, st.integers(0, 20))
def test_it_stays_as_of_its_moment_while_the_order_goes_on(
    policy: Policy, step: int, day: list[Event], meanwhile: list[Event], at_once: int
) -> None:
    scheduler, world = played(policy, step, day)
    twin = World(Scheduler(policy, step))
    for event in day:
        event(twin)
    jobs = list(scheduler.snapshot().jobs)
    then = [run_on_to(scheduler, job, step) for job in jobs]
    outlooks = [look(scheduler, job.id) for job in jobs]
    for event in meanwhile:
        for outlook in outlooks:
            outlook.count(at_once)
        assert event(world) == event(twin)
    assert [counted(outlook) for outlook in outlooks] == then
    assert isinstance(twin.order, Scheduler)
    assert portrait(scheduler) == portrait(twin.order)


@thorough(60)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_a_rollback_undoes_nothing_that_is_lent(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler, world = played(policy, step, day)
    jobs = list(scheduler.snapshot().jobs)
    then = [run_on_to(scheduler, job, step) for job in jobs]
    scheduler.begin()
    outlooks = [look(scheduler, job.id) for job in jobs]
    for event in day:
        event(world)
    scheduler.rollback()
    assert [counted(outlook) for outlook in outlooks] == then
    assert [counted(look(scheduler, job.id)) for job in jobs] == then


@thorough(50)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_the_needed_priority_makes_it_the_next_and_a_lesser_one_does_not(
    policy: Policy, step: int, day: list[Event]
) -> None:
    def is_next_with(priority: int) -> bool:
        copy = lifted(scheduler, job, step)
        copy.reprioritize(job.id, priority)
        pick = copy.pick(job.queue)
        return pick is not None and pick.job.id == job.id

    scheduler, _ = played(policy, step, day)
    for job in scheduler.snapshot().jobs:
        needed = look(scheduler, job.id).standing.needed_priority
        if needed is None:
            assert not is_next_with(0)
        else:
            assert is_next_with(needed)
            assert needed == job.priority or not is_next_with(needed + 1)


@thorough(30)
@given(st.sampled_from(Policy), st.sampled_from(STEPS), days)
def test_looking_leaves_no_trace(policy: Policy, step: int, day: list[Event]) -> None:
    scheduler, _ = played(policy, step, day)
    before = portrait(scheduler)
    for job in scheduler.snapshot().jobs:
        counted(look(scheduler, job.id))
    assert portrait(scheduler) == before


# -- in small stories


def fresh(step: int = SHARE, policy: Policy = Policy.VIRTUAL_TIME) -> tuple[Scheduler, World]:
    scheduler = Scheduler(policy, step)
    return scheduler, World(scheduler)


def test_nobody_goes_before_the_only_job() -> None:
    scheduler, world = fresh()
    Submit("ada", "q", 5)(world)
    outlook = look(scheduler, id_of(1), most=0)
    assert (counted(outlook), outlook.is_exact) == ({}, True)
    assert outlook.standing.needed_priority == 5


def test_who_does_not_wait_has_no_outlook() -> None:
    scheduler, world = fresh()
    assert scheduler.outlook(id_of(1), 10) is None
    Submit("ada", "q", 5)(world)
    Claim("q")(world)
    assert scheduler.outlook(id_of(1), 10) is None


def test_a_tenant_at_its_cap_is_passed_over_and_one_below_it_stays_below() -> None:
    scheduler, world = fresh()
    SetTenant("full", max_running=1)(world)
    SetTenant("roomy", max_running=1)(world)
    for tenant in ("full", "full", "roomy", "roomy", "ada"):
        Submit(tenant, "q", 0)(world)
        if world.submitted == 1:
            Claim("q")(world)
    assert counted(look(scheduler, id_of(5))) == {"roomy": 1}
    Submit("ada", "q", 0)(world)
    assert counted(look(scheduler, id_of(6))) == {"ada": 1, "roomy": 2}


def test_what_holds_the_job_itself_is_thought_lifted() -> None:
    scheduler, world = fresh()
    for tenant in ("bob", "ada", "ada"):
        Submit(tenant, "q", 0)(world)
    SetTenant("ada", paused=True)(world)
    SetQueue("q", paused=True)(world)
    outlook = look(scheduler, id_of(3))
    assert counted(outlook) == {"bob": 1, "ada": 1}
    assert outlook.standing.tenant.paused
    assert outlook.standing.is_queue_paused
    assert outlook.standing.bound is None


def test_a_held_lane_is_looked_at_as_if_it_returned_now() -> None:
    scheduler, world = fresh()
    for _ in range(3):
        Submit("ada", "q", 0)(world)
    SetTenant("ada", paused=True)(world)
    for _ in range(60):
        Submit("bob", "q", 0)(world)
    for _ in range(50):
        Claim("q")(world)
    # It returns a share below the clock, where bob stands: his next comes before ada's third.
    assert look(scheduler, id_of(3)).standing.virtual_time == scheduler.queue("q").clock - SHARE
    assert counted(look(scheduler, id_of(3))) == {"ada": 2, "bob": 1}


def test_the_weights_of_those_who_go_first_are_told() -> None:
    scheduler, world = fresh()
    SetTenant("bob", weight=3)(world)
    Submit("bob", "q", 0)(world)
    Submit("ada", "q", 0)(world)
    assert look(scheduler, id_of(2)).weights == {"bob": 3}


def test_a_changed_job_is_looked_at_as_it_is() -> None:
    scheduler, world = fresh()
    for _ in range(4):
        Submit("ada", "q", 5)(world)
    Reprioritize(3, 0)(world)
    Cancel(0)(world)
    assert counted(look(scheduler, id_of(4))) == {}
    assert counted(look(scheduler, id_of(3))) == {"ada": 2}


# -- what it costs


@pytest.fixture
def counted_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    count_keys(monkeypatch)


def crowded(jobs: int, lanes: int) -> Scheduler:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    waiting = [
        QueuedJob(id_of(seq), seq, f"tenant {seq % lanes}", "q", seq * 7 % 11, 1, seq * 31 % 1000, seq, 0)
        for seq in range(jobs)
    ]
    scheduler.load(Snapshot(jobs=waiting))
    return scheduler


def last_of(scheduler: Scheduler) -> QueuedJob:
    return max(scheduler.snapshot().jobs, key=lambda job: (job.priority, job.due_at))


@pytest.mark.usefixtures("counted_keys")
@pytest.mark.parametrize("lanes", [1, 100, 10_000])
def test_to_look_costs_what_is_looked_at_and_not_what_waits(lanes: int) -> None:
    scheduler, most = crowded(30_000, lanes), 50
    last = last_of(scheduler)
    with comparisons() as cost:
        outlook = look(scheduler, last.id, most)
    assert cost.count <= 4 * most + 40
    with comparisons() as cost:
        counted(outlook)
    assert cost.count <= 20 * most
    assert (outlook.ahead, outlook.is_exact) == (most, False)


def test_a_step_of_counting_is_bounded() -> None:
    scheduler = crowded(20_000, 10)
    outlook = look(scheduler, last_of(scheduler).id)
    more, steps = True, 0
    while more:
        before = outlook.ahead
        more = outlook.count(20)
        assert outlook.ahead - before <= 20
        steps += 1
    assert steps > 10
