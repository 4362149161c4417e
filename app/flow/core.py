"""What every moment of a job's life shares: the order, the leases, the writer, the counts.
Built by `app.main` and handed to each function of this folder as its first argument."""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from app.clock import Clock
from app.errors import FairlaneError, NotDispatching, Unavailable
from app.events import Emit, LoopFailed
from app.flow.access.keyring import Keyring
from app.flow.admission import Admission
from app.flow.counts import Counts
from app.flow.keys import KeysInFlight
from app.flow.moves import Ended, Moved, Moves
from app.flow.steadiness import Steadiness
from app.flow.waiting import WaitingClaims
from app.flow.watch.asking import Asking
from app.flow.watch.feed import Feed
from app.flow.watch.few_names import FewNames
from app.flow.watch.last_hour import LastHour
from app.flow.watch.pace import Pace
from app.flow.watch.queued_since import QueuedSince
from app.flow.watch.sparing import Sparing
from app.scheduling.job import Job, State
from app.scheduling.leases import Lease, Leases
from app.scheduling.scheduler import Policy, QueuedJob, Scheduler, step_units
from app.settings import Settings
from app.spans import NO_SPANS, Spans
from app.store.dialect import SQLITE
from app.store.dispatcher import Dispatcher
from app.store.engine import Engines
from app.store.session import Connection, reading
from app.store.transaction import Transaction
from app.store.writer import Writer

A = TypeVar("A")
T = TypeVar("T")

TICKS_UNTIL_DEAD: Final = 10
"""Liveness turns red when the last tick is this many periods old,"""

SOONEST_DEAD_SEC: Final = 5.0
"""but not before: so long a tick may wait for a database that does not answer, and a restart would not help."""

KNOWN_NAMES: Final = 100_000
KEPT_PAYLOAD: Final = 1000
"""Bytes of the largest payload that is kept in memory with a lease."""

LEASE_RETRY_SEC: Final = 5.0


class Phase(StrEnum):
    """Where the service stands between its start and its end."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STANDING_BY = "standing by"


_CLOSED: Final = frozenset({Phase.STARTING, Phase.DRAINING})


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the loops turn (`live`), whether requests are served (`ready`), and why not."""

    live: bool
    ready: bool
    why: str


