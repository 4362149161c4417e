"""A worker: claims jobs as it has room for them, runs a handler for each, keeps their leases alive, and reports. One
job is in `work`, what its lease is by the worker's clock in `leases`, how results are told in `reports`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

from app.client.bell import Bell
from app.client.calls import MOST_IN_BULK
from app.client.client import AsyncClient
from app.client.errors import Conflict, Denied, FairlaneError, NotFound, RateLimited, Unavailable, UnexpectedAnswer
from app.client.leases import BEATS_A_LEASE, Leases
from app.client.reports import Reporter
from app.client.retry import Backoff
from app.client.wire import ClaimedJob, Hold
from app.client.work import Handler, Work, log

_PASSING: Final = (Unavailable, UnexpectedAnswer, RateLimited)
_LEASE_SEC: Final = range(3, 3601)
_LONGEST_NAME: Final = 128
_ANSWER_SEC: Final = 1.0
_EMPTY_SEC: Final = 1.0
_PROGRESS_SEC: Final = 1.0
_UNWIND_SEC: Final = 5.0
_ENDS: Final = "the worker ends"


class Worker:
    """Claims jobs and runs `handler` for each, up to `concurrency` at once, until it is stopped.

    A handler is called with a `Context`, whose `job` it is to do. What it returns (any JSON of at most 64 KiB) is the
    job's result; what it raises fails the attempt, and the job is tried again while attempts are left, unless it
    raised `GiveUp`. A handler that is a coroutine function runs on the event loop and must not block it; any other runs
    in a thread of its own.

    A job whose lease is lost, be it that the service says so or that no heartbeat was answered for the lease's length
    by the worker's own clock, is stopped and not reported: a coroutine is cancelled, a thread is told by its context.
    It may run elsewhere from then on. Until the handler has ended, its place is not given to another job; and if the
    same job is claimed again meanwhile, it is not begun before that.

    When the worker is stopped, it claims no more, gives back what it has not begun, lets handlers run for up to
    `grace_sec`, then stops them and releases their jobs: those are queued again at once, and the attempt is not
    counted. A service that restarts or cannot be reached is waited for.

    Args:
        client: for all calls.
        handler: what does a job.
        queues: what to claim from; each is picked empty before the next is tried.
        concurrency: how many jobs it holds at most, 1-1000.
        lease_sec: how long a lease is, 3-3600 whole seconds. It beats for all it holds every third of that; so long a
            job may stay undone if the worker dies, and so late a handler may learn that its job was cancelled.
        grace_sec: how long handlers may go on when it is stopped. Give whoever kills the process 10 seconds more.
        name: the name to claim under; the machine's, the process's and a bit of chance if none is given.
    """

    def __init__(
        self,
        client: AsyncClient,
        handler: Handler,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 4,
        lease_sec: int = 30,
        grace_sec: float = 20.0,
        name: str | None = None,
    ) -> None:
        if not 1 <= concurrency <= MOST_IN_BULK:
            raise ValueError(f"concurrency is 1-{MOST_IN_BULK}, not {concurrency}")
        if lease_sec not in _LEASE_SEC:
            raise ValueError(f"lease_sec is {_LEASE_SEC[0]}-{_LEASE_SEC[-1]} whole seconds, not {lease_sec}")
        if isinstance(queues, str):
            raise TypeError(f"queues are a list of names, not {queues!r}")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"[-_LONGEST_NAME:]
        self._client = client
        # A claim's and a beat's lease counts from when it was sent: each is sent once, and the sending is our own.
        self._once = client.without_retries().within(min(client.terms.try_sec, lease_sec / BEATS_A_LEASE))
        self._handler = handler
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._lease_sec = lease_sec
        self._grace_sec = grace_sec
        self._backoff = Backoff(0.5, 15.0)
        self._beat_backoff = Backoff(0.2, lease_sec / BEATS_A_LEASE / 2)
        self._bell = Bell()
        self._leases = Leases(lease_sec)
        self._reporter = Reporter(client)
        self._works: dict[Hold, Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._missed_beats = 0
        self._is_stopping = False
        self._is_hurried = False

    def run_forever(self) -> None:
        """Run it as the whole of a program: until SIGTERM or SIGINT, and close the client.

        Raises as `run`.
        """

        async def main() -> None:
            async with self._client:
                await self.run()

        asyncio.run(main())

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run it until it is stopped, by `stop` or, unless told not to, by SIGTERM or SIGINT. Once only. If the task
        that awaits this is cancelled, the worker stops without a grace.

        Raises:
            Refused: the service will not take its claims, for a wrong name of a queue or a wrong key. The worker has
                then stopped as it does when it is told.
            Denied: its key has ended. Handlers are then stopped without a grace: nobody would hear of their results.
        """
        if self._loop is not None:
            raise RuntimeError("a worker runs once; make another")
        self._loop = asyncio.get_running_loop()
        log.info("worker %s claims from %s, up to %d jobs", self.name, ", ".join(self._queues), self._concurrency)
        loops = (self._claim_until_stopped, self._beat, self._watch, self._tell_progress, self._reporter.run)
        tasks = [asyncio.create_task(each(), name=each.__name__) for each in loops]
        with _ending_signals(self.stop if handle_signals else None):
            try:
                # The claims end when they are to stop, the others never, unless something is wrong.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._is_hurried = True
                raise
            finally:
                self._is_stopping = True
                self._bell.ring()
                try:
                    await self._end(tasks[0])
                finally:
                    await _cancelled([*tasks, *self._tasks])
        log.info("worker %s has ended", self.name)
        for error in [task.exception() for task in tasks if not task.cancelled()]:
            if error is not None:
                raise error

    def stop(self) -> None:
        """Make it end as SIGTERM does; may be called from any thread. Called again, it waits for no handler."""
        if self._loop is None:
            self._ask_to_stop()
            return
        with suppress(RuntimeError):  # it has ended, and its loop with it
            self._loop.call_soon_threadsafe(self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        self._is_hurried = self._is_stopping
        self._is_stopping = True
        log.info("worker %s is told to end, with %d jobs in hand", self.name, len(self._works))
        self._bell.ring()

    # --- claims

    async def _claim_until_stopped(self) -> None:
        failures = 0
        while True:
            await self._bell.until(lambda: self._is_stopping or self._may_claim())
            if self._is_stopping:
                return
            # An answer that was lost may have leased jobs that nobody does. Until one arrives, risk only one.
            limit = 1 if failures or self._missed_beats else self._free()
            try:
                await self._claim(limit)
            except _PASSING as error:
                failures += 1
                pause_sec = self._backoff.pause(
                    failures, self._client.terms.dice(), getattr(error, "retry_after", None)
                )
                log.warning("nothing can be claimed, next try in %.1f s: %s", pause_sec, error)
                await self._nap(pause_sec)
            else:
                failures = 0

    def _may_claim(self) -> bool:
        """Whether there is room; no more is taken while what is held cannot be kept."""
        return self._free() > 0 and not (self._missed_beats and self._leases)

    def _free(self) -> int:
        return self._concurrency - len(self._works)

    async def _claim(self, limit: int) -> None:
        sent_at = self._now()
        wait_sec = min(30, self._lease_sec // BEATS_A_LEASE)
        claiming = asyncio.create_task(
            self._once.claim(self.name, queues=self._queues, limit=limit, lease_sec=self._lease_sec, wait_sec=wait_sec)
        )
        claiming.add_done_callback(lambda _: self._bell.ring())
        try:
            await self._bell.until(lambda: claiming.done() or self._is_stopping)
            if not claiming.done() and not self._is_hurried:
                # If there was a job, its answer is on the way, and would be lost with the job.
                await asyncio.wait({claiming}, timeout=max(0.0, sent_at + _ANSWER_SEC - self._now()))
        finally:
            claiming.cancel()
            await asyncio.wait({claiming})
        if claiming.cancelled():
            return
        jobs = claiming.result()
        for job in jobs:
            self._begin(job, sent_at)
        if not jobs and self._now() < sent_at + wait_sec / 2:
            await self._nap(_EMPTY_SEC)  # a service that drains lets waiting claims go

    def _begin(self, job: ClaimedJob, sent_at: float) -> None:
        work = Work(job, self._handler, self._bell.ring)
        self._works[work.hold] = work
        self._leases.take(work.hold, sent_at)
        if self._is_stopping:
            work.stop(_ENDS)
        task = asyncio.create_task(self._do(work), name=f"work on {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._bell.ring()

    async def _nap(self, sec: float) -> None:
        ends_at = self._now() + sec
        await self._bell.until(lambda: self._is_stopping, or_at=lambda: ends_at)

    # --- one job

    async def _do(self, work: Work) -> None:
        try:
            await work.do(self._start)
            if work.report is not None:
                answer = await self._reporter.tell(work.report)
                if not answer.ok:
                    log.warning("the report of job %s was not taken: %s", work.job.id, answer.error)
            elif work.hold in self._leases:
                await self._release(work.hold)
        finally:
            self._leases.drop(work.hold)
            del self._works[work.hold]
            self._bell.ring()

    async def _start(self, work: Work) -> bool:
        """Whether its handler may begin."""
        await self._until_free(work)
        left_sec = self._leases.ends_at(work.hold) - self._now()
        if left_sec <= 0:
            self._lose(work.hold, "the lease had run out before the job could be started")
            return False
        try:
            await self._client.within(left_sec).start(work.hold)
        except (Conflict, NotFound) as error:
            self._leases.drop(work.hold)
            work.context.stop(str(error))
            log.warning("job %s is not begun: %s", work.job.id, error)
            return False
        except FairlaneError as error:
            work.context.stop(str(error))
            log.warning("job %s cannot be started: %s", work.job.id, error)
            return False
        await self._until_free(work)
        return True

    async def _until_free(self, work: Work) -> None:
        """Wait until no other handler runs for the same job: one whose lease was lost may not have ended yet."""
        others = [other for other in self._works.values() if other.job.id == work.job.id and other is not work]
        await self._bell.until(lambda: not any(other.is_handled for other in others))

    async def _release(self, hold: Hold) -> None:
        try:
            await self._client.within(max(0.1, self._leases.ends_at(hold) - self._now())).release(hold)
        except (Conflict, NotFound) as error:
            log.info("job %s is not ours to release any more: %s", hold.id, error)
        except FairlaneError as error:
            log.warning("job %s could not be released and waits for its lease to lapse: %s", hold.id, error)

    def _lose(self, hold: Hold, reason: str) -> None:
        self._leases.drop(hold)
        work = self._works.get(hold)
        if work is not None and work.report is None:
            log.warning("job %s is stopped: %s", hold.id, reason)
            work.stop(reason)

    # --- leases

    async def _beat(self) -> None:
        while True:
            await self._bell.until(lambda: False, or_at=self._beat_due_at)
            holds, sent_at = self._leases.all(), self._now()
            try:
                beats = await self._once.heartbeat_all(holds, lease_sec=self._lease_sec)
            except Denied as error:  # a key that has ended is good for no report either: all that is done is in vain
                for hold in holds:
                    self._lose(hold, str(error))
                raise
            except FairlaneError as error:
                self._missed_beats += 1
                pause_sec = self._beat_backoff.pause(self._missed_beats, self._client.terms.dice())
                log.warning("no heartbeat, next try in %.1f s: %s", pause_sec, error)
                await asyncio.sleep(pause_sec)
                continue
            self._missed_beats = 0
            self._leases.renew((hold for hold, beat in zip(holds, beats, strict=True) if beat.ok), sent_at)
            for hold, beat in zip(holds, beats, strict=True):
                if not beat.ok:
                    self._lose(hold, beat.error or "the lease is lost")
            self._bell.ring()

    def _beat_due_at(self) -> float:
        """At once if the last one was missed: how the service is decides whether more may be claimed."""
        return self._now() if self._missed_beats and self._leases else self._leases.beat_due_at()

    async def _watch(self) -> None:
        while True:
            await self._bell.until(lambda: False, or_at=self._leases.first_ends_at)
            for hold in self._leases.lapsed(self._now()):
                self._lose(hold, f"no heartbeat was answered for the lease's {self._lease_sec} s")

    async def _tell_progress(self) -> None:
        while True:
            await self._bell.until(lambda: bool(self._with_progress()))
            await asyncio.gather(*map(self._tell_progress_of, self._with_progress()))
            await asyncio.sleep(_PROGRESS_SEC)

    def _with_progress(self) -> list[Work]:
        works = self._works.values()
        return [
            work
            for work in works
            if work.untold_progress is not None and work.report is None and work.hold in self._leases
        ]

    async def _tell_progress_of(self, work: Work) -> None:
        progress, work.untold_progress = work.untold_progress, None
        sent_at = self._now()
        try:
            await self._once.heartbeat(work.hold, lease_sec=self._lease_sec, progress=progress)
        except (Conflict, NotFound) as error:
            self._lose(work.hold, str(error))
        except FairlaneError as error:
            log.debug("progress of job %s is not told: %s", work.job.id, error)
        else:
            self._leases.renew([work.hold], sent_at)
            self._bell.ring()

    # --- the end

    async def _end(self, claiming: asyncio.Task[None]) -> None:
        """See all jobs off: begun ones within the grace, the others at once."""
        await asyncio.wait({claiming})
        self._stop_works(lambda work: not work.has_begun)
        grace_ends_at = self._now() + self._grace_sec
        await self._bell.until(lambda: not self._works or self._is_hurried, or_at=lambda: grace_ends_at)
        self._stop_works(lambda _: True)
        unwind_ends_at = self._now() + _UNWIND_SEC
        await self._bell.until(lambda: not self._works, or_at=lambda: unwind_ends_at)
        await self._release_those_that_do_not_end()

    def _stop_works(self, which: Callable[[Work], bool]) -> None:
        for work in list(self._works.values()):
            if which(work):
                work.stop(_ENDS)

    async def _release_those_that_do_not_end(self) -> None:
        stuck = [work for work in self._works.values() if work.report is None and work.hold in self._leases]
        for work in stuck:
            log.error("the handler of job %s does not end; the job is released all the same", work.job.id)
        releasing = [asyncio.create_task(self._release(work.hold)) for work in stuck]
        if releasing:
            await asyncio.wait(releasing, timeout=_UNWIND_SEC)
            await _cancelled(releasing)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


@contextmanager
def _ending_signals(stop: Callable[[], None] | None) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` meanwhile, where this thread may say so."""
    loop, taken = asyncio.get_running_loop(), []
    if stop is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait a moment for the tasks to have ended; whoever does not let itself be cancelled is left behind."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_ANSWER_SEC)
