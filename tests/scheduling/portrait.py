"""Everything a scheduler holds, laid open for comparison: two with the same portrait behave the same.
It reads private state on purpose, so that a forgotten undo cannot hide behind the public readings."""

from __future__ import annotations

from app.scheduling.lanes import Lane
from app.scheduling.queue import Queue
from app.scheduling.scheduler import Scheduler


def portrait(scheduler: Scheduler) -> dict[str, object]:
    lanes = [lane for tenant in scheduler._tenants.values() for lane in tenant.lanes.values()]
    assert scheduler._lanes == {lane.number: lane for lane in lanes}
    assert sorted(packed for lane in lanes for packed in lane.jobs) == sorted(scheduler._jobs.values())
    return {
        "tenants": {name: tenant.state() for name, tenant in scheduler._tenants.items()},
        "queues": {name: _queue(queue) for name, queue in scheduler._queues.items()},
        "lanes": {(lane.queue, lane.tenant.name): _lane(scheduler, lane) for lane in lanes},
        "jobs": {job_id: scheduler.queued_job(job_id) for job_id in scheduler.places()},
        "dirty lanes": {(lane.queue, lane.tenant.name) for lane in scheduler._books.lanes._items},
        "dirty queues": {queue.name for queue in scheduler._books.queues._items},
    }


def _lane(scheduler: Scheduler, lane: Lane) -> tuple[object, ...]:
    return (lane.virtual_time, [scheduler._unpack(lane, packed) for packed in lane.jobs])


def _queue(queue: Queue) -> tuple[object, ...]:
    pickable = {lane.tenant.name: queue.pickable.key(lane) for lane in queue.pickable}
    return (queue.state(), queue.queued, queue.pickable_weight, pickable)
