"""Work that can wait, on the loop that everything else runs on: one at a time, and never more than a small part of the
loop's time in all."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from app.clock import Clock

_REST: Final = 9
"""So many times as long as it worked it rests: a tenth of the time is the most it takes."""

_LONGEST_REST_SEC: Final = 0.05
"""On a machine that is busy with something else, work looks longer than it was."""


class Sparing:
    """Entered, it is somebody's turn, to work for about a millisecond between two `pause`s."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._began = self._rested_at = clock.monotonic()

    @property
    def is_taken(self) -> bool:
        """Whether it is anybody's turn."""
        return self._turn.locked()

    async def __aenter__(self) -> Self:
        await self._turn.acquire()
        try:
            await self._rest()
        except BaseException:
            self._turn.release()
            raise
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._note()
        self._turn.release()

    async def pause(self) -> None:
        """Rest for what was done since the last one, while everybody else goes first."""
        self._note()
        await self._rest()

    def _note(self) -> None:
        now = self._clock.monotonic()
        self._rested_at = now + min(_LONGEST_REST_SEC, _REST * (now - self._began))

    async def _rest(self) -> None:
        await asyncio.sleep(max(0.0, self._rested_at - self._clock.monotonic()))
        self._began = self._clock.monotonic()
