"""Everything an operator wants on one screen. Out of memory but for a few rows found by index, so that it costs the
same however long the history is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.errors import NotFound
from app.flow.core import Core
from app.flow.look import JobFilter, list_jobs
from app.flow.replicas import list_replicas
from app.flow.watch.last_hour import Minute, Shares, Waits
from app.scheduling.job import Job, State
from app.store import jobs, queues
from app.store.replicas import Seen

SHOWN_QUEUES: Final = 20
SHOWN_TENANTS: Final = 20
SHOWN_WORKERS: Final = 20
SHOWN_JOBS: Final = 10


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue as it stands."""

    name: str
    paused: bool
    pending: int
    queued: int
    running: int


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A tenant as it stands, and its shares of all that was given out in the last hour, 0-1; None if nothing was."""

    name: str
    weight: int
    paused: bool
    max_running: int | None
    pending: int
    queued: int
    running: int
    due: float | None
    given: float | None


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker: how many leases it holds, the oldest since when, and whether it waits for a job."""

    name: str
    leases: int
    oldest: datetime | None
    waits: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """How the service stands at `at`. The figures of the last hour begin at `since`; `tenant_count` and the like are
    how many there are in all, of which the busiest are listed."""

    at: datetime
    since: datetime
    states: Mapping[State, int]
    queues: Sequence[QueueLine]
    queue_count: int
    tenants: Sequence[TenantLine]
    tenant_count: int
    workers: Sequence[WorkerLine]
    worker_count: int
    minutes: Sequence[Minute]
    waits: Waits
    newest: Sequence[Job]
    longest_queued: Sequence[Job]
    replicas: Sequence[Seen]


async def overview(core: Core) -> Overview:
    """How the service stands. Raises `Unavailable`."""
    lines, queue_count = await _queues(core)
    workers, worker_count = await _workers(core)
    newest = await list_jobs(core, JobFilter(limit=SHOWN_JOBS))
    minutes, waits = core.last_hour.minutes(), Waits()
    for minute in minutes:
        waits.join(minute.waits)
    return Overview(
        at=core.clock.now(),
        since=core.last_hour.since,
        states=core.counts.by_state.copy(),  # the page is written in a thread
        queues=lines,
        queue_count=queue_count,
        tenants=_tenants(core),
        tenant_count=core.counts.tenants(),
        workers=workers,
        worker_count=worker_count,
        minutes=minutes,
        waits=waits,
        newest=newest.jobs,
        longest_queued=await _longest_queued(core),
        replicas=await list_replicas(core),
    )


async def _queues(core: Core) -> tuple[list[QueueLine], int]:
    """Those with the most work, the most first, and how many there are."""
    async with core.reading() as connection:
        paused, number = await queues.paused(connection), await queues.count(connection)
        idle = await queues.first_names(connection, SHOWN_QUEUES)
    names = {*core.counts.busiest_queues(SHOWN_QUEUES), *idle}
    lines = [_queue_line(core, name, is_paused=name in paused) for name in names]
    lines.sort(key=lambda line: (-line.queued - line.running, -line.pending, line.name))
    return lines[:SHOWN_QUEUES], number


async def queue_line(core: Core, name: str) -> QueueLine:
    """One queue. Raises `NotFound`, `Unavailable`."""
    async with core.reading() as connection:
        is_paused = await queues.is_paused(connection, name)
    if is_paused is None:
        raise NotFound("queue")
    return _queue_line(core, name, is_paused=is_paused)


def _queue_line(core: Core, name: str, *, is_paused: bool) -> QueueLine:
    counted = core.counts.of_queue(name)
    running = counted[State.SCHEDULED] + counted[State.RUNNING]
    return QueueLine(name, is_paused, counted[State.PENDING], counted[State.QUEUED], running)


def _tenants(core: Core) -> list[TenantLine]:
    """The busiest, of now and of the last hour."""
    shares = core.last_hour.shares()
    of_late = sorted(
        (name for name in shares.given if name is not None), key=lambda name: -shares.given[name] - shares.due[name]
    )
    names = dict.fromkeys([*core.counts.busiest(SHOWN_TENANTS), *of_late[:SHOWN_TENANTS]])
    lines = [_tenant_line(core, name, shares) for name in names]
    lines.sort(key=lambda line: (-(line.given or 0) - (line.due or 0), -line.queued - line.running, line.name))
    return lines[:SHOWN_TENANTS]


def tenant_line(core: Core, name: str) -> TenantLine:
    """One tenant, whether anybody has heard of it or not."""
    return _tenant_line(core, name, core.last_hour.shares())


def _tenant_line(core: Core, name: str, shares: Shares) -> TenantLine:
    settings, counted = core.admission.settings(name), core.counts.of_tenant(name)
    total = sum(shares.given.values())
    return TenantLine(
        name=name,
        weight=settings.weight,
        paused=settings.paused,
        max_running=settings.max_running,
        pending=counted[State.PENDING],
        queued=counted[State.QUEUED],
        running=counted[State.SCHEDULED] + counted[State.RUNNING],
        due=shares.due.get(name, 0) / total if total else None,
        given=shares.given.get(name, 0) / total if total else None,
    )


async def _longest_queued(core: Core) -> list[Job]:
    """Those that are in the queue the longest, the first one first. One that has just been claimed is left out."""
    async with core.reading() as connection:
        found = await jobs.with_seqs(connection, core.queued_since.first(SHOWN_JOBS))
    return [job for job in found if job.state is State.QUEUED]


async def _workers(core: Core) -> tuple[list[WorkerLine], int]:
    """Those that hold leases, the busiest first, then those that wait for a job; and how many there are."""
    async with core.reading() as connection:
        rows = await jobs.count_by_worker(connection, SHOWN_WORKERS)
    waiting = core.waiting.workers()
    busy = [WorkerLine(name, leases, oldest, name in waiting) for name, leases, oldest, _ in rows]
    idle = sorted(waiting - {line.name for line in busy})
    lines = [*busy, *(WorkerLine(name, 0, None, waits=True) for name in idle)]
    return lines[:SHOWN_WORKERS], (rows[0][-1] if rows else 0) + len(idle)
