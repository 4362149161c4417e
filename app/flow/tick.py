"""Time passes: what is due is queued, what nobody renewed lapses, what plain SQL has set comes into force.
One tick does all that is to do and says how long nothing will be."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from app.clock import to_micros
from app.errors import Unavailable
from app.events import JobPromoted, LoopFailed, RowSkipped, SchedulerStarted, SchedulerStopped, SettingsReread
from app.flow import tenancy
from app.flow.core import Core
from app.flow.dispatch import serve_soon
from app.flow.finish import end_if_ended
from app.flow.moves import Moved
from app.scheduling.job import Job, State
from app.store import jobs, queues
from app.store.parts import Redo
from app.store.transaction import Transaction

PROMOTED_AT_ONCE: Final = 1000
"""Most jobs promoted in one transaction, so that claims and submits come in between."""

SKIP_SEC: Final = 60.0
"""How long a row that cannot be promoted is left alone before it is tried again."""

LAPSED_AT_ONCE: Final = 200
FORGOTTEN_AT_ONCE: Final = 1000
FORGET_EVERY_SEC: Final = 10.0
_FIRST_RETRY_SEC, _LONGEST_RETRY_SEC = 0.1, 2.0


class Ticker:
    """The loop of ticks. It cannot die quietly: an error is told, waited out for a while, and tried again."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._skipped_until: dict[str, float] = {}
        self._forgot_at = core.clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to tick."""
        self._core.emit(SchedulerStarted(self._core.settings.tick_ms))
        self._task = asyncio.create_task(self._turn(), name="ticker")

    async def stop(self) -> None:
        """No more ticks; the one at work is finished."""
        self._stopping = True
        self._core.wake_by(self._core.clock.now())
        if self._task is not None:
            await self._task
            self._task = None
            self._core.emit(SchedulerStopped())

    async def tick(self) -> float:
        """Do all that is due now; in how many seconds the next tick must come at the latest."""
        with self._core.spans.span("tick"):
            return await self._tick()

    async def _tick(self) -> float:
        core = self._core
        if core.writer.is_in_doubt:
            await core.write(_nothing)
        while await self._promote() == PROMOTED_AT_ONCE:
            pass
        await self._end_leases()
        if await tenancy.reread_is_due(core):
            core.emit(SettingsReread(*await tenancy.reread(core)))
        if core.to_recount:
            await core.write(lambda tx: _recount(core, tx))
        serve_soon(core)
        await self._forget()
        await self._renew()
        return await self._pause()

    async def _turn(self) -> None:
        retry_sec = _FIRST_RETRY_SEC
        while not self._stopping:
            is_sound = True
            try:
                pause = await self.tick()
                retry_sec = _FIRST_RETRY_SEC
            except Unavailable as error:
                # The loop turns, only the database is away: readiness says so, a restart would not help.
                pause = retry_sec = self._told(str(error), retry_sec)
            except Exception:  # noqa: BLE001 - whatever it was must not end the loop
                pause = retry_sec = self._told(traceback.format_exc(), retry_sec)
                is_sound = False
            if not self._stopping:
                await self._core.sleep_until_tick(pause)
            if is_sound:
                self._core.last_tick_at = self._core.clock.monotonic()

    def _told(self, error: str, retry_sec: float) -> float:
        self._core.emit(LoopFailed("ticker", error, retry_sec))
        return min(2 * retry_sec, _LONGEST_RETRY_SEC)

    async def _promote(self) -> int:
        """Queue the jobs that are due, the first of them; how many were found."""
        core, without = self._core, self._skipped()
        async with core.reading() as connection:
            first = await jobs.next_due(connection, without=without)
        if first is None or first > core.clock.now():
            return 0
        try:
            promoted = await core.write(lambda tx: _promote(core, tx, PROMOTED_AT_ONCE, without))
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - one of the rows cannot be promoted; find out which
            return await self._promote_one_by_one(without)
        self._tell(promoted)
        return len(promoted)

    async def _promote_one_by_one(self, without: Sequence[str]) -> int:
        """Queue each by a write of its own: they share commits all the same, and a bad one hurts no other."""
        core = self._core
        async with core.reading() as connection:
            due = await jobs.due(connection, core.clock.now(), PROMOTED_AT_ONCE, without=without)
        writes = [core.write(partial(_promote_if_pending, core, job.id)) for job in due]
        results = await asyncio.gather(*writes, return_exceptions=True)
        for job, result in zip(due, results, strict=True):
            if not isinstance(result, BaseException):
                self._tell(result)
            elif not isinstance(result, Unavailable):
                self._skipped_until[job.id] = core.clock.monotonic() + SKIP_SEC
                core.emit(RowSkipped(job.id, f"{type(result).__name__}: {result}"))
        for result in results:
            if isinstance(result, Unavailable):
                raise result
        return len(due)

    def _skipped(self) -> list[str]:
        """The ids of the rows that could not be promoted a little while ago."""
        now = self._core.clock.monotonic()
        self._skipped_until = {job_id: end for job_id, end in self._skipped_until.items() if end > now}
        return sorted(self._skipped_until)

    def _tell(self, promoted: Sequence[Job]) -> None:
        now = self._core.clock.now()
        for job in promoted:
            delay = job.delay_sec if job.delay_sec is not None else (job.run_at - job.submitted_at).total_seconds()
            late_ms = (now - job.run_at).total_seconds() * 1000
            self._core.emit(JobPromoted(job.id, job.tenant, delay, late_ms))

    async def _end_leases(self) -> None:
        """End what nobody renewed, each attempt by a write of its own: they share commits all the same."""
        core = self._core
        ended = core.leases.take_ended(core.clock.monotonic_ns(), LAPSED_AT_ONCE)
        results = await asyncio.gather(*(end_if_ended(core, lease) for lease in ended), return_exceptions=True)
        for lease, result in zip(ended, results, strict=True):
            if isinstance(result, BaseException):
                core.lease_kept(lease.job_id)
                core.emit(RowSkipped(lease.job_id, f"{type(result).__name__}: {result}"))

    async def _forget(self) -> None:
        """Drop what nothing depends on any more, so that names used once do not pile up."""
        core, now = self._core, self._core.clock.monotonic()
        if now - self._forgot_at < FORGET_EVERY_SEC:
            return
        self._forgot_at = now
        core.admission.forget_full()
        core.forget_names()
        if core.order.may_forget or core.forgotten_lanes:
            await core.write(lambda tx: _forget_lanes(core, tx))

    async def _renew(self) -> None:
        """Show that this process lives, where no lock on a file does; every transaction renews."""
        core = self._core
        if not core.is_alone and core.dispatcher.renew_in_sec <= 0:
            await core.write(_nothing)

    async def _pause(self) -> float:
        core = self._core
        pause = core.settings.tick_ms / 1000
        if not core.is_alone:
            pause = min(pause, core.dispatcher.renew_in_sec)
        async with core.reading() as connection:
            due = await jobs.next_due(connection, without=self._skipped())
        if due is not None:
            pause = min(pause, (due - core.clock.now()).total_seconds())
        if (end := core.leases.next_end()) is not None:
            pause = min(pause, (end - core.clock.monotonic_ns()) / 1e9)
        return max(0.0, pause)


async def _nothing(tx: Transaction) -> None:
    """A transaction that only proves who dispatches."""


async def _promote(core: Core, tx: Transaction, limit: int, without: Sequence[str]) -> list[Job]:
    due = await jobs.due(await tx.settled(), core.clock.now(), limit, without=without)
    return await _promote_these(core, due, tx)


async def _promote_if_pending(core: Core, job_id: str, tx: Transaction) -> list[Job]:
    job = await jobs.get(await tx.settled(), job_id)
    return await _promote_these(core, [job] if job and job.state is State.PENDING else [], tx)


async def _promote_these(core: Core, due: Sequence[Job], tx: Transaction) -> list[Job]:
    if not due:
        return []
    for tenant in {job.tenant for job in due} - core.known_tenants:
        tx.need_tenant(tenant)  # a row typed by hand in a session that checks no foreign keys
    for queue in {job.queue for job in due} - core.known_queues:
        tx.need_queue(queue)
    queued = [_enqueue(core, job) for job in due]
    moved = await jobs.promote_if_pending(await tx.settled(), queued)
    if moved != len(due):
        raise Redo
    for job, columns in zip(due, queued, strict=True):
        core.note_move(replace(job, state=State.QUEUED, **columns), State.PENDING)
    return list(due)


def _enqueue(core: Core, job: Job) -> dict[str, Any]:
    queued = core.order.enqueue(
        job_id=job.id,
        seq=job.seq,
        tenant=job.tenant,
        queue=job.queue,
        priority=job.priority,
        cost=job.cost,
        due_at=to_micros(job.due_at),
        submitted_at=to_micros(job.submitted_at),
    )
    return {"id": job.id, "effective_priority": queued.effective_priority, "queued_at": core.clock.now()}


async def _recount(core: Core, tx: Transaction) -> None:
    """Rows that a claim was refused count as what they are by now."""
    connection = await tx.reading()
    gone = set[int]()
    for job_id, dropped in core.to_recount.items():
        job = await jobs.get(connection, job_id)
        core.moves.note(Moved(job_id, dropped.queue, dropped.tenant, State.QUEUED, job.state if job else None, job))
        if job is None or job.queued_at is None:
            gone.add(dropped.seq)
    if gone:
        tx.after_commit(core.queued_since.drop, gone)
    tx.after_commit(core.to_recount.clear)
    tx.after_commit(core.counts.corrected)


async def _forget_lanes(core: Core, tx: Transaction) -> None:
    """Delete the rows of lanes that the order forgot earlier and has not met again, then let it forget more:
    it can do so only between two transactions."""
    gone = [pair for pair in core.forgotten_lanes if core.order.lane(*pair) is None]
    if gone:
        await queues.forget_lanes(await tx.settled(), gone)
    tx.after_commit(core.forget_lanes, FORGOTTEN_AT_ONCE)
