"""Two slow and obvious models of the order, written from what it is meant to be and not from the code: no heaps,
no sums kept up to date, no undo. Each pick looks at everything there is."""

from __future__ import annotations

from dataclasses import dataclass

from app.scheduling.scheduler import Pick, QueuedJob, QueueTime

ONE_SHARE = 1_000_000


@dataclass
class ModelTenant:
    weight: int = 1
    max_running: int | None = None
    paused: bool = False
    running: int = 0

    def is_held_back(self) -> bool:
        return self.paused or (self.max_running is not None and self.running >= self.max_running)


@dataclass
class ModelQueue:
    clock: int = 0
    since_move: int = 0
    horizon: int = 0
    paused: bool = False


class Model:
    """The events and rules 1, 2, 6 and 7, which both policies run."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.tenants: dict[str, ModelTenant] = {}
        self.queues: dict[str, ModelQueue] = {}
        self.virtual_times: dict[tuple[str, str], int] = {}
        self.waiting: list[QueuedJob] = []

    # what the policies differ in

    def order_in_lane(self, job: QueuedJob) -> tuple[int, ...]:
        raise NotImplementedError

    def next_job(self, queue: str) -> QueuedJob:
        raise NotImplementedError

    def effective_priority(self, queue: str, tenant: str, priority: int) -> int:
        raise NotImplementedError

    def charge_for(self, job: QueuedJob) -> int:
        raise NotImplementedError

    # the events

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
    ) -> QueuedJob:
        if not self.jobs_of(queue, tenant):
            self.join(queue, tenant)
        effective = self.effective_priority(queue, tenant, priority)
        job = QueuedJob(job_id, seq, tenant, queue, priority, cost, due_at, submitted_at, effective)
        self.waiting.append(job)
        return job

    def pick(self, queue: str) -> Pick | None:
        if self.queue_of(queue).paused or not self.pickable_lanes(queue):
            return None
        job = self.next_job(queue)
        charge = self.charge_for(job)
        self.waiting.remove(job)
        self.tenant_of(job.tenant).running += 1
        self.catch_up_if_empty(queue)
        return Pick(job, charge, self.tenant_of(job.tenant).weight)

    def requeue(self, job: QueuedJob, charge: int) -> None:
        held_back = self.held_back()
        first = not self.jobs_of(job.queue, job.tenant)
        self.waiting.append(job)
        self.tenant_of(job.tenant).running -= 1
        self.refund(job.queue, job.tenant, charge)
        if first:
            self.join(job.queue, job.tenant)
        self.return_lanes(held_back)

    def end(self, tenant: str, queue: str, charge_back: int = 0) -> None:
        held_back = self.held_back()
        self.tenant_of(tenant).running -= 1
        self.refund(queue, tenant, charge_back)
        self.return_lanes(held_back)

    def withdraw(self, job_id: str) -> QueuedJob | None:
        for job in self.waiting:
            if job.id == job_id:
                self.waiting.remove(job)
                self.catch_up_if_empty(job.queue)
                return job
        return None

    def reprioritize(self, job_id: str, priority: int) -> QueuedJob | None:
        for index, job in enumerate(self.waiting):
            if job.id == job_id:
                effective = max(0, job.effective_priority + priority - job.priority)
                changed = job._replace(priority=priority, effective_priority=effective)
                self.waiting[index] = changed
                return changed
        return None

    def set_tenant(self, name: str, *, weight: int, max_running: int | None, paused: bool) -> None:
        held_back = self.held_back()
        tenant = self.tenant_of(name)
        tenant.weight, tenant.max_running, tenant.paused = weight, max_running, paused
        self.return_lanes(held_back)

    def set_queue(self, name: str, *, paused: bool) -> None:
        self.queue_of(name).paused = paused

    # the rules that both run

    def join(self, queue: str, tenant: str) -> None:
        clock = self.queue_of(queue).clock
        self.virtual_times[queue, tenant] = max(self.virtual_times.get((queue, tenant), 0), clock)

    def return_lanes(self, held_back_before: set[str]) -> None:
        for queue, tenant in self.virtual_times:
            if tenant in held_back_before - self.held_back() and self.jobs_of(queue, tenant):
                head = min(self.jobs_of(queue, tenant), key=self.order_in_lane)
                floor = self.queue_of(queue).clock - ONE_SHARE - self.step * head.priority
                self.virtual_times[queue, tenant] = max(self.virtual_times[queue, tenant], floor)

    def refund(self, queue: str, tenant: str, charge: int) -> None:
        used = self.virtual_times.get((queue, tenant), 0)
        clock = self.queue_of(queue).clock
        self.virtual_times[queue, tenant] = max(used - charge, min(used, clock))

    def catch_up_if_empty(self, queue: str) -> None:
        if not any(job.queue == queue for job in self.waiting):
            home = self.queue_of(queue)
            home.clock = max(home.clock, home.horizon)

    # reading

    def tenant_of(self, name: str) -> ModelTenant:
        return self.tenants.setdefault(name, ModelTenant())

    def queue_of(self, name: str) -> ModelQueue:
        return self.queues.setdefault(name, ModelQueue())

    def jobs_of(self, queue: str, tenant: str) -> list[QueuedJob]:
        return [job for job in self.waiting if (job.queue, job.tenant) == (queue, tenant)]

    def held_back(self) -> set[str]:
        return {name for name, tenant in self.tenants.items() if tenant.is_held_back()}

    def pickable_lanes(self, queue: str) -> set[str]:
        return {job.tenant for job in self.waiting if job.queue == queue} - self.held_back()

    def time_of(self, queue: str) -> QueueTime:
        home = self.queue_of(queue)
        return QueueTime(queue, home.clock, home.since_move, home.horizon)


class VirtualTimeModel(Model):
    """The default policy."""

    def order_in_lane(self, job: QueuedJob) -> tuple[int, ...]:
        return (job.priority, job.due_at, job.seq)

    def next_job(self, queue: str) -> QueuedJob:
        heads = [min(self.jobs_of(queue, tenant), key=self.order_in_lane) for tenant in self.pickable_lanes(queue)]
        return sorted(
            heads,
            key=lambda head: (
                self.virtual_times[queue, head.tenant] + self.step * head.priority,
                head.due_at,
                head.seq,
            ),
        )[0]

    def effective_priority(self, queue: str, tenant: str, priority: int) -> int:
        lead = self.virtual_times[queue, tenant] - self.queue_of(queue).clock
        ahead = len(self.jobs_of(queue, tenant))
        return max(0, priority + lead // ONE_SHARE + ahead // self.tenant_of(tenant).weight)

    def charge_for(self, job: QueuedJob) -> int:
        home, lane = self.queue_of(job.queue), (job.queue, job.tenant)
        total = sum(self.tenant_of(tenant).weight for tenant in self.pickable_lanes(job.queue))
        home.since_move += 1
        if self.virtual_times[lane] >= home.clock:
            drifted = home.clock + min(ONE_SHARE, home.since_move * ONE_SHARE // total)
            moved = max(self.virtual_times[lane], drifted)
            if moved != home.clock:
                home.clock, home.since_move = moved, 0
        charge = job.cost * (ONE_SHARE // self.tenant_of(job.tenant).weight)
        self.virtual_times[lane] += charge
        home.horizon = max(home.horizon, self.virtual_times[lane])
        return charge


class PenaltyModel(Model):
    """The penalty rule: one sorted list over the whole queue."""

    def order_in_lane(self, job: QueuedJob) -> tuple[int, ...]:
        return (job.effective_priority, job.submitted_at, job.seq)

    def next_job(self, queue: str) -> QueuedJob:
        lanes = self.pickable_lanes(queue)
        return sorted(
            (job for job in self.waiting if job.queue == queue and job.tenant in lanes),
            key=lambda job: (job.effective_priority, job.submitted_at, job.seq),
        )[0]

    def effective_priority(self, queue: str, tenant: str, priority: int) -> int:
        return priority + len(self.jobs_of(queue, tenant)) // self.tenant_of(tenant).weight

    def charge_for(self, job: QueuedJob) -> int:  # noqa: ARG002 - nothing is charged
        return 0
