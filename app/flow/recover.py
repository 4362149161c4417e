"""The service comes up, or has lost track of a commit: memory is read from the database as it is written,
so that what comes out next is what would have come out had nothing happened."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Self

from app.clock import Clock
from app.events import Recovered
from app.flow.core import Core, kept, seconds
from app.flow.watch.queued_since import Waits
from app.scheduling.job import Job, State
from app.scheduling.leases import Lease, Leases
from app.scheduling.scheduler import Scheduler, Snapshot, TenantState
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings
from app.store import jobs, queues, tenants
from app.store.answers import SEVER_SEC
from app.store.session import Connection

LONGEST_LEASE_SEC: Final = 3600
"""However far ahead the wall clock may stand: no lease is longer."""

BEATS_IN_A_LEASE: Final = 3
"""A worker beats every third of its lease; that is what a lease still lasts, at least, after a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What the database holds of all that memory needs; of what is queued, the order that it makes, and since when."""

    settings: dict[str, TenantSettings]
    leased: list[Job]
    pending: list[tuple[str, str, State, int]]
    finished: list[tuple[str, State, int]]
    order: Scheduler
    waits: dict[str, Waits]


async def recover(core: Core, *, after_doubt: bool = False) -> None:
    """Fill memory from the database. `after_doubt` says that a transaction of ours may be on its way to it still.
    Raises `DispatchLost`, and what the database raises if it is away."""
    began = core.clock.monotonic()
    async with core.engines.writer.begin() as connection:
        async with core.engines.writer_answers.required(SEVER_SEC):
            if after_doubt:
                await core.dispatcher.outdate(connection)
            await core.dispatcher.prove(connection, core.clock.now())
        with _not_collecting():
            written = await _read(core, connection)
        # To read a million jobs may take longer than a claim lasts, and to put them into order as long again.
        await core.dispatcher.prove(connection, core.clock.now(), more_sec=core.clock.monotonic() - began)
    core.dispatcher.renewed()
    written.order.end_load()  # outside, for it may take seconds, and Postgres ends a transaction that stands still
    core.counts.load(written.finished, _unfinished(written))
    core.order.become(written.order)
    _fill_leases(core, written.leased)
    core.queue_labels.meet(_busiest(core))
    core.queued_since.load(written.waits)
    for name in set(core.admission.configured()) - set(written.settings):
        core.admission.configure(name, DEFAULT_TENANT)
    for name, settings in written.settings.items():
        core.admission.configure(name, settings)
    core.known_tenants.clear()
    core.known_queues.clear()
    core.to_recount.clear()
    core.emit(
        Recovered(
            queued=core.counts.by_state[State.QUEUED],
            pending=sum(n for *_, n in written.pending),
            leased=len(written.leased),
            policy=core.order.policy,
            took_ms=(core.clock.monotonic() - began) * 1000,
        )
    )


@contextmanager
def _not_collecting() -> Iterator[None]:
    """What is read is no garbage. To look through it for cycles again and again would take a fifth of a start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _read(core: Core, connection: Connection) -> _Written:
    settings = {row.name: row.settings for row in await tenants.configured(connection)}
    leased = await jobs.leased(connection)
    order = core.order.fresh()
    order.begin_load(
        Snapshot(
            tenants=_tenants(settings, leased),
            queues=await queues.every(connection),
            lanes=await queues.every_lane(connection),
        )
    )
    waits = await _read_queued(connection, order)
    return _Written(
        settings=settings,
        leased=leased,
        pending=[(queue, tenant, State.PENDING, n) for queue, tenant, n in await jobs.count_pending(connection)],
        finished=[(queue, State(state), n) for queue, state, n in await jobs.count_finished(connection)],
        order=order,
        waits=waits,
    )


async def _read_queued(connection: Connection, order: Scheduler) -> dict[str, Waits]:
    """Load what is queued into `order`, some at a time; since when it is, by queue."""
    waits = defaultdict[str, Waits](Waits)
    async with aclosing(jobs.queued(connection)) as slices:
        async for some, since in slices:
            order.load_jobs(some)
            for job, moment in zip(some, since, strict=True):
                waits[job[3]].append(moment, job[1])
    return waits


def _tenants(settings: Mapping[str, TenantSettings], leased: Iterable[Job]) -> Iterator[TenantState]:
    running = Counter(job.tenant for job in leased)
    for name in settings.keys() | running.keys():
        known = settings.get(name, DEFAULT_TENANT)
        yield TenantState(name, known.weight, known.max_running, known.paused, running[name])


def _unfinished(written: _Written) -> list[tuple[str, str, State, int]]:
    """(queue, tenant, state, how many jobs)."""
    leased = Counter((job.queue, job.tenant, job.state) for job in written.leased)
    queued = [(queue, tenant, State.QUEUED, n) for queue, tenant, n in written.order.queued_by_lane()]
    return [*written.pending, *queued, *((queue, tenant, state, n) for (queue, tenant, state), n in leased.items())]


def _busiest(core: Core) -> list[str]:
    """All queues that have jobs: first those with most that wait, and of the others those with most."""
    counted = {queue: core.counts.of_queue(queue) for queue in core.counts.queues()}
    return sorted(counted, key=lambda queue: (-counted[queue][State.QUEUED], -counted[queue].total()))


def _fill_leases(core: Core, leased: list[Job]) -> None:
    known, core.leases = core.leases, Leases()
    present = Present.of(core.clock)  # one for all: they end in the order in which their rows say it
    for job in leased:
        core.leases.put(lease_as_written(job, present, known.get(job.id)))


class Present(NamedTuple):
    """One moment by both clocks."""

    wall: datetime
    monotonic_ns: int

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """This moment."""
        return cls(clock.now(), clock.monotonic_ns())


def lease_as_written(job: Job, present: Present, known: Lease | None = None) -> Lease:
    """The lease that a job's row says. One that memory knows, from before a doubtful commit, keeps its ends by the
    monotonic clock. Of any other the end is judged by the wall clock, which may have jumped. It lasts a heartbeat at
    least, so that no worker loses one because the service was away."""
    now, mono = present
    soonest = mono + seconds((job.lease_sec or 0) / BEATS_IN_A_LEASE)
    lease = known
    if lease is None or lease.token != job.token:
        left = (job.lease_expires_at - now).total_seconds() if job.lease_expires_at else 0
        lease = Lease(job.id, job.token or "", job.seq, mono + seconds(min(left, LONGEST_LEASE_SEC)))
    timeout_at = lease.timeout_at
    if timeout_at is None and job.timeout_sec is not None and job.started_at is not None:
        timeout_at = mono + seconds(job.timeout_sec - (now - job.started_at).total_seconds())
    return lease._replace(
        expires_at=max(soonest, lease.expires_at),
        job=kept(job),
        timeout_at=None if timeout_at is None else max(soonest, timeout_at),
    )
