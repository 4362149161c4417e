"""Time that passes only when everybody waits: an event loop whose clock jumps to the next timer, so that a test of
hours takes no time and a lease ends on the tick."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for tests without threads and sockets."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    """Lets as much time pass as the loop would have slept."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("everybody waits for what will never happen")
            self._loop.now += timeout
        return ready


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
