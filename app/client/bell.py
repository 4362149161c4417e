"""How the parts of a worker wait for each other: for something to be so, or for a moment to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf


def never() -> float:
    """A moment that does not come."""
    return inf


class Bell:
    """Whoever changes something that others wait for rings; each of them then looks again for itself."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Let all who wait look again."""
        self._rung.set()
        self._rung.clear()

    async def until(self, happened: Callable[[], bool], or_at: Callable[[], float] = never) -> None:
        """Wait until it has happened, or that moment of the loop's clock has come; both are looked at anew at each
        ring."""
        loop = asyncio.get_running_loop()
        while not happened() and (moment := or_at()) > loop.time():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if moment == inf else moment):
                    await self._rung.wait()
