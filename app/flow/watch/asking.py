"""When a worker last asked for jobs of a queue. In memory, and bounded: queues are named by whoever asks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

QUEUES: Final = 10_000
"""Of so many queues it is known; the one that was not asked for the longest is forgotten first."""


class Asking:
    """Who asked when, in seconds of the monotonic clock."""

    def __init__(self, monotonic: float) -> None:
        self.since = monotonic
        """Before that, nobody knows."""
        self._asked: OrderedDict[str, float] = OrderedDict()

    def note(self, queues: Iterable[str], monotonic: float) -> None:
        """A worker asks for jobs of these, or has waited for them until now."""
        for queue in queues:
            self._asked[queue] = monotonic
            self._asked.move_to_end(queue)
        while len(self._asked) > QUEUES:
            self._asked.popitem(last=False)

    def last(self, queue: str) -> float | None:
        """When a worker last asked for it; None if nobody has since the start."""
        return self._asked.get(queue)
