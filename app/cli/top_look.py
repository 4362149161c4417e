"""What `top` looks at: one moment of the service, as far as several answers can be one moment."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.client import AsyncClient, Job, Queue, State, Stats, Tenant

MOST_ACTIVE: Final = 200
MOST_NEWEST: Final = 50


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A queue, and how many of its jobs are in each state."""

    queue: Queue
    states: dict[State, int]


@dataclass(frozen=True, slots=True)
class TenantSeen:
    """A tenant; the parts of the work that its weight promises and that it has now, 0-1; None if it has no jobs."""

    tenant: Tenant
    due: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker that has jobs, oldest first."""

    name: str
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it; the busiest queues, tenants and workers first."""

    stats: Stats
    queues: list[QueueSeen]
    tenants: list[TenantSeen]
    workers: list[WorkerSeen]
    newest: list[Job]


async def look(client: AsyncClient) -> Snapshot:
    """Look once. Workers are those that hold one of the newest jobs at work; the service has no list of them."""
    stats, queues, tenants, running, scheduled, newest = await asyncio.gather(
        client.stats(),
        client.list_queues(),
        client.list_tenants(),
        client.list_jobs(state=State.RUNNING, limit=MOST_ACTIVE),
        client.list_jobs(state=State.SCHEDULED, limit=MOST_ACTIVE),
        client.list_jobs(limit=MOST_NEWEST),
    )
    return Snapshot(
        stats=stats,
        queues=queues_seen(queues, stats),
        tenants=tenants_seen(tenants),
        workers=workers_seen([*running.jobs, *scheduled.jobs]),
        newest=newest.jobs,
    )


def queues_seen(queues: Iterable[Queue], stats: Stats) -> list[QueueSeen]:
    """The queues, those with most to do first."""
    seen = [
        QueueSeen(queue, stats.queues[queue.name].state_counts if queue.name in stats.queues else {})
        for queue in queues
    ]
    return sorted(seen, key=lambda each: (-each.queue.queued - each.queue.running, each.queue.name))


def tenants_seen(tenants: Iterable[Tenant]) -> list[TenantSeen]:
    """The tenants, those with most to do first. A paused one takes part in no share."""
    tenants = sorted(tenants, key=lambda tenant: (-tenant.queued - tenant.running, tenant.name))
    weights = sum(tenant.weight for tenant in tenants if _takes_part(tenant))
    running = sum(tenant.running for tenant in tenants)
    return [
        TenantSeen(
            tenant,
            due=tenant.weight / weights if _takes_part(tenant) else None,
            now=tenant.running / running if running else None,
        )
        for tenant in tenants
    ]


def _takes_part(tenant: Tenant) -> bool:
    return not tenant.paused and tenant.queued + tenant.running > 0


def workers_seen(active: Iterable[Job]) -> list[WorkerSeen]:
    """The workers, those with most jobs first."""
    held: defaultdict[str, list[Job]] = defaultdict(list)
    for job in active:
        held[job.worker or ""].append(job)
    seen = [WorkerSeen(name, sorted(jobs, key=began_at)) for name, jobs in held.items()]
    return sorted(seen, key=lambda worker: (-len(worker.jobs), worker.name))


def began_at(job: Job) -> float:
    """When an active job was begun, or at least claimed."""
    moment = job.started_at or job.scheduled_at or job.submitted_at
    return moment.timestamp()
