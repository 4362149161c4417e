"""How fast a queue has been served lately, so that a forecast can say how well it knows. In memory only: after a start
nobody knows anything, and says so."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from app.flow.moves import Moved
from app.scheduling.job import State

QUEUES: Final = 1_000
"""Of so many queues the pace is known; that of the one that was idle longest is forgotten first."""

DISPATCHES: Final = 200
"""So many of its latest dispatches are remembered of each."""

FEWEST: Final = 10
"""Nothing is foretold from fewer."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """In how many seconds something comes: in one of ten stretches like it that were seen it came before `earliest`,
    in half of them before `likely`, in nine of ten before `latest`."""

    earliest: float
    likely: float
    latest: float


@dataclass(slots=True)
class _Served:
    """When a queue was dispatched from, by a clock that stands still while nothing waits in it."""

    waited_sec: float = 0.0
    waiting_since: float | None = None
    dispatches: deque[float] = field(default_factory=lambda: deque(maxlen=DISPATCHES))

    def now(self, monotonic: float) -> float:
        """What that clock shows."""
        return self.waited_sec + (0.0 if self.waiting_since is None else monotonic - self.waiting_since)

    def set(self, monotonic: float, *, is_waiting: bool) -> None:
        """From here on the clock runs, or stands still."""
        self.waited_sec = self.now(monotonic)
        self.waiting_since = monotonic if is_waiting else None


class Pace:
    """Follows the moves of jobs, commit by commit."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, _Served] = OrderedDict()

    def follow(self, moves: Sequence[Moved], waiting: dict[str, int], monotonic: float) -> None:
        """These have happened at that time; `waiting` says how many jobs now wait in each of their queues."""
        for queue in waiting:
            if queue not in self._queues:
                self._queues[queue] = _Served()
            self._queues.move_to_end(queue)
        for moved in moves:
            if moved.new is State.SCHEDULED:
                served = self._queues[moved.queue]
                served.dispatches.append(served.now(monotonic))
        for queue, number in waiting.items():
            self._queues[queue].set(monotonic, is_waiting=number > 0)
        while len(self._queues) > QUEUES:
            self._queues.popitem(last=False)

    def forecast(self, queue: str, dispatches: int, monotonic: float) -> Forecast | None:
        """When the last of so many dispatches to come will be; None if too few have been seen.

        As many dispatches are taken from what was seen again and again, each time beginning one later; if there are
        not enough of them for that, a quarter of what was seen, and it is stretched.
        """
        served = self._queues.get(queue)
        if served is None or len(served.dispatches) < FEWEST:
            return None
        seen = list(served.dispatches)
        length = min(dispatches, max(1, (len(seen) - 1) // 4))
        took = sorted(end - begin for begin, end in zip(seen, seen[length:], strict=False))
        stretch = dispatches / length
        idle = served.now(monotonic) - seen[-1]
        earliest, likely, latest = (_nearest_rank(took, share) * stretch for share in (0.1, 0.5, 0.9))
        # Should the latest one be longer ago than it ever took, that is the best guess of how slow it may be.
        return Forecast(max(0.0, earliest - idle), max(0.0, likely - idle), max(latest, idle))


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
