"""Something that many want to see and that costs something to make."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from app.clock import Clock
from app.errors import Unavailable

T = TypeVar("T")

_FRESH_SEC: Final = 1.0
_CLOCK_GRAIN_SEC: Final = 0.01
"""A sleep may end that much too soon."""

_PART: Final = 10
"""Making it takes at most a tenth of the time, however many ask."""


class Shared(Generic[T]):
    """Made when somebody asks, and not again until it is a second old; nor is it tried again sooner if it could not be
    made, for else all who ask would wait for a database that is away, one after the other."""

    def __init__(self, make: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._stale_at = -math.inf
        self._making = asyncio.Lock()
        self._made: T
        self._failed: Unavailable | None = None

    async def get(self) -> T:
        """The newest, for all who ask at the same time the same. Raises what making it raises."""
        async with self._making:
            if self._clock.monotonic() >= self._stale_at:
                await self._make_anew()
            if self._failed is not None:
                raise Unavailable(str(self._failed), self._failed.retry_after)
            return self._made

    async def _make_anew(self) -> None:
        began, self._failed = self._clock.monotonic(), None
        try:
            self._made = await self._make()
        except Unavailable as error:
            self._failed = error
            began = self._clock.monotonic()
        took = self._clock.monotonic() - began
        self._stale_at = began + max(_FRESH_SEC, _PART * took)

    async def stale(self) -> None:
        """Wait until it would be made anew."""
        async with self._making:  # what is being made just now may have missed what just happened
            pass
        left = self._stale_at - self._clock.monotonic()
        await asyncio.sleep(max(0.0, left) + _CLOCK_GRAIN_SEC)
