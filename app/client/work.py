"""One claimed job in a worker's hands, from its start to the end of its handler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from app.client.context import Context, GiveUp, TryAgain
from app.client.threads import in_thread
from app.client.wire import ClaimedJob, Completed, Failed

Handler: TypeAlias = Callable[[Context], Awaitable[Any]] | Callable[[Context], Any]

log: Final = logging.getLogger("fairlane.worker")

_MOST_ERROR: Final = 8192  # characters; the service keeps 4 KiB and marks the cut


class Work:
    """One attempt. `report` is how its handler has ended; it stays None if the handler was stopped before."""

    def __init__(self, job: ClaimedJob, handler: Handler, news: Callable[[], None]) -> None:
        self.job = job
        self.hold = job.hold
        self.context = Context(job, self._take_progress)
        self.report: Completed | Failed | None = None
        self.has_begun = False
        self.untold_progress: float | None = None
        self._handler = handler
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._doing: asyncio.Task[None] | None = None

    @property
    def is_handled(self) -> bool:
        """Whether its handler runs at this moment, be it wanted or not."""
        return self.has_begun and self._doing is not None and not self._doing.done()

    async def do(self, start: Callable[[Work], Awaitable[bool]]) -> None:
        """Run the handler, once `start` has said that it may run, to its end."""
        if self.context.is_stopped:
            return
        self._doing = asyncio.create_task(self._do(start), name=f"job {self.job.id}")
        await asyncio.wait({self._doing})
        if not self._doing.cancelled():
            self._doing.result()

    def stop(self, reason: str) -> None:
        """Make the handler end, if it has not: one that is a coroutine is cancelled, one in a thread is told."""
        if self.report is not None:
            return
        self.context.stop(reason)
        if self._doing is not None and not (self.has_begun and self._is_blocking):
            self._doing.cancel()

    async def _do(self, start: Callable[[Work], Awaitable[bool]]) -> None:
        if not await start(self):
            return
        self.has_begun = True
        try:
            report: Completed | Failed = self._completed(await self._handle())
        except asyncio.CancelledError:
            if self.context.is_stopped:
                raise
            report = self._failed("the handler was cancelled, and not by the worker")
        except GiveUp as error:
            report = self._failed(str(error) or "given up", retry=False)
        except TryAgain as error:
            report = self._failed(str(error) or "failed")
        except (Exception, SystemExit) as error:  # whatever a handler raises is its job's failure
            report = self._failed(f"{type(error).__name__}: {error}")
            if not self.context.is_stopped:
                log.warning("job %s failed", self.job.id, exc_info=error)
        if not self.context.is_stopped:
            self.report = report

    async def _handle(self) -> Any:
        if not self._is_blocking:
            return await self._handler(self.context)
        result = await in_thread(self._handler, self.context, name=f"job {self.job.id}")
        return await result if inspect.isawaitable(result) else result

    @property
    def _is_blocking(self) -> bool:
        handler = self._handler
        return not (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__))

    def _completed(self, result: Any) -> Completed | Failed:
        try:
            encoded = msgspec.json.encode(result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return self._failed(f"the result is no JSON: {error}")
        return Completed(self.hold.id, self.hold.token, result=msgspec.Raw(encoded))

    def _failed(self, error: str, *, retry: bool = True) -> Failed:
        return Failed(self.hold.id, self.hold.token, error=sendable(error), retry=retry)

    def _take_progress(self, progress: float) -> None:
        with suppress(RuntimeError):  # a thread has outlived the worker
            self._loop.call_soon_threadsafe(self._note_progress, progress)

    def _note_progress(self, progress: float) -> None:
        self.untold_progress = progress
        self._news()


def sendable(text: str) -> str:
    """The text as the service takes it: no lone surrogates, no NUL, and no longer than it need be."""
    return text[:_MOST_ERROR].encode(errors="backslashreplace").decode().replace("\0", "\\0")
