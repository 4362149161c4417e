"""The real event loop with the world outside replaced: what comes in from there, and when, somebody else decides.
Nothing here waits, no time is real, and there are no threads."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Outside(Protocol):
    """All that is not the process: it moves whenever the loop looks out."""

    def turn(self, *, is_busy: bool, pause_sec: float | None) -> None:
        """`is_busy`: something is ready to run in any case. Otherwise something must come in, or the time must go on
        by `pause_sec` at most, when a timer is due; None: there is no timer."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs what is ready first come first served, as every loop of asyncio does, and keeps its own time."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._selector = _Window(outside)  # where asyncio looks for what comes in
        self._elapsed_ns = 0

    def time(self) -> float:
        return self._elapsed_ns / 1e9

    def advance(self, ns: int) -> None:
        """Time passes."""
        self._elapsed_ns += ns

    def run_in_executor(self, _executor: Any, _func: Any, *_args: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a thread in a simulation would be run by chance that nobody can repeat")

    def _process_events(self, _events: object) -> None:
        """What came in has told its futures already."""

    def _write_to_self(self) -> None:
        """Wakes a loop from another thread, and there is none."""


class _Window:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def select(self, timeout: float | None) -> None:
        self._outside.turn(is_busy=timeout == 0, pause_sec=timeout)
