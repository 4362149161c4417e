"""What an audit does to the order: it can be undone, and leaves an order that is like one that was loaded so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.scheduler import SHARE, Policy, QueuedJob, Scheduler
from tests.scheduling.portrait import portrait
from tests.scheduling.workload import QUEUES, TENANTS, Event, World, days, id_of, thorough

Mend = tuple[str, int, int]
mends = st.lists(
    st.tuples(
        st.sampled_from(("adopt new", "adopt otherwise", "adopt another", "set running", "drop", "rewrite")),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    min_size=1,
    max_size=12,
)


def do(order: Scheduler, waiting: list[str], seq: int, mend: Mend) -> None:
    """One thing that an audit may have to do; `seq` is of a job that nobody knows."""
    kind, which, n = mend
    tenant, queue = TENANTS[which % len(TENANTS)], QUEUES[which % len(QUEUES)]
    known = order.queued_job(waiting[which % len(waiting)]) if waiting else None
    new = QueuedJob(f"{1 << 64 | seq:032x}", seq, tenant, queue, n, 1, due_at=n, submitted_at=n, effective_priority=n)
    match kind:
        case "adopt new":
            order.adopt(new)
        case "adopt otherwise" if known is not None:
            order.adopt(known._replace(priority=n, effective_priority=n))
        case "adopt another" if known is not None:
            order.adopt(new._replace(id=known.id))
        case "set running":
            order.set_running(tenant, n % 4)
        case "drop":
            waits_or_runs = order.running(tenant) or any(order.queued_of(name, tenant) for name in QUEUES)
            assert order.drop_tenant(tenant) == (not waits_or_runs)
        case "rewrite":
            order.rewrite_lane(queue, tenant)
            order.rewrite_queue(queue)


def mended(world: World, order: Scheduler, what: list[Mend]) -> None:
    for n, each in enumerate(what):
        do(order, world.waiting, 1000 + n, each)


@thorough(60)
@given(st.sampled_from(Policy), days, mends)
def test_it_can_be_undone(policy: Policy, before: list[Event], what: list[Mend]) -> None:
    order = Scheduler(policy, SHARE)
    world = World(order)
    for event in before:
        event(world)
    was = portrait(order)

    order.begin()
    mended(world, order, what)
    order.rollback()

    assert portrait(order) == was


@thorough(60)
@given(st.sampled_from(Policy), days, mends)
def test_it_leaves_an_order_like_one_that_was_loaded(policy: Policy, before: list[Event], what: list[Mend]) -> None:
    order = Scheduler(policy, SHARE)
    world = World(order)
    for event in before:
        event(world)
    mended(world, order, what)
    loaded = Scheduler(policy, SHARE)

    loaded.load(order.snapshot())

    for queue in QUEUES:
        while (picked := order.pick(queue)) is not None:
            assert loaded.pick(queue) == picked
        assert loaded.pick(queue) is None
        assert loaded.queue(queue) == order.queue(queue)


def test_what_is_rewritten_is_told_to_sql_once() -> None:
    order = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    order.adopt(QueuedJob(id_of(1), 1, "acme", "default", 0, 1, due_at=0, submitted_at=0, effective_priority=0))
    order.take_dirty()
    assert not order.has_unwritten

    order.rewrite_lane("default", "acme")
    order.rewrite_lane("default", "acme")
    order.rewrite_lane("default", "nobody")
    order.rewrite_queue("default")
    order.rewrite_queue("new")

    assert order.has_unwritten
    lanes, queues = order.take_dirty()
    assert [(lane.queue, lane.tenant) for lane in lanes] == [("default", "acme")]
    assert [time.queue for time in queues] == ["default", "new"]


def test_a_lane_that_is_adopted_into_joins_at_the_clock() -> None:
    """Nobody earns credit by typing."""
    order = Scheduler(Policy.VIRTUAL_TIME, SHARE)
    job = QueuedJob(id_of(1), 1, "acme", "default", 0, 1, due_at=0, submitted_at=0, effective_priority=0)
    for n in range(5):
        order.adopt(job._replace(id=id_of(n + 1), seq=n + 1))
    for _ in range(4):
        order.pick("default")

    order.adopt(job._replace(id=id_of(9), seq=9, tenant="late"))

    late = order.lane("default", "late")
    assert late is not None
    assert late.virtual_time == order.queue("default").clock > 0
