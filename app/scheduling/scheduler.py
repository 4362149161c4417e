"""The order of all queues, in memory: what each event of a job's life does to it, and what goes next.
The only door to this package for the layers above. It knows nothing of SQL, leases or the time of day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from app.scheduling.journal import Journal, Savepoint, Touched
from app.scheduling.lanes import Lane, Tenant
from app.scheduling.outlook import Bound, Outlook, Standing
from app.scheduling.places import Places, id_number
from app.scheduling.policies import SHARE, Policy, ordering, step_units
from app.scheduling.queue import Books, Queue
from app.scheduling.records import (
    LaneTime,
    Pick,
    QueuedJob,
    QueueState,
    QueueTime,
    Snapshot,
    TenantState,
    UnnamedJob,
)

__all__ = [
    "SHARE",
    "Bound",
    "LaneTime",
    "Outlook",
    "Pick",
    "Places",
    "Policy",
    "QueueState",
    "QueueTime",
    "QueuedJob",
    "Savepoint",
    "Scheduler",
    "Snapshot",
    "Standing",
    "TenantState",
    "step_units",
]


class Scheduler:
    """Decides which queued job goes next, in every queue, under one policy.

    Each event below applies what it causes in one order: job into or out of its lane, running count,
    refund, join, return, empty. An event costs O(log lanes + log lane length); one that opens or shuts
    a tenant (its pause, its cap, a weight) costs that for each of the tenant's lanes.

    Changes apply at once. Between `begin` and `commit` they can be rolled back exactly. A tenant never
    heard of has weight 1, no cap and is not paused; a queue never heard of starts at clock 0.
    """

    def __init__(self, policy: Policy, step_units: int) -> None:
        """`step_units` is a step of priority in units, see `policies.step_units`."""
        self.policy = policy
        self._ordering = ordering(policy, step_units)
        self._step = step_units
        self._journal = Journal()
        self._clear()

    # -- events of a job's life

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
        """A job is submitted due now, or becomes due: it waits, with a new effective priority.

        Times in microseconds since the epoch. `ValueError` if the job is queued already.
        """
        self._refuse_queued(job_id)
        lane = self._lane(queue, tenant)
        home = self._queues[queue]
        # The join comes first, as the effective priority depends on it. It does not ask for the job.
        if not lane.jobs:
            home.join(lane)
        job = QueuedJob(
            id=job_id,
            seq=seq,
            tenant=tenant,
            queue=queue,
            priority=priority,
            cost=cost,
            due_at=due_at,
            submitted_at=submitted_at,
            effective_priority=home.effective_priority(lane, priority),
        )
        if self._put_in(lane, job) is lane.jobs.first:  # behind another it changes nothing of the lane's place
            home.settle(lane)
        return job

    def pick(self, queue: str) -> Pick | None:
        """Take out the job that goes next in `queue`: its lane is charged, its tenant runs one more.

        None if the queue is unknown or paused, or no lane of it is pickable. Counts as one dispatch;
        a tenant that reaches its cap by it is hidden in all queues.
        """
        home = self._queues.get(queue)
        lane = home.next_lane() if home else None
        if home is None or lane is None:
            return None
        packed, tenant = lane.jobs.first, lane.tenant
        job = self._unpack(lane, packed)
        home.move_clock(lane)
        charge = home.charge(lane, job.cost)
        self._take_out(lane, job.id, packed)
        self._set_running(tenant, tenant.running + 1)
        home.settle(lane)
        if not tenant.may_run:
            self._settle_all(tenant)
        home.catch_up_if_empty()
        return Pick(job, charge, tenant.weight)

    def requeue(self, job: QueuedJob, charge: int) -> None:
        """A leased job goes straight back to waiting, with the effective priority it had.

        `charge` units are given back: the pick's for a release or a lapse before the start, else 0.
        `ValueError` if the job is queued already.
        """
        self._refuse_queued(job.id)
        lane = self._lane(job.queue, job.tenant)
        home, tenant = self._queues[job.queue], lane.tenant
        could_run, was_empty = tenant.may_run, not lane.jobs
        self._put_in(lane, job)
        self._set_running(tenant, tenant.running - 1)
        home.refund(lane, charge)
        if was_empty:
            home.join(lane)
        self._return_if_opened(tenant, could_run=could_run)
        home.settle(lane)

    def end(self, tenant: str, queue: str, charge_back: int = 0) -> None:
        """An attempt has ended and its job is not queued: the tenant runs one less, its lanes may return.

        `charge_back` units are given back to its lane in `queue`, for an attempt that never started.
        """
        owner = self._tenants.get(tenant)
        if owner is None:
            return
        could_run = owner.may_run
        self._set_running(owner, owner.running - 1)
        lane = owner.lanes.get(queue)
        # A lane that was forgotten was at or behind the clock, where a refund gives nothing.
        if lane is not None:
            self._queues[queue].refund(lane, charge_back)
            self._queues[queue].settle(lane)
        self._return_if_opened(owner, could_run=could_run)
        self._drop_if_blank(owner)

    def withdraw(self, job_id: str) -> QueuedJob | None:
        """A queued job leaves unpicked, by a cancel or because SQL no longer has it queued.

        Returns it, or None if it was not queued.
        """
        found = self._waiting(job_id)
        if found is None:
            return None
        lane, packed = found
        home = self._queues[lane.queue]
        self._take_out(lane, job_id, packed)
        home.settle(lane)
        home.catch_up_if_empty()
        return self._unpack(lane, packed)

    def reprioritize(self, job_id: str, priority: int) -> QueuedJob | None:
        """Give a queued job another priority, in force at once; its effective priority moves along.

        Returns the job as it is now, or None if it was not queued.
        """
        found = self._waiting(job_id)
        if found is None:
            return None
        lane, packed = found
        new = self._unpack(lane, packed).with_priority(priority)
        self._take_out(lane, job_id, packed)
        self._put_in(lane, new)
        self._queues[lane.queue].settle(lane)
        return new

    # -- what an audit mends

    def adopt(self, job: QueuedJob) -> None:
        """SQL has `job` queued, and memory has it not at all or otherwise: from now on it waits as SQL says."""
        known = self._waiting(job.id)
        lane, home = self._lane(job.queue, job.tenant), self._queue(job.queue)
        if known is not None and known[0] is lane:
            self._take_out(lane, job.id, known[1])
        elif known is not None:  # another job under the same id
            self.withdraw(job.id)
            known = None
        if known is None and not lane.jobs:
            home.join(lane)
        self._put_in(lane, job)
        home.settle(lane)

    def set_running(self, tenant: str, running: int) -> None:
        """So many jobs of the tenant are leased, whatever was counted; its lanes may return, or hide."""
        owner = self._tenant(tenant)
        could_run = owner.may_run
        self._set_running(owner, running)
        self._return_if_opened(owner, could_run=could_run)
        self._settle_all(owner)
        self._drop_if_blank(owner)

    def drop_tenant(self, name: str) -> bool:
        """The tenant is as one never heard of: no debt, no settings. False, and no change, if a job of it waits or
        runs."""
        tenant = self._tenants.get(name)
        if tenant is None:
            return True
        if tenant.running or any(lane.jobs for lane in tenant.lanes.values()):
            return False
        for lane in list(tenant.lanes.values()):
            self._journal.delete(tenant.lanes, lane.queue)
            self._journal.delete(self._lanes, lane.number)
            self._books.lanes.discard(lane)
        self._journal.delete(self._tenants, name)
        return True

    def rewrite_lane(self, queue: str, tenant: str) -> None:
        """SQL is to have the lane's virtual time as it is here; without effect on a lane that is not in memory."""
        lane = self._find_lane(queue, tenant)
        if lane is not None:
            self._books.lanes.add(lane)

    def rewrite_queue(self, name: str) -> None:
        """SQL is to have the queue's times as they are here."""
        self._books.queues.add(self._queue(name))

    # -- settings

    def set_tenant(self, name: str, *, weight: int, max_running: int | None, paused: bool) -> None:
        """Settings that act on the next pick; a weight on later charges. `max_running` None is no cap.

        O(1) if nothing changes, else O(log lanes) for each of the tenant's lanes.
        """
        wanted = (weight, max_running, paused)
        tenant = self._tenants.get(name) or Tenant(name)
        if wanted == (tenant.weight, tenant.max_running, tenant.paused):
            return
        tenant = self._tenant(name)
        could_run = tenant.may_run
        for lane in tenant.lanes.values():
            self._queues[lane.queue].hide(lane)
        self._journal.assign(tenant, "weight", weight)
        self._journal.assign(tenant, "max_running", max_running)
        self._journal.assign(tenant, "paused", paused)
        self._return_if_opened(tenant, could_run=could_run)
        self._settle_all(tenant)
        self._drop_if_blank(tenant)

    def set_queue(self, name: str, *, paused: bool) -> None:
        """Whether `pick` passes over this queue. Its lanes stay as they are."""
        if paused or name in self._queues:
            self._journal.assign(self._queue(name), "paused", paused)

    # -- undo, and what SQL has to write

    def begin(self) -> None:
        """Remember every change from here on. `RuntimeError` if that is so already."""
        self._journal.begin()

    def commit(self) -> None:
        """Keep what has changed since `begin`."""
        self._journal.commit()

    def rollback(self) -> None:
        """Undo exactly what has changed since `begin`, what was touched and taken included."""
        self._journal.rollback()

    def savepoint(self) -> Savepoint:
        """A point after `begin` to roll back to, any number of times; they nest."""
        return self._journal.savepoint()

    def rollback_to(self, mark: Savepoint) -> None:
        """Undo exactly what has changed since `mark` and stay open."""
        self._journal.rollback_to(mark)

    def take_dirty(self) -> tuple[list[LaneTime], list[QueueTime]]:
        """The lanes and queues that SQL must write, each once with its present values.

        They count as written from here on, unless a rollback undoes this call.
        """
        lanes = [LaneTime(lane.queue, lane.tenant.name, lane.virtual_time) for lane in self._books.lanes.take()]
        return lanes, [queue.time() for queue in self._books.queues.take()]

    @property
    def has_unwritten(self) -> bool:
        """Whether `take_dirty` would return anything."""
        return bool(self._books.lanes or self._books.queues)

    # -- reading

    def places(self) -> Places:
        """Where all waiting jobs stand, as a copy."""
        return Places(self._ordering, self._jobs.copy())

    def queued_by_lane(self) -> Iterator[tuple[str, str, int]]:
        """(queue, tenant, how many jobs wait), without zeros."""
        for lane in self._lanes.values():
            if lane.jobs:
                yield lane.queue, lane.tenant.name, len(lane.jobs)

    def running_by_tenant(self) -> dict[str, int]:
        """How many jobs of each tenant are leased, without zeros."""
        return {name: tenant.running for name, tenant in self._tenants.items() if tenant.running}

    def virtual_times(self) -> dict[tuple[str, str], int]:
        """Of every lane in memory, by (queue, tenant)."""
        return {
            (lane.queue, name): lane.virtual_time
            for name, tenant in self._tenants.items()
            for lane in tenant.lanes.values()
        }

    def queue_times(self) -> list[QueueTime]:
        """Of every queue in memory."""
        return [queue.time() for queue in self._queues.values()]

    def paused_queues(self) -> set[str]:
        """The queues that are paused."""
        return {name for name, queue in self._queues.items() if queue.paused}

    def queued_numbers(self) -> set[int]:
        """The `seq` of every waiting job, in O(all of them)."""
        return {self._ordering.form.key(packed)[-1] for packed in self._jobs.values()}

    def queued_job(self, job_id: str) -> QueuedJob | None:
        """The job as it waits, None if it does not."""
        found = self._waiting(job_id)
        return self._unpack(*found) if found else None

    def outlook(self, job_id: str, most: int) -> Outlook | None:
        """What the job waits for, up to `most` jobs that go before it counted; None if it does not wait.

        It stays as of this moment, also while it is counted and the order goes on.
        """
        found = self._waiting(job_id)
        if found is None:
            return None
        lane, packed = found
        return Outlook(self._queues[lane.queue], lane, self._unpack(lane, packed), self._ordering, most)

    def can_pick(self, queue: str) -> bool:
        """Whether `pick` would return a job."""
        home = self._queues.get(queue)
        return home is not None and home.next_lane() is not None

    def is_pickable(self, queue: str, tenant: str) -> bool:
        """Whether the lane has a job and its tenant may run one; a paused queue keeps its pickable lanes."""
        lane = self._find_lane(queue, tenant)
        return lane is not None and lane.is_pickable

    def lane(self, queue: str, tenant: str) -> LaneTime | None:
        """The lane's virtual time; None if it is not in memory, which is as good as at the clock."""
        lane = self._find_lane(queue, tenant)
        return LaneTime(queue, tenant, lane.virtual_time) if lane else None

    def queue(self, name: str) -> QueueState:
        """The queue's clock, since_move, horizon and pause."""
        home = self._queues.get(name)
        return home.state() if home else QueueState(name, clock=0, since_move=0, horizon=0, paused=False)

    def tenant(self, name: str) -> TenantState:
        """The tenant's settings and running count."""
        return (self._tenants.get(name) or Tenant(name)).state()

    def running(self, tenant: str) -> int:
        """How many jobs of the tenant are leased, over all queues."""
        owner = self._tenants.get(tenant)
        return owner.running if owner else 0

    def queued_in(self, queue: str) -> int:
        """How many jobs wait in the queue, those of hidden lanes included."""
        home = self._queues.get(queue)
        return home.queued if home else 0

    def queued_of(self, queue: str, tenant: str) -> int:
        """How many jobs of the tenant wait in the queue."""
        lane = self._find_lane(queue, tenant)
        return len(lane.jobs) if lane else 0

    def snapshot(self) -> Snapshot:
        """Everything that the order depends on, in O(all of it): for an audit, or for `load`."""
        lanes = [lane for tenant in self._tenants.values() for lane in tenant.lanes.values()]
        return Snapshot(
            tenants=[tenant.state() for tenant in self._tenants.values()],
            queues=[queue.state() for queue in self._queues.values()],
            lanes=[LaneTime(lane.queue, lane.tenant.name, lane.virtual_time) for lane in lanes],
            jobs=[self._unpack(lane, packed) for lane in lanes for packed in lane.jobs],
        )

    # -- restart

    def load(self, snapshot: Snapshot) -> None:
        """Replace everything by what SQL holds, in O(all of it): the order goes on as if never stopped.

        Lanes and clocks are taken as written, nothing joins anew. Two things are mended, and touched so
        that SQL follows: a pickable lane with more credit than the rules ever give is raised to that
        bound, and jobs without a lane's row get a lane at the clock. `RuntimeError` while a journal is
        open, `ValueError` if a job or a lane comes twice.
        """
        self.begin_load(snapshot)
        self.load_jobs(snapshot.jobs)
        self.end_load()

    def begin_load(self, snapshot: Snapshot) -> None:
        """The first part of `load`: everything but the jobs, which come by `load_jobs`, some at a time."""
        if self._journal.is_open:
            raise RuntimeError("a journal is open")
        self._clear()
        for queue in snapshot.queues:
            self._load_queue(queue)
        for tenant in snapshot.tenants:
            self._load_tenant(tenant)
        for lane in snapshot.lanes:
            self._load_lane(lane)

    def load_jobs(self, jobs: Iterable[UnnamedJob]) -> None:
        """Some of the jobs that wait; quickest if those of a lane come together."""
        known, pack = self._jobs, self._ordering.pack
        tenant = queue = None
        for job in jobs:
            if job[2] != tenant or job[3] != queue:
                tenant, queue = job[2], job[3]
                lane = self._lane(queue, tenant)
                number, waiting = lane.number, self._loaded[lane]
            packed = known[id_number(job[0])] = pack(job, number)
            waiting.append(packed)

    def end_load(self) -> None:
        """All jobs have come. `ValueError` if one came twice."""
        if len(self._jobs) != sum(map(len, self._loaded.values())):
            raise ValueError("a job comes twice")
        lanes: defaultdict[str, list[Lane]] = defaultdict(list)
        while self._loaded:
            lane, jobs = self._loaded.popitem()
            self._queues[lane.queue].fill(lane, jobs)
            lanes[lane.queue].append(lane)
        for name, filled in lanes.items():
            self._queues[name].show_all(filled)
        for owner in list(self._tenants.values()):
            self._drop_if_blank(owner)

    def fresh(self) -> Scheduler:
        """One in which nothing is, under the same policy."""
        return Scheduler(self.policy, self._step)

    def become(self, other: Scheduler) -> None:
        """Be what `other` is, which is not used any more. `RuntimeError` while a journal is open."""
        if self._journal.is_open:
            raise RuntimeError("a journal is open")
        vars(self).update(vars(other))

    @property
    def may_forget(self) -> bool:
        """Whether `forget_idle` has anything to look at."""
        return bool(self._emptied)

    def forget_idle(self, limit: int) -> list[tuple[str, str]]:
        """Drop empty lanes at or behind their clock, and tenants of whom nothing is left to know.

        Looks at no more than `limit` lanes, O(1) each, and returns the (queue, tenant) of those it
        dropped, so that SQL can drop them too. A lane that comes again joins at the clock, as it would
        have. `RuntimeError` while a journal is open.
        """
        if self._journal.is_open:
            raise RuntimeError("a journal is open")
        forgotten = []
        for _ in range(min(limit, len(self._emptied))):
            lane = next(iter(self._emptied))
            del self._emptied[lane]
            if self._find_lane(lane.queue, lane.tenant.name) is not lane or lane.jobs:
                continue
            if lane.virtual_time > self._queues[lane.queue].clock:
                self._emptied[lane] = None  # looked at again later, after the others
                continue
            self._forget(lane)
            forgotten.append((lane.queue, lane.tenant.name))
        return forgotten

    # -- what the events are made of

    def _put_in(self, lane: Lane, job: QueuedJob) -> bytes:
        packed = self._ordering.pack(job, lane.number)
        self._queues[lane.queue].put_in(lane, packed)
        self._journal.insert(self._jobs, id_number(job.id), packed)
        return packed

    def _take_out(self, lane: Lane, job_id: str, packed: bytes) -> None:
        self._queues[lane.queue].take_out(lane, packed)
        self._journal.delete(self._jobs, id_number(job_id))
        if not lane.jobs:
            self._emptied[lane] = None

    def _set_running(self, tenant: Tenant, running: int) -> None:
        # A row that was leased by hand ends without having begun here; the audit mends the count.
        self._journal.assign(tenant, "running", max(0, running))

    def _return_if_opened(self, tenant: Tenant, *, could_run: bool) -> None:
        if could_run or not tenant.may_run:
            return
        for lane in tenant.lanes.values():
            if lane.jobs:
                self._queues[lane.queue].return_lane(lane)
        self._settle_all(tenant)

    def _settle_all(self, tenant: Tenant) -> None:
        for lane in tenant.lanes.values():
            self._queues[lane.queue].settle(lane)

    def _refuse_queued(self, job_id: str) -> None:
        if id_number(job_id) in self._jobs:
            raise ValueError(f"already queued: {job_id}")

    def _waiting(self, job_id: str) -> tuple[Lane, bytes] | None:
        packed = self._jobs.get(id_number(job_id))
        return None if packed is None else (self._lanes[self._ordering.form.lane(packed)], packed)

    def _unpack(self, lane: Lane, packed: bytes) -> QueuedJob:
        return self._ordering.unpack(packed, lane.tenant.name, lane.queue)

    # -- what is known, by name

    def _clear(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._queues: dict[str, Queue] = {}
        self._lanes: dict[int, Lane] = {}
        self._next_lane = 0
        self._jobs: dict[int, bytes] = {}
        self._loaded: defaultdict[Lane, list[bytes]] = defaultdict(list)
        self._books = Books(self._journal, Touched(self._journal), Touched(self._journal))
        # Lanes that may be forgotten, the longest empty first. Only a hint that is checked when used, so
        # it is not journaled: a rollback may leave lanes in it that are gone or full, and takes none out.
        self._emptied: dict[Lane, None] = {}

    def _tenant(self, name: str) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = Tenant(name)
            self._journal.insert(self._tenants, name, tenant)
        return tenant

    def _queue(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = Queue(name, self._ordering, self._step, self._books)
            self._journal.insert(self._queues, name, queue)
            self._books.queues.add(queue)
        return queue

    def _lane(self, queue: str, tenant: str) -> Lane:
        home, owner = self._queue(queue), self._tenant(tenant)
        lane = owner.lanes.get(queue)
        if lane is None:
            lane = self._new_lane(queue, owner, home.clock)
            self._books.lanes.add(lane)
        return lane

    def _new_lane(self, queue: str, owner: Tenant, virtual_time: int) -> Lane:
        lane = Lane(self._next_lane, queue, owner, virtual_time)
        self._next_lane += 1
        self._journal.insert(owner.lanes, queue, lane)
        self._journal.insert(self._lanes, lane.number, lane)
        return lane

    def _find_lane(self, queue: str, tenant: str) -> Lane | None:
        owner = self._tenants.get(tenant)
        return owner.lanes.get(queue) if owner else None

    def _forget(self, lane: Lane) -> None:
        del lane.tenant.lanes[lane.queue], self._lanes[lane.number]
        self._books.lanes.discard(lane)
        self._drop_if_blank(lane.tenant)

    def _drop_if_blank(self, tenant: Tenant) -> None:
        if tenant.is_blank:
            self._journal.delete(self._tenants, tenant.name)

    def _load_queue(self, state: QueueState) -> None:
        queue = Queue(state.name, self._ordering, self._step, self._books)
        queue.clock, queue.since_move, queue.horizon = state.clock, state.since_move, state.horizon
        queue.paused = state.paused
        self._journal.insert(self._queues, state.name, queue)

    def _load_tenant(self, state: TenantState) -> None:
        tenant = self._tenant(state.name)
        tenant.weight, tenant.max_running = state.weight, state.max_running
        tenant.paused, tenant.running = state.paused, state.running

    def _load_lane(self, time: LaneTime) -> None:
        self._queue(time.queue)
        self._emptied[self._new_lane(time.queue, self._tenant(time.tenant), time.virtual_time)] = None
