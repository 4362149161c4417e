"""Keys that count how often they are compared: the cost of a heap in steps, not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from app.scheduling.policies import VirtualTime


@dataclass
class Counter:
    count: int = 0


_counter = Counter()


class CountedKey(tuple[int, ...]):
    """A heap's key that counts its comparisons."""

    __slots__ = ()

    def __lt__(self, other: tuple[int, ...]) -> bool:
        _counter.count += 1
        return super().__lt__(other)


class CountedBytes(bytes):
    """What is packed, and counts its comparisons."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        _counter.count += 1
        return super().__lt__(other)


def count_keys(patch: pytest.MonkeyPatch) -> None:
    """From now on all comparisons of jobs and lanes are counted."""
    pack, lane_key = VirtualTime.pack, VirtualTime.lane_key
    patch.setattr(VirtualTime, "pack", lambda self, job, lane: CountedBytes(pack(self, job, lane)))
    patch.setattr(VirtualTime, "lane_key", lambda self, time, head: CountedKey(lane_key(self, time, head)))


@contextmanager
def comparisons() -> Iterator[Counter]:
    """Counts the comparisons of the block; read `count` after it."""
    before, tally = _counter.count, Counter()
    yield tally
    tally.count = _counter.count - before