class Core:
    """One dispatching service, without its HTTP side. `writer` serves once `recover` has filled memory."""

    writer: Writer
    role = "dispatcher"
    cut_off_from: str | None = None
    """The address of the replica that dispatches, where that is not reached from here."""

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        dispatcher: Dispatcher,
        clock: Clock,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self.settings = settings
        self.engines = engines
        self.dispatcher = dispatcher
        self.clock = clock
        self.emit = emit
        self.spans = spans
        self.order = Scheduler(Policy(settings.policy), step_units(settings.priority_step))
        self.moves = Moves(emit)
        self.counts = Counts()
        self.moves.listen(self.counts.follow)
        self.queue_labels = FewNames(settings.metrics_queues, first="default")
        self.queued_since = QueuedSince(self.queue_labels)
        self.moves.listen(self.queued_since.follow)
        self.pace = Pace()
        self.moves.listen(self._follow_pace)
        self.last_hour = LastHour(clock)
        self.moves.listen(self.last_hour.follow)
        self.steadiness = Steadiness(clock, dispatcher.time_before)
        self.retired_to: tuple[datetime, int] | None = None
        self.retiring_since = -math.inf
        self.rolling_up = asyncio.Lock()
        """Held by who counts an hour, or deletes figures of hours: what is being counted could not be deleted."""
        self.leases = Leases()
        self.admission = Admission(clock, settings.default_rate_per_sec, settings.default_burst)
        self.keys = KeysInFlight()
        self.keyring = Keyring(clock)
        self.known_tenants: set[str] = set()
        self.known_queues: set[str] = set()
        self.forgotten_lanes: list[tuple[str, str]] = []
        self.to_recount: dict[str, QueuedJob] = {}
        self.waiting = WaitingClaims()
        self.asking = Asking(clock.monotonic())
        self.sparing = Sparing(clock)
        self.feed = Feed(self.moves, self.waiting.ended)
        self.is_serving_soon = False
        self.phase = Phase.STARTING
        self._spawned: set[asyncio.Task[None]] = set()
        self.last_tick_at = clock.monotonic()
        self.can_read = True
        self._next_tick_at = math.inf
        self._due_sooner = asyncio.Event()

    @property
    def is_alone(self) -> bool:
        """Whether no other replica can be there: a file has one server."""
        return self.engines.dialect == SQLITE

    @asynccontextmanager
    async def reading(self, *, patient: bool = False) -> AsyncIterator[Connection]:
        """A connection to look with, apart from the writer; raises `Unavailable` if the database is away, and unless
        `patient` also if it does not answer for a while."""
        try:
            async with reading(self.engines, patient=patient) as connection:
                yield connection
        except Unavailable:
            self.can_read = False
            raise
        self.can_read = True

    async def write(self, run: Callable[[Transaction], Awaitable[T]], *, new_jobs: int = 0, alone: bool = False) -> T:
        """`Writer.write`."""
        return await self.writer.write(run, new_jobs=new_jobs, alone=alone)

    async def note(self, run: Callable[[Connection], Awaitable[None]]) -> None:
        """Write down what decides nothing, such as who was here last. Raises `Unavailable`."""

        async def write(tx: Transaction) -> None:
            await run(await tx.settled())

        await self.write(write)

    async def write_each(
        self,
        run: Callable[[Core, Transaction, Sequence[A]], Awaitable[Sequence[T | FairlaneError]]],
        items: Sequence[A],
    ) -> Sequence[T | FairlaneError]:
        """`Writer.write_each`; what has the same `run` is of one kind."""
        return await self.writer.write_each(run, partial(run, self), items) if items else []

    async def write_shared(
        self, run: Callable[[Core, Transaction, Sequence[A]], Awaitable[Sequence[T | FairlaneError]]], item: A
    ) -> T:
        """`Writer.write_shared`; what has the same `run` is of one kind."""
        return await self.writer.write_shared(run, partial(run, self), item)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Work that nobody waits for. It does not die quietly, and the end of the service waits for it."""
        task = asyncio.create_task(work, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._ended)

    async def spawned_work(self) -> None:
        """Wait for all of it."""
        while self._spawned:
            await asyncio.wait(self._spawned)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._spawned.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.emit(LoopFailed(task.get_name(), "".join(traceback.format_exception(error)), 0))

    def _follow_pace(self, moves: Sequence[Moved]) -> None:
        queues = {moved.queue for moved in moves}
        waiting = {queue: self.counts.of_queue(queue)[State.QUEUED] for queue in queues}
        self.pace.follow(moves, waiting, self.clock.monotonic())

    def note_move(self, job: Job, old: State | None, ended: Ended | None = None) -> None:
        """`job`, as it is now, came from `old`, which may have `ended` an attempt: told once the transaction at
        hand is durable."""
        self.moves.note(Moved(job.id, job.queue, job.tenant, old, job.state, job, ended))

    def lease_begun(self, job: Job) -> None:
        """`job` was claimed, and perhaps started with it."""
        now = self.clock.monotonic_ns()
        length = seconds(job.lease_sec or 0)
        self.leases.put(Lease(job.id, job.token or "", job.seq, now + length, _timeout_at(job, now), kept(job)))
        self._wake_in(job.lease_sec or 0)

    def lease_started(self, job: Job) -> None:
        """`job` runs under the lease it has: from now on it can time out."""
        lease = self.leases.get(job.id)
        if lease is not None:
            timeout_at = _timeout_at(job, self.clock.monotonic_ns())
            as_seen = kept(job) if lease.job is not None else None  # a beat of the same commit may have come behind it
            self.leases.put(lease._replace(timeout_at=timeout_at, job=as_seen))
            self._wake_in(job.timeout_sec or 0)

    def lease_renewed(self, job: Job, length_sec: int, progress: float | None) -> None:
        """A beat came for `job`. Memory follows at once, not after the commit: should that fail, the lease
        only lives longer than promised, while the other way round a tick could end what was just renewed."""
        lease = self.leases.get(job.id)
        if lease is not None:
            expires_at = self.clock.monotonic_ns() + seconds(length_sec)
            as_seen = lease.job if progress is None else None  # the row tells how far it was
            self.leases.put(lease._replace(expires_at=expires_at, job=as_seen))

    def lease_kept(self, job_id: str) -> None:
        """It could not be ended; the ticker finds it again in a while."""
        lease = self.leases.get(job_id)
        if lease is not None:
            again_at = self.clock.monotonic_ns() + seconds(LEASE_RETRY_SEC)
            self.leases.put(lease._replace(expires_at=max(lease.expires_at, again_at)))

    def forget_names(self) -> None:
        """Keep the names that need no row any more from piling up; to forget one costs a statement."""
        for names in (self.known_tenants, self.known_queues):
            if len(names) > KNOWN_NAMES:
                names.clear()

    def forget_lanes(self, limit: int) -> None:
        """Between two transactions: let the order drop idle lanes; the next such write deletes their rows."""
        self.forgotten_lanes = self.order.forget_idle(limit)

    def wake_by(self, due: datetime) -> None:
        """Something is due at this time: the ticker must not sleep past it."""
        self._wake_in((due - self.clock.now()).total_seconds())

    async def sleep_until_tick(self, pause_sec: float) -> None:
        """What the ticker does between two ticks: it sleeps so long, or less if something is due sooner, be it
        that it was told of while the tick before was still at work."""
        self._next_tick_at = min(self._next_tick_at, self.clock.monotonic() + pause_sec)
        while (rest := self._next_tick_at - self.clock.monotonic()) > 0:
            self._due_sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._due_sooner.wait()
        self._next_tick_at = math.inf

    def _wake_in(self, pause_sec: float) -> None:
        at = self.clock.monotonic() + pause_sec
        if at < self._next_tick_at:
            self._next_tick_at = at
            self._due_sooner.set()

    def refuse_while_closed(self) -> None:
        """For what brings new work. Raises `Unavailable` while the service starts, `NotDispatching` once it drains and
        others may be there."""
        if self.phase in _CLOSED:
            refusal = NotDispatching if self.phase is Phase.DRAINING and not self.is_alone else Unavailable
            raise refusal(f"the service is {self.phase}; send this again in a moment")

    def health(self) -> Health:
        """For the probes of whoever runs this."""
        age = self.clock.monotonic() - self.last_tick_at
        period = self.settings.tick_ms / 1000
        live = self.phase is not Phase.SERVING or age < max(TICKS_UNTIL_DEAD * period, SOONEST_DEAD_SEC)
        if self.writer.lost is not None:
            return Health(live=False, ready=False, why=str(self.writer.lost))
        if self.writer.is_in_doubt or not self.can_read:
            return Health(live, ready=False, why="the database is away")
        if self.phase is not Phase.SERVING:
            return Health(live, ready=False, why=f"the service is {self.phase}")
        why = "serving" if live else f"the last tick is {age:.1f} s old"
        return Health(live, ready=live, why=why)


def kept(job: Job) -> Job | None:
    """What is kept of a leased job: itself, if its payload is small. One that was typed by hand may be too deep to
    tell."""
    try:
        is_small = job.payload is None or len(_encode(job.payload)) <= KEPT_PAYLOAD
    except RecursionError:
        is_small = False
    return job if is_small else None


_encode: Final = msgspec.json.Encoder().encode


def _timeout_at(job: Job, now: int) -> int | None:
    if job.started_at is None or job.timeout_sec is None:
        return None
    return now + seconds(job.timeout_sec)


def seconds(n: float) -> int:
    """Whole nanoseconds."""
    return int(n * 1_000_000_000)
