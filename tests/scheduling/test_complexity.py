"""What a pick costs, counted in comparisons of heap keys and not in seconds."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from math import log2

import pytest

from app.scheduling.records import QueuedJob
from app.scheduling.scheduler import SHARE, LaneTime, Policy, QueueState, Scheduler, Snapshot
from tests.scheduling.counting import comparisons, count_keys
from tests.scheduling.workload import id_of


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    count_keys(monkeypatch)


@dataclass(frozen=True)
class Size:
    jobs: int
    lanes: int

    @property
    def logarithms(self) -> float:
        return log2(self.lanes) + log2(self.jobs / self.lanes)


SMALL, LARGE = Size(jobs=1_000, lanes=100), Size(jobs=100_000, lanes=10_000)


def loaded(size: Size) -> Scheduler:
    scheduler = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    jobs = [
        QueuedJob(
            id=id_of(seq),
            seq=seq,
            tenant=f"tenant {seq % size.lanes}",
            queue="q",
            priority=seq * 7 % 11,
            cost=1 + seq % 3,
            due_at=seq * 31 % 1_000,
            submitted_at=seq,
            effective_priority=0,
        )
        for seq in range(size.jobs)
    ]
    lanes = [LaneTime("q", f"tenant {lane}", lane % 17 * SHARE // 5) for lane in range(size.lanes)]
    scheduler.load(Snapshot(queues=[QueueState("q", 0, 0, 0, paused=False)], lanes=lanes, jobs=jobs))
    return scheduler


def most_comparisons_of_a_pick(scheduler: Scheduler) -> int:
    most = 0
    for _ in range(300):
        with comparisons() as cost:
            assert scheduler.pick("q") is not None
        most = max(most, cost.count)
    return most


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_pick_costs_two_sinkings(size: Size) -> None:
    most = most_comparisons_of_a_pick(loaded(size))
    assert 0 < most <= 2 * size.logarithms + 8


@pytest.mark.usefixtures("counted")
def test_a_hundred_times_the_jobs_cost_a_few_comparisons_more() -> None:
    small, large = (most_comparisons_of_a_pick(loaded(size)) for size in (SMALL, LARGE))
    assert large - small <= 2 * log2(100) + 4


@pytest.mark.usefixtures("counted")
def test_loading_costs_a_few_comparisons_a_job() -> None:
    with comparisons() as cost:
        loaded(LARGE)
    assert cost.count <= 3 * LARGE.jobs


@pytest.mark.usefixtures("counted")
def test_an_event_of_one_lane_costs_no_more_than_a_pick() -> None:
    scheduler = loaded(LARGE)
    pick = scheduler.pick("q")
    assert pick is not None
    limit = 4 * LARGE.logarithms + 16
    with comparisons() as cost:
        scheduler.requeue(pick.job, pick.charge)
    assert cost.count <= limit
    with comparisons() as cost:
        scheduler.reprioritize(id_of(500), 0)
    assert cost.count <= limit
    with comparisons() as cost:
        scheduler.set_tenant("tenant 77", weight=5, max_running=None, paused=False)
    assert cost.count <= limit
    with comparisons() as cost:
        scheduler.withdraw(id_of(500))
    assert cost.count <= limit


@pytest.mark.usefixtures("counted")
def test_undoing_costs_about_what_doing_did() -> None:
    scheduler = loaded(LARGE)
    with comparisons() as doing:
        scheduler.begin()
        for _ in range(100):
            scheduler.pick("q")
    with comparisons() as undoing:
        scheduler.rollback()
    assert undoing.count <= 2 * doing.count


def test_a_waiting_job_takes_little_memory_that_the_collector_need_not_look_at() -> None:
    size = Size(jobs=80_000, lanes=800)
    loaded(Size(jobs=1, lanes=1))  # what is made once
    collector, objects = gc.isenabled(), len(gc.get_objects())
    gc.disable()
    tracemalloc.start()
    try:
        scheduler = loaded(size)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        objects = len(gc.get_objects()) - objects
    finally:
        tracemalloc.stop()
        if collector:
            gc.enable()
    assert scheduler.queued_in("q") == size.jobs
    assert taken / size.jobs < 230
    assert objects < 15 * size.lanes < size.jobs
