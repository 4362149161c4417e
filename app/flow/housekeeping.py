"""The slow regular work beside the ticker: each round has a loop of its own, so that none waits for another."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.errors import Unavailable
from app.events import LoopFailed
from app.flow.core import Core

END_SEC: Final = 1.0
"""So long a round at work has to end by itself when the service ends."""

_FIRST_RETRY_SEC: Final = 1.0


@dataclass(frozen=True, slots=True)
class Round:
    """Work done every `every_sec`, first so long after the start; it answers whether more of it waits, which is
    then done at once. It may be cancelled wherever it waits: the end of the service waits
    only a moment for it, and for the statement that the database is at."""

    name: str
    every_sec: float
    work: Callable[[Core], Awaitable[bool]]


class Housekeeper:
    """Does each round in its time. None dies quietly: an error is told, waited out for a while, and tried again."""

    def __init__(self, core: Core, rounds: Sequence[Round]) -> None:
        self._core = core
        self._rounds = rounds
        self._turned_at = dict.fromkeys((each.name for each in rounds), core.clock.monotonic())
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._turn(each), name=each.name) for each in self._rounds]

    async def stop(self, within_sec: float = END_SEC) -> None:
        """No more rounds. Those at work are finished if that is soon, and else cut, as a kill would."""
        self._stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_sec)
            for task in late:
                task.cancel()
            await asyncio.wait(self._tasks)
        self._tasks = []

    def ages(self) -> dict[str, tuple[float, float]]:
        """By the name of each round: for how many seconds it has not come to its end, and how often it should."""
        now = self._core.clock.monotonic()
        return {each.name: (now - self._turned_at[each.name], each.every_sec) for each in self._rounds}

    async def _turn(self, each: Round) -> None:
        pause, retry_sec = each.every_sec, _FIRST_RETRY_SEC
        while await self._sleep(pause):
            try:
                with self._core.spans.span("round", loop=each.name):
                    pause = 0.0 if await each.work(self._core) else each.every_sec
                retry_sec = _FIRST_RETRY_SEC
                self._turned(each)
            except Exception as error:  # noqa: BLE001 - whatever it was must not end the loop
                if isinstance(error, Unavailable):  # the loop turns, as the ticker's does: only the database is away
                    self._turned(each)
                told = str(error) if isinstance(error, Unavailable) else traceback.format_exc()
                self._core.emit(LoopFailed(each.name, told, retry_sec))
                pause, retry_sec = retry_sec, min(2 * retry_sec, max(each.every_sec, _FIRST_RETRY_SEC))

    def _turned(self, each: Round) -> None:
        self._turned_at[each.name] = self._core.clock.monotonic()

    async def _sleep(self, pause: float) -> bool:
        """Whether to go on, after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        return not self._stopping.is_set()
