"""Random days in a scheduler's life: the events that can happen, as data that hypothesis can shrink, and
a world that plays them on a scheduler or on a model of one."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Pick, QueuedJob

TENANTS = ("ada", "bob", "cyd")
QUEUES = ("q", "r")
T = TypeVar("T")

STEPS = (0, SHARE // 2, SHARE, 3 * SHARE + 1, 10**9 * SHARE)


def id_of(seq: int) -> str:
    """Of the job with this number: 32 hex digits, as all ids are."""
    return f"{seq:032x}"


def thorough(examples: int) -> settings:
    """The same examples on every run, as slow as they need to be."""
    return settings(derandomize=True, deadline=None, database=None, max_examples=examples)


class Order(Protocol):
    """What a scheduler and its models have in common."""

    def enqueue(
        self,
        *,
        job_id: str,
        seq: int,
        tenant: str,
        queue: str,
        priority: int,
        cost: int,
        due_at: int,
        submitted_at: int,
    ) -> QueuedJob: ...
    def pick(self, queue: str) -> Pick | None: ...
    def requeue(self, job: QueuedJob, charge: int) -> None: ...
    def end(self, tenant: str, queue: str, charge_back: int = 0) -> None: ...
    def withdraw(self, job_id: str) -> QueuedJob | None: ...
    def reprioritize(self, job_id: str, priority: int) -> QueuedJob | None: ...
    def set_tenant(self, name: str, *, weight: int, max_running: int | None, paused: bool) -> None: ...
    def set_queue(self, name: str, *, paused: bool) -> None: ...


@dataclass
class World:
    """An order, the jobs that wait in it and those that were picked and have not ended."""

    order: Order
    leased: list[Pick] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    submitted: int = 0

    def play_with(self, order: Order) -> World:
        """The same world around another order."""
        return World(order, list(self.leased), list(self.waiting), self.submitted)

    def twin(self) -> World:
        """A copy that shares nothing."""
        return deepcopy(self)


Answer: TypeAlias = QueuedJob | Pick | None
Event: TypeAlias = Callable[[World], Answer]


@dataclass(frozen=True)
class Submit:
    tenant: str
    queue: str
    priority: int
    cost: int = 1
    due: int = 0

    def __call__(self, world: World) -> QueuedJob:
        world.submitted += 1
        seq = world.submitted
        world.waiting.append(id_of(seq))
        return world.order.enqueue(
            job_id=id_of(seq),
            seq=seq,
            tenant=self.tenant,
            queue=self.queue,
            priority=self.priority,
            cost=self.cost,
            due_at=self.due,
            submitted_at=seq // 2,
        )


@dataclass(frozen=True)
class Claim:
    queue: str

    def __call__(self, world: World) -> Pick | None:
        pick = world.order.pick(self.queue)
        if pick is not None:
            world.waiting.remove(pick.job.id)
            world.leased.append(pick)
        return pick


@dataclass(frozen=True)
class Finish:
    which: int
    refund: bool = False

    def __call__(self, world: World) -> Pick | None:
        if not world.leased:
            return None
        pick = world.leased.pop(self.which % len(world.leased))
        world.order.end(pick.job.tenant, pick.job.queue, pick.charge if self.refund else 0)
        return pick


@dataclass(frozen=True)
class Requeue:
    which: int
    refund: bool = True

    def __call__(self, world: World) -> Pick | None:
        if not world.leased:
            return None
        pick = world.leased.pop(self.which % len(world.leased))
        world.waiting.append(pick.job.id)
        world.order.requeue(pick.job, pick.charge if self.refund else 0)
        return pick


@dataclass(frozen=True)
class Cancel:
    which: int

    def __call__(self, world: World) -> QueuedJob | None:
        if not world.waiting:
            return None
        return world.order.withdraw(world.waiting.pop(self.which % len(world.waiting)))


@dataclass(frozen=True)
class Reprioritize:
    which: int
    priority: int

    def __call__(self, world: World) -> QueuedJob | None:
        if not world.waiting:
            return None
        return world.order.reprioritize(world.waiting[self.which % len(world.waiting)], self.priority)


@dataclass(frozen=True)
class SetTenant:
    name: str
    weight: int = 1
    max_running: int | None = None
    paused: bool = False

    def __call__(self, world: World) -> None:
        world.order.set_tenant(self.name, weight=self.weight, max_running=self.max_running, paused=self.paused)


@dataclass(frozen=True)
class SetQueue:
    name: str
    paused: bool

    def __call__(self, world: World) -> None:
        world.order.set_queue(self.name, paused=self.paused)


def mostly(*choices: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of the choices by their weights. (`one_of` drops repeats, so it cannot weigh.)"""
    weighed = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(weighed).flatmap(lambda strategy: strategy)


def lists_of(events: st.SearchStrategy[T], longest: int) -> st.SearchStrategy[list[T]]:
    """Mostly long lists: left alone, hypothesis makes lists of five. The short ones are to shrink to."""
    return mostly(
        (1, st.lists(events, max_size=longest // 4)),
        (4, st.lists(events, min_size=longest // 2, max_size=longest)),
    )


_tenants = st.sampled_from(TENANTS)
_queues = mostly((4, st.just("q")), (1, st.just("r")))
_priorities = st.integers(0, 10)
_any = st.integers(0, 30)
_fixed: tuple[tuple[int, st.SearchStrategy[Event]], ...] = (
    (
        12,
        st.builds(
            Submit,
            _tenants,
            _queues,
            _priorities,
            cost=st.sampled_from((1, 1, 1, 2, 7)),
            due=st.integers(0, 3),
        ),
    ),
    (10, st.builds(Claim, _queues)),
    (3, st.builds(Finish, _any, refund=st.booleans())),
    (2, st.builds(Requeue, _any, refund=st.booleans())),
    (1, st.builds(Cancel, _any)),
)
_changes: tuple[tuple[int, st.SearchStrategy[Event]], ...] = (
    (2, st.builds(Reprioritize, _any, _priorities)),
    (
        2,
        st.builds(
            SetTenant,
            _tenants,
            weight=st.sampled_from((1, 2, 3, 7, 1000)),
            max_running=st.sampled_from((None, None, 3, 2, 1, 0)),
            paused=st.sampled_from((False, False, False, True)),
        ),
    ),
    (1, st.builds(SetQueue, _queues, paused=st.sampled_from((False, False, True)))),
)

fixed_settings = mostly(*_fixed)
"""Events while nobody changes a setting or a priority."""

any_event = mostly(*_fixed, *_changes)

days = lists_of(any_event, 80)
