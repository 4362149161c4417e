"""A rolled back change never happened, and what SQL has to write is told once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Policy, QueueTime, Scheduler
from tests.scheduling.portrait import portrait
from tests.scheduling.workload import (
    QUEUES,
    TENANTS,
    Event,
    SetTenant,
    Submit,
    World,
    any_event,
    days,
    id_of,
    lists_of,
    thorough,
)

short_days = lists_of(any_event, 30)


def play(world: World, day: list[Event]) -> list[object]:
    return [event(world) for event in day]


@thorough(130)
@given(st.sampled_from(Policy), days, short_days, short_days)
def test_a_rolled_back_change_never_happened(
    policy: Policy, before: list[Event], undone: list[Event], after: list[Event]
) -> None:
    scheduler = Scheduler(policy, SHARE)
    world = World(scheduler)
    play(world, before)
    twin = world.twin()
    was = portrait(scheduler)

    scheduler.begin()
    play(world.play_with(scheduler), undone)
    scheduler.rollback()

    assert portrait(scheduler) == was
    assert play(world, after) == play(twin, after)


@thorough(130)
@given(days, short_days, short_days, short_days, short_days, st.booleans())
def test_a_savepoint_undoes_what_came_after_it(
    before: list[Event],
    kept: list[Event],
    undone: list[Event],
    undone_too: list[Event],
    after: list[Event],
    taken: bool,  # noqa: FBT001 - hypothesis hands it over
) -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    play(world, before)
    twin = world.twin()
    at_begin = portrait(scheduler)

    scheduler.begin()
    play(world, kept)
    play(twin, kept)
    at_outer = portrait(scheduler)
    outer = scheduler.savepoint()
    speculation = world.play_with(scheduler)
    play(speculation, undone)
    at_inner = portrait(scheduler)
    inner = scheduler.savepoint()
    if taken:
        scheduler.take_dirty()
    play(speculation, undone_too)
    scheduler.rollback_to(inner)
    assert portrait(scheduler) == at_inner
    scheduler.rollback_to(outer)
    assert portrait(scheduler) == at_outer
    assert play(world.play_with(scheduler), after) == play(twin.twin(), after)
    scheduler.rollback_to(outer)
    scheduler.commit()

    assert portrait(scheduler) == at_outer
    assert play(world, after) == play(twin, after)
    assert kept or at_begin == at_outer


@thorough(120)
@given(days, short_days)
def test_what_is_dirty_is_what_differs(before: list[Event], changed: list[Event]) -> None:
    """SQL that writes only what is dirty always holds what memory holds."""
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    lanes: dict[tuple[str, str], int] = {}
    queues: dict[str, QueueTime] = {}

    def write() -> None:
        dirty_lanes, dirty_queues = scheduler.take_dirty()
        assert len(dirty_lanes) == len({(queue, tenant) for queue, tenant, _ in dirty_lanes})
        lanes.update({(queue, tenant): units for queue, tenant, units in dirty_lanes})
        queues.update({time.queue: time for time in dirty_queues})

    def assert_written() -> None:
        snapshot = scheduler.snapshot()
        assert lanes == {(lane.queue, lane.tenant): lane.virtual_time for lane in snapshot.lanes}
        assert queues == {
            state.name: (state.name, state.clock, state.since_move, state.horizon) for state in snapshot.queues
        }

    for event in before:
        event(world)
        write()
        assert_written()
    scheduler.begin()
    play(world.play_with(scheduler), changed)
    scheduler.rollback()
    assert scheduler.take_dirty() == ([], [])
    assert_written()
    scheduler.begin()
    play(world, changed)
    write()
    scheduler.commit()
    assert_written()


def urgent(tenant: str) -> Submit:
    return Submit(tenant, "q", 0)


def test_dirt_from_before_survives_a_rollback_that_had_taken_it() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    urgent("ada")(world)
    scheduler.begin()
    scheduler.take_dirty()
    scheduler.pick("q")
    scheduler.rollback()
    assert scheduler.take_dirty() == ([("q", "ada", 0)], [("q", 0, 0, 0)])
    assert scheduler.take_dirty() == ([], [])


def test_journals_do_not_nest_but_savepoints_do() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.begin()
    with pytest.raises(RuntimeError, match="open already"):
        scheduler.begin()
    outer = scheduler.savepoint()
    urgent("ada")(World(scheduler))
    inner = scheduler.savepoint()
    scheduler.rollback_to(outer)
    with pytest.raises(RuntimeError, match="rolled back already"):
        scheduler.rollback_to(inner)
    scheduler.rollback_to(outer)
    scheduler.commit()


@pytest.mark.parametrize("name", ["commit", "rollback", "savepoint"])
def test_without_begin_there_is_nothing_to_end(name: str) -> None:
    with pytest.raises(RuntimeError, match="no journal is open"):
        getattr(Scheduler(Policy.PENALTY, SHARE), name)()


def test_a_refused_event_changes_nothing() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    job = urgent("ada")(world)
    was = portrait(scheduler)
    with pytest.raises(ValueError, match="already queued"):
        scheduler.requeue(job, 5)
    with pytest.raises(ValueError, match="already queued"):
        urgent("bob")(World(scheduler))
    assert portrait(scheduler) == was


def test_a_proposal_whose_row_is_lost_is_undone_and_made_again() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    world = World(scheduler)
    for tenant in ("ada", "ada", "bob"):
        urgent(tenant)(world)
    scheduler.begin()
    mark = scheduler.savepoint()
    lost = scheduler.pick("q")
    assert lost is not None
    scheduler.rollback_to(mark)
    assert scheduler.withdraw(lost.job.id) == lost.job
    again = scheduler.pick("q")
    scheduler.commit()
    assert again is not None
    assert again.job.id == id_of(2)
    assert (scheduler.running("ada"), scheduler.queued_in("q")) == (1, 1)


def test_unknown_names_read_as_untouched() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    scheduler.set_tenant("ada", weight=1, max_running=None, paused=False)
    scheduler.set_queue("q", paused=False)
    scheduler.end("ada", "q")
    assert scheduler.pick("q") is None
    assert scheduler.withdraw(id_of(1)) is None
    assert scheduler.reprioritize(id_of(1), 3) is None
    assert scheduler.lane("q", "ada") is None
    assert not scheduler.can_pick("q")
    assert scheduler.queue("q").clock == 0
    assert scheduler.tenant("ada").weight == 1
    assert portrait(scheduler) == portrait(Scheduler(Policy.VIRTUAL_TIME, SHARE))


def test_settings_are_read_back() -> None:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    SetTenant("ada", weight=3, max_running=2, paused=True)(World(scheduler))
    scheduler.set_queue("q", paused=True)
    state = scheduler.tenant("ada")
    assert (state.weight, state.max_running, state.paused) == (3, 2, True)
    assert scheduler.queue("q").paused
    assert {*TENANTS, *QUEUES} >= {"ada", "q"}
