"""Since when the longest waiting job waits, without looking at any other. It follows the moves, commit by commit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Final

from app.clock import from_micros, to_micros
from app.flow.moves import Moved
from app.flow.watch.few_names import FewNames
from app.scheduling.job import State

_BLOCK: Final = 512
"""Most that a block begins with; with twice as many it is two."""

_SEQ_BITS: Final = 64
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Waits:
    """Jobs by `seq`, and since when each is queued, in microseconds. Two numbers a job: a million may wait."""

    since: array[int] = field(default_factory=_numbers)
    seqs: array[int] = field(default_factory=_numbers)

    def append(self, since: int, seq: int) -> None:
        """One more, behind the others."""
        self.since.append(since)
        self.seqs.append(seq)

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.since, self.seqs, strict=True)

    def __getitem__(self, part: slice) -> Waits:
        return Waits(self.since[part], self.seqs[part])

    @property
    def first(self) -> tuple[int, int]:
        """The one that waits the longest."""
        return self.since[0], self.seqs[0]

    def place(self, since: int, seq: int) -> int:
        """Where this one is, or belongs."""
        first = bisect_left(self.since, since)
        return bisect_left(self.seqs, seq, first, bisect_right(self.since, since, first))


class Line:
    """The jobs that wait, the longest waiting first; in blocks, so that a change moves few of them."""

    __slots__ = ("_blocks", "_starts")

    def __init__(self, waits: Iterable[tuple[int, int]] = ()) -> None:
        # Sorted as one number each: half as large as a pair, where there may be a million.
        self._blocks: list[Waits] = []
        in_order = sorted([since << _SEQ_BITS | seq for since, seq in waits])
        for start in range(0, len(in_order), _BLOCK):
            part = in_order[start : start + _BLOCK]
            since, seqs = [both >> _SEQ_BITS for both in part], [both & _SEQ_MASK for both in part]
            self._blocks.append(Waits(array("q", since), array("q", seqs)))
        self._starts = [block.first for block in self._blocks]
        """No block has one before its start; that itself may have left."""

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for block in self._blocks:
            yield from block

    def add(self, since: int, seq: int) -> None:
        """Nearly always behind all others, as times are given out in growing order."""
        if not self._blocks:
            self._blocks.append(Waits())
            self._starts.append((since, seq))
        at = len(self._blocks) - 1
        block = self._blocks[at]
        if not block or (block.since[-1], block.seqs[-1]) < (since, seq):
            block.append(since, seq)
        else:
            at = self._block_of(since, seq)
            block = self._blocks[at]
            place = block.place(since, seq)
            block.since.insert(place, since)
            block.seqs.insert(place, seq)
        if len(block) == 2 * _BLOCK:
            self._blocks[at : at + 1] = block[:_BLOCK], block[_BLOCK:]
            self._starts.insert(at + 1, self._blocks[at + 1].first)

    def discard(self, since: int, seq: int) -> None:
        """Without effect on one that is not there, or since another time."""
        if not self._blocks:
            return
        at = self._block_of(since, seq)
        block = self._blocks[at]
        place = block.place(since, seq)
        if place < len(block) and block.since[place] == since and block.seqs[place] == seq:
            del block.since[place], block.seqs[place]
            if not block:
                del self._blocks[at], self._starts[at]

    def _block_of(self, since: int, seq: int) -> int:
        return max(0, bisect_right(self._starts, (since, seq)) - 1)


def _taken(waits: list[Waits]) -> Iterator[tuple[int, int]]:
    while waits:
        yield from waits.pop()


class QueuedSince:
    """The queued jobs by label of their queue, the longest waiting first. A move costs a search in O(log jobs), the
    question O(1)."""

    def __init__(self, labels: FewNames) -> None:
        self._labels = labels
        self._lines: dict[str, Line] = {}

    def load(self, queued: dict[str, Waits]) -> None:
        """Replace everything: all queued jobs by queue, in any order. They are used up, so that no more memory is
        taken for two copies."""
        by_label: defaultdict[str, list[Waits]] = defaultdict(list)
        for queue in list(queued):
            by_label[self._labels.of(queue)].append(queued.pop(queue))
        self._lines = {label: Line(_taken(waits)) for label, waits in by_label.items()}

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened."""
        for moved in moves:
            job = moved.job
            if job is None or job.queued_at is None:
                continue  # it left by hand, if it was here, and does not say since when it waited
            if moved.old is State.QUEUED:
                self._line(moved.queue).discard(to_micros(job.queued_at), job.seq)
            if moved.new is State.QUEUED:
                self._line(moved.queue).add(to_micros(job.queued_at), job.seq)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def drop(self, gone: Container[int]) -> None:
        """These are not queued any more, by their numbers, and nothing says since when they were. Looks at all."""
        for label, line in self._lines.items():
            if any(seq in gone for _, seq in line):
                self._lines[label] = Line(wait for wait in line if wait[1] not in gone)

    def keep(self, queued: Container[int]) -> None:
        """Drop those that are not `queued`, by their numbers: they left by hand. One that came again is there once."""
        for label, line in self._lines.items():
            last = {seq: since for since, seq in line if seq in queued}
            self._lines[label] = Line((since, seq) for seq, since in last.items())

    def oldest(self, label: str) -> datetime | None:
        """Since when the longest waiting job waits, of the queues under `label`; None if none does."""
        since, _ = next(iter(self._lines.get(label, ())), (None, 0))
        return None if since is None else from_micros(since)

    def first(self, limit: int) -> list[int]:
        """The numbers of the jobs that wait the longest, of all queues, the longest first."""
        return [seq for _, seq in islice(merge(*self._lines.values()), limit)]

    def _line(self, queue: str) -> Line:
        label = self._labels.of(queue)
        line = self._lines.get(label)
        if line is None:
            line = self._lines[label] = Line()
        return line
