"""What a handler is given beside its job: how to tell its progress, and how to learn that it is to stop."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from app.client.wire import ClaimedJob


class TryAgain(Exception):
    """Raised by a handler: the attempt has failed, and another may help. Its text is the job's error, word for word;
    of any other exception the kind is told too."""


class GiveUp(Exception):
    """Raised by a handler: the job has failed, and another try would not help. Its text is the job's error."""


class Stopped(Exception):
    """Raised by `Context.raise_if_stopped`: what the handler does is not wanted any more."""


class Context:
    """One attempt of a job, as its handler sees it. All of it may be used from any thread."""

    def __init__(self, job: ClaimedJob, tell_progress: Callable[[float], None]) -> None:
        self.job = job
        self._tell_progress = tell_progress
        self._stopped = Event()
        self._reason: str | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether to stop working: the lease is lost, the job was cancelled, or the worker ends. From then on
        whatever the handler returns or raises counts for nothing."""
        return self._stopped.is_set()

    @property
    def stop_reason(self) -> str | None:
        """Why, in a sentence for a person; None while the work is wanted."""
        return self._reason

    def raise_if_stopped(self) -> None:
        """For a handler in a thread, which nobody can stop but itself: to be called now and then.

        Raises:
            Stopped: the work is not wanted any more.
        """
        if self.is_stopped:
            raise Stopped(self._reason)

    def wait_stopped(self, timeout_sec: float | None = None) -> bool:
        """Sleep in a thread for so long, or until the work is not wanted any more; whether it is so."""
        return self._stopped.wait(timeout_sec)

    def set_progress(self, progress: float) -> None:
        """Say how far the work has got, 0-1. It is told to the service at most once a second, the last value only.

        Raises:
            ValueError: it is no such number.
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is a number from 0 to 1, not {progress}")
        self._tell_progress(float(progress))

    def stop(self, reason: str) -> None:
        """Tell the handler to stop. Done by the worker; the first reason stays."""
        if not self.is_stopped:
            self._reason = reason
            self._stopped.set()
