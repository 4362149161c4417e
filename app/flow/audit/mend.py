"""What the audit does about a difference. Each of these is a write of its own, alone in its transaction, so memory and
rows are at one moment while it looks: it mends what still differs and answers what that was."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from app.flow.audit.moment import Lane
from app.flow.core import Core
from app.flow.finish import as_queued
from app.flow.moves import Moved
from app.flow.recover import Present, lease_as_written
from app.flow.tally import Tally
from app.scheduling.job import Job, State
from app.scheduling.leases import Lease
from app.scheduling.scheduler import QueuedJob
from app.store import jobs, queues, tenants
from app.store.transaction import Transaction


class What(StrEnum):
    """The kinds of differences, in the words of the log."""

    TO_COME = "queued in the database but not in memory"
    NOT_TO_COME = "queued in memory but not in the database"
    PLACE = "queued with another priority"
    NOT_LEASED = "leased in memory but not in the database"
    LEASED = "leased in the database but not in memory"
    RUNNING = "tenants with another number of leased jobs"
    NUMBERS = "numbers of jobs"
    LANES = "lanes with another virtual time"
    CLOCKS = "queues with another clock"
    NAMES = "names without a row"


class Mended(NamedTuple):
    """One difference that is no more; `moved` is the move of the job that memory had missed."""

    what: What
    which: str
    moved: Moved | None = None

    @property
    def was_guessed(self) -> bool:
        """Whether nothing but the numbers said whose lease it was: its row is gone."""
        return self.what is What.NOT_LEASED and (self.moved is None or self.moved.new is None)


_LEASED: Final = (State.RUNNING, State.SCHEDULED)
_BEFORE_QUEUED: Final = (State.PENDING,)


async def jobs_if_they_differ(core: Core, ids: Sequence[str], lacking: Tally, tx: Transaction) -> list[Mended]:
    """Bring the order, the leases and the running counts to what the rows of these jobs say. `lacking` is what the
    numbers of jobs lack: it tells from where a job has come by hand."""
    rows = await jobs.with_ids(await tx.reading(), ids)
    lacking, mended = lacking.copy(), list[Mended]()
    for job_id in ids:
        each = _mend_job(core, tx, job_id, rows.get(job_id), lacking)
        if each is None:
            continue
        mended.append(each)
        if each.moved is not None:
            core.moves.note(each.moved)
            lacking.take(each.moved)
    return mended


async def running_if_it_differs(core: Core, names: Sequence[str], tx: Transaction) -> list[Mended]:
    """Count the leased jobs of these tenants as their rows say."""
    leased, mended = await jobs.count_leased(await tx.reading(), names), list[Mended]()
    for name in names:
        if core.order.running(name) != leased.get(name, 0):
            core.order.set_running(name, leased.get(name, 0))
            mended.append(Mended(What.RUNNING, name))
    return mended


async def lanes_if_they_differ(core: Core, pairs: Sequence[Lane], tx: Transaction) -> list[Mended]:
    """Write these lanes as memory has them."""
    written, mended = await queues.some_lanes(await tx.reading(), pairs), list[Mended]()
    unknown = list[Lane]()
    for queue, tenant in pairs:
        lane, row = core.order.lane(queue, tenant), written.get((queue, tenant))
        if lane is None and row is not None and not _is_forgotten(core, queue, tenant, row):
            unknown.append((queue, tenant))
        elif lane is not None and lane.virtual_time != row:
            tx.need_tenant(tenant)
            tx.need_queue(queue)
            core.order.rewrite_lane(queue, tenant)
        else:
            continue
        mended.append(Mended(What.LANES, f"{tenant} in {queue}"))
    if unknown:
        await queues.forget_lanes(await tx.settled(), unknown)
    return mended


async def clocks_if_they_differ(core: Core, names: Sequence[str], tx: Transaction) -> list[Mended]:
    """Write the clocks of these queues as memory has them."""
    mended = list[Mended]()
    written = {row.name: (row.clock, row.since_move, row.horizon) for row in await queues.every(await tx.reading())}
    for name in names:
        state = core.order.queue(name)
        if written.get(name, (0, 0, 0)) != (state.clock, state.since_move, state.horizon):
            core.order.rewrite_queue(name)
            mended.append(Mended(What.CLOCKS, name))
    return mended


async def drop_waits_that_are_over(core: Core, _tx: Transaction) -> None:
    """Who left the queue by hand, and then moved on by our own doing, is still taken to wait by the metrics alone."""
    core.queued_since.keep(core.order.queued_numbers())


async def tenants_without_a_row(core: Core, names: Sequence[str], tx: Transaction) -> list[Mended]:
    """Their next job makes them a row again."""
    gone = core.known_tenants.intersection(names) - await tenants.some_names(await tx.reading(), names)
    tx.after_commit(core.known_tenants.difference_update, gone)
    return [Mended(What.NAMES, f"tenant {name}") for name in sorted(gone)]


async def queues_without_a_row(core: Core, names: Sequence[str], tx: Transaction) -> list[Mended]:
    """Their next job makes them a row again."""
    gone = core.known_queues.intersection(names) - {row.name for row in await queues.every(await tx.reading())}
    tx.after_commit(core.known_queues.difference_update, gone)
    return [Mended(What.NAMES, f"queue {name}") for name in sorted(gone)]


def _is_forgotten(core: Core, queue: str, tenant: str, virtual_time: int) -> bool:
    """Whether the row is one that goes soon, and that until then says nothing: behind its clock."""
    return (queue, tenant) in core.forgotten_lanes and virtual_time <= core.order.queue(queue).clock


def _mend_job(core: Core, tx: Transaction, job_id: str, row: Job | None, lacking: Tally) -> Mended | None:
    held, lease = core.order.queued_job(job_id), core.leases.get(job_id)
    if row is not None and row.state.is_leased:
        return _lease_as_written(core, tx, row, held, lease, lacking)
    if held is not None and lease is not None:
        # It was put back by hand, and the tick has found it due, before anybody missed its worker.
        tx.after_commit(core.leases.drop, job_id)
        return _mend_unleased(core, tx, job_id, row, held, None, lacking) or Mended(What.NOT_LEASED, job_id)
    return _mend_unleased(core, tx, job_id, row, held, lease, lacking)


def _mend_unleased(
    core: Core,
    tx: Transaction,
    job_id: str,
    row: Job | None,
    held: QueuedJob | None,
    lease: Lease | None,
    lacking: Tally,
) -> Mended | None:
    if row is not None and row.state is State.QUEUED:
        return _queue_as_written(core, tx, row, held, lease, lacking)
    if held is not None:
        core.order.withdraw(job_id)
        moved = Moved(job_id, held.queue, held.tenant, State.QUEUED, row.state if row else None, row)
        return Mended(What.NOT_TO_COME, job_id, moved)
    if lease is not None:
        return Mended(What.NOT_LEASED, job_id, _end_lease(core, tx, job_id, row, lacking))
    return None


def _queue_as_written(
    core: Core, tx: Transaction, row: Job, held: QueuedJob | None, lease: Lease | None, lacking: Tally
) -> Mended | None:
    queued = as_queued(row)
    if held is None and lease is not None:
        core.order.requeue(queued, 0)
        tx.after_commit(core.leases.drop, row.id)
        was_in = _came_from(lacking, _LEASED, row) or State.RUNNING
        return Mended(What.NOT_LEASED, row.id, Moved(row.id, row.queue, row.tenant, was_in, row.state, row))
    if held == queued:
        return None
    core.order.adopt(queued)
    if held is not None:
        return Mended(What.PLACE, row.id)
    old = _came_from(lacking, _BEFORE_QUEUED, row)
    return Mended(What.TO_COME, row.id, Moved(row.id, row.queue, row.tenant, old, row.state, row))


def _lease_as_written(
    core: Core, tx: Transaction, row: Job, held: QueuedJob | None, lease: Lease | None, lacking: Tally
) -> Mended | None:
    if held is None and lease is not None and lease.token == row.token:
        return None
    if held is not None:
        core.order.withdraw(row.id)
    if lease is None:
        core.order.set_running(row.tenant, core.order.running(row.tenant) + 1)
    as_written = lease_as_written(row, Present.of(core.clock), lease)
    tx.after_commit(core.leases.put, as_written)
    tx.after_commit(core.wake_by, row.lease_expires_at)
    if held is None and lease is not None:
        return Mended(What.LEASED, row.id)
    old = State.QUEUED if held else _came_from(lacking, _BEFORE_QUEUED, row)
    return Mended(What.LEASED, row.id, Moved(row.id, row.queue, row.tenant, old, row.state, row))


def _end_lease(core: Core, tx: Transaction, job_id: str, row: Job | None, lacking: Tally) -> Moved | None:
    """The worker's attempt was ended by hand. Of a row that is gone nothing says whose it was but the numbers."""
    tx.after_commit(core.leases.drop, job_id)
    if row is None:
        place = lacking.surplus(_LEASED, None, None)
        if place is None:
            return None
        queue, tenant, old = place
        core.order.end(tenant, queue)
        return Moved(job_id, queue, tenant, old, None, None)
    core.order.end(row.tenant, row.queue)
    if row.state is State.PENDING:
        tx.after_commit(core.wake_by, row.run_at)
    by_time = State.SCHEDULED if row.started_at is None else State.RUNNING
    old = _came_from(lacking, _LEASED, row) or by_time
    return Moved(row.id, row.queue, row.tenant, old, row.state, row)


def _came_from(lacking: Tally, states: Sequence[State], row: Job) -> State | None:
    """The state that has one job of this kind too many, None if none has."""
    place = lacking.surplus(states, row.queue, row.tenant)
    return place[2] if place else None
