"""The moves of jobs from state to state: noted inside a transaction, told to whoever listens once it is durable."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from app.events import Emit, LoopFailed
from app.scheduling.job import Job, Outcome, State


class Ended(NamedTuple):
    """How and when an attempt ended; `started_at` is None if it never started."""

    outcome: Outcome
    started_at: datetime | None
    ended_at: datetime


class Moved(NamedTuple):
    """One job of `tenant` in `queue` went from `old` (None: it is new) to `new` (None: its row is gone).
    `job` is as the move left it; `ended` is the attempt that the move ended, if it did."""

    job_id: str
    queue: str
    tenant: str
    old: State | None
    new: State | None
    job: Job | None
    ended: Ended | None = None


Listener = Callable[[Sequence[Moved]], None]
"""Is handed the moves of one commit, in order. Must not block."""


class Moves:
    """The moves of the transaction at hand, and who is told of them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._noted: list[Moved] = []
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """From now on `listener` is told of each commit; call what is returned to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def noted(self) -> Sequence[Moved]:
        """What moves if the transaction at hand is committed."""
        return self._noted

    def note(self, moved: Moved) -> None:
        """A job moves, if the transaction at hand is committed."""
        self._noted.append(moved)

    def mark(self) -> int:
        """How much is noted."""
        return len(self._noted)

    def forget_from(self, mark: int) -> None:
        """What was noted since `mark` did not happen."""
        del self._noted[mark:]

    def commit(self) -> None:
        """What was noted has happened. A listener that raises hurts no other."""
        if not self._noted:
            return
        happened, self._noted = self._noted, []
        for listener in tuple(self._listeners):
            try:
                listener(happened)
            except Exception:  # noqa: BLE001 - a fault of a listener's must not end the one writer
                self._emit(LoopFailed("moves", traceback.format_exc(), retry_sec=0))
