"""Whether the database still answers. A connection that swallows everything looks like one that is slow: nobody is to
wait for the difference to show, and nobody is to be sent away from a database that is only busy."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

ANSWER_SEC: Final = 2.0
"""How long nothing is answered before those who wait for it are told so."""

STILL_AWAY_SEC: Final = 0.5
"""The same, where nobody has been served since it was last found silent."""

SEVER_SEC: Final = 4.0
"""How long nothing is answered before the connection is given up for dead. An answer may be late for a while, as when a
disk is busy, and to give up a connection in a commit has memory read again."""

_LOOK_SEC: Final = 0.25


class Answers:
    """When the database last answered any of those who share an engine."""

    def __init__(self) -> None:
        self._last_at = -math.inf

    def came(self, *_: object) -> None:
        """It has answered, or what it is asked next has only just been sent. Takes whatever an event of SQLAlchemy
        tells."""
        self._last_at = asyncio.get_running_loop().time()

    @contextmanager
    def missed(self, after_sec: float, act: Callable[[], None]) -> Iterator[None]:
        """While the block lasts, call `act` whenever nothing has been answered for so long, again and again."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle
        began, was_silent = loop.time(), False

        def look_in(pause: float) -> None:
            nonlocal timer
            timer = loop.call_later(pause, look)

        def look() -> None:
            nonlocal was_silent
            left = max(began, self._last_at) + after_sec - loop.time()
            # Twice in a row: after a loop that was held up the answer may be there, and only not taken yet.
            if left <= 0 and was_silent:
                act()
            was_silent = left <= 0
            look_in(max(left, _LOOK_SEC))

        timer = loop.call_later(after_sec, look)
        try:
            yield
        finally:
            timer.cancel()

    @asynccontextmanager
    async def required(self, after_sec: float) -> AsyncIterator[None]:
        """End the block with `TimeoutError` once nothing has been answered for so long.

        It is cancelled until it ends: a pool whose connection comes at the moment of a cancellation takes the
        connection and forgets the cancellation (CPython's gh-86296), which `asyncio.timeout` does not repeat.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the types: this is a coroutine
        cancelled = 0

        def cancel() -> None:
            nonlocal cancelled
            cancelled += 1
            task.cancel()

        try:
            with self.missed(after_sec, cancel):
                yield
        except asyncio.CancelledError as error:
            if cancelled and _uncancel(task, cancelled) == 0:
                raise TimeoutError from error
            raise
        else:
            _uncancel(task, cancelled)


def _uncancel(task: asyncio.Task[object], count: int) -> int:
    """Take so many cancellations back; how many of others are left."""
    for _ in range(count):
        task.uncancel()
    return task.cancelling()
