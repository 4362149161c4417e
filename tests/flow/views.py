"""What a service holds in memory and what the database says, in one form, to be compared: with each other, or
with those of a twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import func, select

from app.clock import to_micros
from app.flow import look
from app.flow.core import Core
from app.scheduling.job import State
from app.scheduling.scheduler import QueuedJob
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings
from app.store.schema import jobs, lanes, queues, tenants
from app.store.session import Connection
from tests.flow.harness import Running, in_one_group

Clock = tuple[int, int, int, bool]
_NEVER_MOVED: Clock = (0, 0, 0, False)


@dataclass(frozen=True)
class View:
    """All that what comes out next, and what is answered, depends on. What equals nothing being there is left
    out: zeros, default settings, empty lanes at or behind their clock."""

    queued: Mapping[str, QueuedJob]
    clocks: Mapping[str, Clock]
    lanes: Mapping[tuple[str, str], int]
    running: Mapping[str, int]
    settings: Mapping[str, TenantSettings]
    tokens: Mapping[str, str]
    by_queue: Mapping[tuple[str, State], int]
    by_tenant: Mapping[tuple[str, State], int]
    queued_by_tenant: Mapping[tuple[str, str], int]
    queued_since: Mapping[str, list[tuple[int, int]]]


async def assert_memory_equals_sql(core: Core, *, knows_pending: bool = True) -> None:
    """Memory holds what the database says, and statistics say it too; but for how many are pending, if memory
    cannot know that because rows were typed by hand."""
    async with core.reading() as connection:
        written = await view_of_sql(connection)
    held = view_of_memory(core)
    if not knows_pending:
        written, held = _without_pending(written), _without_pending(held)
    assert held == written
    assert core.moves.mark() == 0
    stats = look.stats(core)
    states = Counter[State]()
    for (_, state), n in written.by_queue.items():
        states[state] += n
    if knows_pending:
        assert dict(stats.state_counts) == {state: states[state] for state in State}
        assert stats.total_jobs == states.total()
        assert _not_zero(core.counts.by_state) == _not_zero(states)
    assert stats.queue_depth == len(written.queued)
    assert dict(stats.tenant_counts) == dict(Counter(job.tenant for job in written.queued.values()))


def _without_pending(view: View) -> View:
    by_queue = {key: n for key, n in view.by_queue.items() if key[1] is not State.PENDING}
    by_tenant = {key: n for key, n in view.by_tenant.items() if key[1] is not State.PENDING}
    return replace(view, by_queue=by_queue, by_tenant=by_tenant)


def view_of_memory(core: Core) -> View:
    order, counts = core.order.snapshot(), core.counts
    queued = {job.id: job for job in order.jobs}
    clocks = {q.name: (q.clock, q.since_move, q.horizon, q.paused) for q in order.queues}
    settings = dict(core.admission.configured())
    for tenant in order.tenants:  # the door and the order know the same
        known = settings.get(tenant.name, DEFAULT_TENANT)
        assert (known.weight, known.max_running, known.paused) == (tenant.weight, tenant.max_running, tenant.paused)
    names = {tenant.name for tenant in order.tenants}
    assert {name for name, known in settings.items() if known != _only_at_the_door(known)} <= names
    return View(
        queued=queued,
        clocks={name: clock for name, clock in clocks.items() if clock != _NEVER_MOVED},
        lanes=_worth_knowing({(lane.queue, lane.tenant): lane.virtual_time for lane in order.lanes}, clocks, queued),
        running={tenant.name: tenant.running for tenant in order.tenants if tenant.running},
        settings=settings,
        tokens={job_id: lease.token for job_id, lease in core.leases._by_job.items()},
        by_queue=_not_zero(
            {(queue, state): counts.of_queue(queue)[state] for queue in counts.queues() for state in State}
        ),
        by_tenant=_not_zero(
            {(tenant, state): n for tenant, states in counts._by_tenant.items() for state, n in states.items()}
        ),
        queued_by_tenant=_not_zero(
            {(queue, tenant): n for queue in counts.queues() for tenant, n in counts.queued_by_tenant(queue).items()}
        ),
        queued_since={label: list(line) for label, line in core.queued_since._lines.items() if line},
    )


# Built once: they are asked thousands of times, and to build one takes longer than to run it.
_SETTINGS: Final = tuple(TenantSettings.__slots__)
_QUEUES: Final = select(queues)
_LANES: Final = select(lanes)
_TENANTS: Final = select(tenants.c.name, *(tenants.c[name] for name in _SETTINGS))
_LEASED: Final = select(jobs.c.id, jobs.c.tenant, jobs.c.token).where(
    jobs.c.state.in_([State.SCHEDULED, State.RUNNING])
)
_COUNTED: Final = select(jobs.c.queue, jobs.c.tenant, jobs.c.state, func.count()).group_by(
    jobs.c.queue, jobs.c.tenant, jobs.c.state
)


async def view_of_sql(connection: Connection) -> View:
    queued = {job.id: job for job in await _queued(connection)}
    clocks = {row[0]: _clock_of(row) for row in await connection.execute(_QUEUES)}
    written = {(row.queue, row.tenant): row.virtual_time for row in await connection.execute(_LANES)}
    rows = await connection.execute(_TENANTS)
    settings = {name: TenantSettings(**dict(zip(_SETTINGS, values, strict=True))) for name, *values in rows}
    leased = (await connection.execute(_LEASED)).all()
    by_queue, by_tenant, queued_by = Counter[Any](), Counter[Any](), Counter[Any]()
    for queue, tenant, state, n in await connection.execute(_COUNTED):
        by_queue[queue, state] += n
        by_tenant[tenant, state] += 0 if state.is_final else n
        queued_by[queue, tenant] += n if state is State.QUEUED else 0
    return View(
        queued=queued,
        clocks={name: clock for name, clock in clocks.items() if clock != _NEVER_MOVED},
        lanes=_worth_knowing(written, clocks, queued),
        running=Counter(row.tenant for row in leased),
        settings={name: known for name, known in settings.items() if known != DEFAULT_TENANT},
        tokens={row.id: row.token for row in leased},
        by_queue=_not_zero(by_queue),
        by_tenant=_not_zero(by_tenant),
        queued_by_tenant=_not_zero(queued_by),
        queued_since=await _queued_since(connection),
    )


async def _queued_since(connection: Connection) -> dict[str, list[tuple[int, int]]]:
    """By queue, the longest waiting first: the tests have fewer queues than there are labels for."""
    waiting = select(jobs.c.queue, jobs.c.seq, jobs.c.queued_at).where(jobs.c.state == State.QUEUED)
    since: dict[str, list[tuple[int, int]]] = {}
    for queue, seq, queued_at in await connection.execute(waiting.order_by(jobs.c.queued_at, jobs.c.seq)):
        since.setdefault(queue, []).append((to_micros(queued_at), seq))
    return since


async def _queued(connection: Connection) -> list[QueuedJob]:
    columns = [jobs.c[name] for name in QueuedJob._fields]
    rows = await connection.execute(select(*columns).where(jobs.c.state == State.QUEUED))
    known = [dict(row._mapping) for row in rows]
    return [
        QueuedJob(**{**row, "due_at": to_micros(row["due_at"]), "submitted_at": to_micros(row["submitted_at"])})
        for row in known
    ]


def _clock_of(row: Any) -> Clock:
    return (row.clock, row.since_move, row.horizon, row.paused)


def _only_at_the_door(settings: TenantSettings) -> TenantSettings:
    """The same without what the order has to know."""
    return replace(settings, weight=1, max_running=None, paused=False)


def _worth_knowing(
    times: Mapping[tuple[str, str], int], clocks: Mapping[str, Clock], queued: Mapping[str, QueuedJob]
) -> dict[tuple[str, str], int]:
    waiting = {(job.queue, job.tenant) for job in queued.values()}
    return {
        lane: time for lane, time in times.items() if lane in waiting or time > clocks.get(lane[0], _NEVER_MOVED)[0]
    }


def _not_zero(counts: Mapping[Any, int]) -> dict[Any, int]:
    return {key: n for key, n in counts.items() if n != 0}


# --- Twins -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Portrait:
    """A service without what chance and the clock have given its jobs: they go by the names of their test suites,
    which must differ."""

    queued: Mapping[str, tuple[Any, ...]]
    clocks: Mapping[str, Clock]
    lanes: Mapping[tuple[str, str], int]
    running: Mapping[str, int]
    settings: Mapping[str, TenantSettings]
    leased: frozenset[str]
    by_queue: Mapping[tuple[str, State], int]
    by_tenant: Mapping[tuple[str, State], int]


async def portrait(core: Core) -> Portrait:
    """What two services that have seen the same must have alike."""
    view, names = view_of_memory(core), await names_of(core)
    waiting = sorted(view.queued.values(), key=lambda job: (job.due_at, job.seq))
    return Portrait(
        queued={
            names[job.id]: (place, job.tenant, job.queue, job.priority, job.cost, job.effective_priority)
            for place, job in enumerate(waiting)
        },
        clocks=view.clocks,
        lanes=view.lanes,
        running=view.running,
        settings=view.settings,
        leased=frozenset(names[job_id] for job_id in view.tokens),
        by_queue=view.by_queue,
        by_tenant=view.by_tenant,
    )


async def names_of(core: Core) -> dict[str, str]:
    """The test suites of all jobs by their ids."""
    async with core.reading() as connection:
        return {row.id: row.test_suite for row in await connection.execute(select(jobs.c.id, jobs.c.test_suite))}


async def drained(running: Running, *queues: str) -> list[tuple[str, int | None, int | None]]:
    """All that comes out, in few transactions: name, effective priority and charge. What a cap holds back comes
    once the rest is completed."""
    out = []
    while claimed := await running.claim(1000, *(queues or ("default",)), start=True):
        out += [(job.test_suite, job.effective_priority, job.charge) for job in claimed]
        await in_one_group(running.core, *(running.complete(job) for job in claimed))
    return out
