"""A queue's lanes and the seven rules that move them (docs: the design, section 3). Each rule is a
method of its name; in which order an event applies them is the scheduler's affair."""

from __future__ import annotations

from dataclasses import dataclass

from app.scheduling.heap import IndexedHeap, Key
from app.scheduling.job import LOWEST_PRIORITY
from app.scheduling.journal import Journal, Touched
from app.scheduling.lanes import Lane
from app.scheduling.policies import SHARE, Ordering
from app.scheduling.records import QueuedJob, QueueState, QueueTime


@dataclass(frozen=True, slots=True)
class Books:
    """Where all queues write down what they change: to undo it, and so that SQL can follow."""

    journal: Journal
    lanes: Touched[Lane]
    queues: Touched[Queue]


class Queue:
    """The lanes of one queue; the pickable ones in a heap, their tenants' weights summed up.

    `clock` and `horizon` are in units, `step` is a priority step in units, `queued` counts the waiting
    jobs of all lanes, hidden ones too. Every method costs O(log lanes + log lane length) at most.
    """

    __slots__ = (
        "_books",
        "_ordering",
        "clock",
        "horizon",
        "name",
        "paused",
        "pickable",
        "pickable_weight",
        "queued",
        "since_move",
        "step",
    )

    def __init__(self, name: str, ordering: Ordering, step: int, books: Books) -> None:
        self.name = name
        self.clock = 0
        self.since_move = 0
        self.horizon = 0
        self.paused = False
        self.queued = 0
        self.pickable: IndexedHeap[Lane] = IndexedHeap()
        self.pickable_weight = 0
        self._ordering = ordering
        self.step = step
        self._books = books

    def put_in(self, lane: Lane, job: bytes) -> None:
        """Let `job` wait in `lane`."""
        self._books.journal.put_in(lane.jobs, job)
        self._books.journal.assign(self, "queued", self.queued + 1)

    def take_out(self, lane: Lane, job: bytes) -> None:
        """Let `job` wait in `lane` no longer."""
        self._books.journal.take_out(lane.jobs, job)
        self._books.journal.assign(self, "queued", self.queued - 1)

    def join(self, lane: Lane) -> None:
        """Rule 1, of a lane that gets its first queued job: idle time earns no credit."""
        self._set_virtual_time(lane, max(lane.virtual_time, self.clock))

    def return_lane(self, lane: Lane) -> None:
        """Rule 2, of a lane that is pickable again after a cap or a pause: its credit is bounded."""
        self._set_virtual_time(lane, self.returned_time(lane))

    def head(self, lane: Lane) -> QueuedJob:
        """The job of `lane` that goes first; `IndexError` if none waits."""
        return self._ordering.unpack(lane.jobs.first, lane.tenant.name, lane.queue)

    def returned_time(self, lane: Lane) -> int:
        """The virtual time that `lane`, which has jobs, would have if it returned now."""
        floor = self.clock - SHARE - self.step * self.head(lane).priority
        return max(lane.virtual_time, floor)

    def next_lane(self) -> Lane | None:
        """Rule 3: the lane to pick from, None if the queue is paused or no lane is pickable."""
        return self.pickable.peek() if self.pickable and not self.paused else None

    def move_clock(self, picked: Lane) -> None:
        """Rule 4, of a lane that is about to be charged and is still among the pickable.

        Besides following the picked lane, the clock runs by itself: a round over all weights takes it a
        share on. Otherwise a stream of new tenants, all joining at the clock, would hold it still.
        """
        if not self._ordering.keeps_time:
            return
        self._set_time("since_move", self.since_move + 1)
        if picked.virtual_time < self.clock:
            return
        drift = min(SHARE, self.since_move * SHARE // self.pickable_weight)
        clock = max(picked.virtual_time, self.clock + drift)
        if clock > self.clock:
            self._set_time("clock", clock)
            self._set_time("since_move", 0)

    def charge(self, lane: Lane, cost: int) -> int:
        """Rule 5: make `lane` pay for an attempt of a job; returns the charge in units."""
        charge = self._ordering.charge(cost, lane.tenant.weight)
        if charge:
            self._set_virtual_time(lane, lane.virtual_time + charge)
            self._set_time("horizon", max(self.horizon, lane.virtual_time))
        return charge

    def refund(self, lane: Lane, charge: int) -> None:
        """Rule 6: give `charge` units back, but no credit below the clock."""
        used = lane.virtual_time
        self._set_virtual_time(lane, max(used - charge, min(used, self.clock)))

    def catch_up_if_empty(self) -> None:
        """Rule 7, after a job has left: debts do not outlive the backlog."""
        if not self.queued:
            self._set_time("clock", max(self.clock, self.horizon))

    def fill(self, lane: Lane, jobs: list[bytes]) -> None:
        """Load the jobs that wait in `lane`, which is empty, in any order; never joins it."""
        lane.jobs.fill(jobs)
        self.queued += len(jobs)

    def show_all(self, lanes: list[Lane]) -> None:
        """Load which lanes are pickable, out of all that have jobs, in O(lanes).

        A step or a clock that was changed while nobody served may leave a lane with more credit than
        the rules ever give; it is raised to the most they do.
        """
        floor = self.clock - SHARE - self.step * LOWEST_PRIORITY
        pickable = [lane for lane in lanes if lane.is_pickable]
        for lane in pickable:
            self._set_virtual_time(lane, max(lane.virtual_time, floor))
        self.pickable.heapify((lane, self._lane_key(lane)) for lane in pickable)
        self.pickable_weight = sum(lane.tenant.weight for lane in pickable)

    def settle(self, lane: Lane) -> None:
        """Give `lane` its place in the heap, or none if it is not pickable, after anything has changed."""
        if not lane.is_pickable:
            self.hide(lane)
            return
        if lane in self.pickable:
            self._books.journal.rekey(self.pickable, lane, self._lane_key(lane))
        else:
            self._books.journal.push(self.pickable, lane, self._lane_key(lane))
            self._weigh(lane.tenant.weight)

    def hide(self, lane: Lane) -> None:
        """Take `lane` out of the heap if it is there; call it before its tenant's weight changes."""
        if lane in self.pickable:
            self._books.journal.remove(self.pickable, lane)
            self._weigh(-lane.tenant.weight)

    def effective_priority(self, lane: Lane, priority: int) -> int:
        """What a job of `priority` records that is queued behind all those in `lane`, once it has joined."""
        return self._ordering.effective_priority(
            priority,
            ahead=len(lane.jobs),
            weight=lane.tenant.weight,
            lead=lane.virtual_time - self.clock,
        )

    def time(self) -> QueueTime:
        """What SQL keeps of the queue's progress."""
        return QueueTime(self.name, self.clock, self.since_move, self.horizon)

    def state(self) -> QueueState:
        """What `Scheduler.load` takes to make this queue again."""
        return QueueState(self.name, self.clock, self.since_move, self.horizon, self.paused)

    def _lane_key(self, lane: Lane) -> Key:
        return self._ordering.lane_key(lane.virtual_time, self._ordering.form.key(lane.jobs.first))

    def _weigh(self, change: int) -> None:
        self._books.journal.assign(self, "pickable_weight", self.pickable_weight + change)

    def _set_virtual_time(self, lane: Lane, units: int) -> None:
        if units != lane.virtual_time:
            self._books.journal.assign(lane, "virtual_time", units)
            self._books.lanes.add(lane)

    def _set_time(self, name: str, value: int) -> None:
        if value != getattr(self, name):
            self._books.journal.assign(self, name, value)
            self._books.queues.add(self)
