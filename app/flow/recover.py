"""The service comes up, or has lost track of a commit: memory is read from the database as it is written,
so that what comes out next is what would have come out had nothing happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from app.clock import to_micros
from app.events import Recovered
from app.flow.core import Core, seconds
from app.scheduling.job import Job, State
from app.scheduling.leases import Lease, Leases
from app.scheduling.scheduler import LaneTime, QueuedJob, QueueState, Snapshot, TenantState
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings
from app.store import jobs, queues, tenants
from app.store.answers import SEVER_SEC
from app.store.session import Connection

LONGEST_LEASE_SEC: Final = 3600
"""However far ahead the wall clock may stand: no lease is longer."""

BEATS_IN_A_LEASE: Final = 3
"""A worker beats every third of its lease; that is what a lease still lasts, at least, after a start."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What the database holds of all that memory needs."""

    settings: dict[str, TenantSettings]
    queues: list[QueueState]
    lanes: list[LaneTime]
    queued: list[QueuedJob]
    queued_since: list[tuple[str, str, datetime]]
    leased: list[Job]
    pending: list[tuple[str, str, State, int]]
    by_queue: list[tuple[str, State, int]]


async def recover(core: Core) -> None:
    """Fill memory from the database. Raises `DispatchLost`, and what the database raises if it is away."""
    began = core.clock.monotonic()
    async with core.engines.writer.begin() as connection:
        # The proof waits for the dispatcher's row, so a transaction of ours that is still being committed
        # is over before anything is read.
        async with core.engines.writer_answers.required(SEVER_SEC):
            await core.dispatcher.prove(connection, core.clock.now())
        written = await _read(connection)
    _fill_order(core, written)
    _fill_counts(core, written)
    _fill_leases(core, written.leased)
    core.queue_labels.meet(_busiest(written))
    core.queued_since.load(written.queued_since)
    for name in set(core.admission.configured()) - set(written.settings):
        core.admission.configure(name, DEFAULT_TENANT)
    for name, settings in written.settings.items():
        core.admission.configure(name, settings)
    core.known_tenants.clear()
    core.known_queues.clear()
    core.to_recount.clear()
    core.emit(
        Recovered(
            queued=len(written.queued),
            pending=sum(n for *_, n in written.pending),
            leased=len(written.leased),
            policy=core.order.policy,
            took_ms=(core.clock.monotonic() - began) * 1000,
        )
    )


async def _read(connection: Connection) -> _Written:
    queued = await jobs.queued(connection)
    return _Written(
        settings={row.name: row.settings for row in await tenants.configured(connection)},
        queues=await queues.every(connection),
        lanes=await queues.every_lane(connection),
        queued=[_queued_job(row) for row in queued],
        queued_since=[(row.queue, row.id, row.queued_at) for row in queued],
        leased=await jobs.leased(connection),
        pending=[(queue, tenant, State.PENDING, n) for queue, tenant, n in await jobs.count_pending(connection)],
        by_queue=[(queue, State(state), n) for queue, state, n in await jobs.count_by_queue_and_state(connection)],
    )


def _queued_job(row: Any) -> QueuedJob:
    job_id, seq, tenant, queue, priority, cost, due_at, submitted_at, effective_priority, _ = row
    return QueuedJob(
        id=job_id,
        seq=seq,
        tenant=tenant,
        queue=queue,
        priority=priority,
        cost=cost,
        due_at=to_micros(due_at),
        submitted_at=to_micros(submitted_at),
        effective_priority=effective_priority,
    )


def _busiest(written: _Written) -> list[str]:
    """All queues that have jobs: first those with most that wait, and of the others those with most."""
    waiting, all_jobs = Counter(job.queue for job in written.queued), Counter[str]()
    for queue, _, n in written.by_queue:
        all_jobs[queue] += n
    return sorted(all_jobs, key=lambda queue: (-waiting[queue], -all_jobs[queue]))


def _fill_order(core: Core, written: _Written) -> None:
    running = Counter(job.tenant for job in written.leased)
    names = written.settings.keys() | running.keys()
    states = []
    for name in names:
        settings = written.settings.get(name, DEFAULT_TENANT)
        states.append(TenantState(name, settings.weight, settings.max_running, settings.paused, running[name]))
    core.order.load(Snapshot(tenants=states, queues=written.queues, lanes=written.lanes, jobs=written.queued))


def _fill_counts(core: Core, written: _Written) -> None:
    unfinished = Counter((job.queue, job.tenant, job.state) for job in written.leased)
    unfinished.update((job.queue, job.tenant, State.QUEUED) for job in written.queued)
    counted = [(queue, tenant, state, n) for (queue, tenant, state), n in unfinished.items()]
    core.counts.load(written.by_queue, [*written.pending, *counted])


def _fill_leases(core: Core, leased: list[Job]) -> None:
    known, core.leases = core.leases, Leases()
    for job in leased:
        core.leases.put(lease_as_written(core, job, known.get(job.id)))


def lease_as_written(core: Core, job: Job, known: Lease | None = None) -> Lease:
    """The lease that a job's row says. One that memory knows, from before a doubtful commit, keeps its ends by the
    monotonic clock. Of any other the end is judged by the wall clock, which may have jumped. It lasts a heartbeat at
    least, so that no worker loses one because the service was away."""
    now, mono = core.clock.now(), core.clock.monotonic_ns()
    soonest = mono + seconds((job.lease_sec or 0) / BEATS_IN_A_LEASE)
    lease = known
    if lease is None or lease.token != job.token:
        left = (job.lease_expires_at - now).total_seconds() if job.lease_expires_at else 0
        lease = Lease(job.id, job.token or "", job.seq, mono + seconds(min(left, LONGEST_LEASE_SEC)))
    timeout_at = lease.timeout_at
    if timeout_at is None and job.timeout_sec is not None and job.started_at is not None:
        timeout_at = mono + seconds(job.timeout_sec - (now - job.started_at).total_seconds())
    return replace(
        lease,
        expires_at=max(soonest, lease.expires_at),
        timeout_at=None if timeout_at is None else max(soonest, timeout_at),
    )
