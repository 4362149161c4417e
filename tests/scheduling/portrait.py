"""Everything a scheduler holds, laid open for comparison: two with the same portrait behave the same.
It reads private state on purpose, so that a forgotten undo cannot hide behind the public readings."""

from __future__ import annotations

from app.scheduling.lanes import Lane, Tenant
from app.scheduling.queue import Queue
from app.scheduling.scheduler import Scheduler


def portrait(scheduler: Scheduler) -> dict[str, object]:
    return {
        "tenants": {name: _tenant(tenant) for name, tenant in scheduler._tenants.items()},
        "queues": {name: _queue(queue) for name, queue in scheduler._queues.items()},
        "jobs": dict(scheduler._jobs),
        "dirty lanes": {(lane.queue, lane.tenant.name) for lane in scheduler._books.lanes._items},
        "dirty queues": {queue.name for queue in scheduler._books.queues._items},
    }


def _tenant(tenant: Tenant) -> tuple[object, ...]:
    return (tenant.state(), {name: _lane(lane) for name, lane in tenant.lanes.items()})


def _lane(lane: Lane) -> tuple[object, ...]:
    return (lane.virtual_time, {job: lane.jobs.key(job) for job in lane.jobs})


def _queue(queue: Queue) -> tuple[object, ...]:
    pickable = {lane.tenant.name: queue.pickable.key(lane) for lane in queue.pickable}
    return (queue.state(), queue.queued, queue.pickable_weight, pickable)
