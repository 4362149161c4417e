"""A sorted list that lies in memory in blocks, so that of however many things each can come or leave at the cost of a
few comparisons and of moving one block. It knows nothing of jobs or lanes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import eq, itemgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T", bound=Any)

Blocks: TypeAlias = list[list[T]]
"""Sorted, none empty, and each smaller than the next."""

BLOCK: Final = 512
"""Most that a block begins with; with twice as many it is two."""

_first = itemgetter(0)


class Line(Generic[T]):
    """Distinct things that can be compared, the smallest first.

    `add`, `remove` and finding a place cost O(log n) comparisons, and moving a block's worth of pointers and one for
    each block; `fill` sorts; the rest is O(1).
    """

    __slots__ = ("_blocks", "_count", "_lent")

    def __init__(self) -> None:
        self._blocks: Blocks[T] = []
        self._count = 0
        self._lent = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> T:
        """The smallest; `IndexError` if there is none."""
        return self._blocks[0][0]

    def add(self, item: T) -> None:
        """`ValueError` if it is there already."""
        blocks = self._own_blocks()
        if not blocks:
            blocks.append([item])
        elif (block := blocks[-1])[-1] < item:  # as most come, of those that are alike
            block.append(item)
            self._split_if_full(len(blocks) - 1)
        else:
            place = self._block_of(item)
            block = blocks[place]
            index = bisect_left(block, item)
            if index < len(block) and block[index] == item:
                raise ValueError(f"already in the line: {item!r}")
            block.insert(index, item)
            self._split_if_full(place)
        self._count += 1

    def remove(self, item: T) -> None:
        """`ValueError` if it is not there."""
        place = self._block_of(item)
        block = self._blocks[place] if self._blocks else []
        index = bisect_left(block, item)
        if index == len(block) or block[index] != item:
            raise ValueError(f"not in the line: {item!r}")
        blocks = self._own_blocks()
        del blocks[place][index]
        if not blocks[place]:
            del blocks[place]
        self._count -= 1

    def fill(self, items: list[T]) -> None:
        """Replace the contents by `items`, and keep them; `ValueError`, and no change, if one comes twice."""
        items.sort()
        if any(map(eq, items, islice(items, 1, None))):
            raise ValueError("an item comes twice")
        self._blocks = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
        self._count, self._lent = len(items), 0

    def below(self, bound: T) -> Iterator[T]:
        """Those smaller than `bound`, the smallest first. The line must not change meanwhile."""
        return below(self._blocks, bound)

    def least_but(self, item: T) -> T | None:
        """The smallest of all but `item`; None if there is no other. O(1)."""
        return next((other for other in self if other != item), None)

    def lend(self) -> Blocks[T]:
        """The blocks as they are now, to be read and not changed, for as long as the borrower likes. O(1): it is the
        line that makes a copy, in O(n), if it changes before they are taken back."""
        self._lent += 1
        return self._blocks

    def take_back(self, blocks: Blocks[T]) -> None:
        """What `lend` gave is not read any more. To forget this costs the line a copy, and nothing else."""
        if blocks is self._blocks:
            self._lent -= 1

    def _own_blocks(self) -> Blocks[T]:
        if self._lent:
            self._blocks = [block.copy() for block in self._blocks]
            self._lent = 0
        return self._blocks

    def _split_if_full(self, place: int) -> None:
        block = self._blocks[place]
        if len(block) == 2 * BLOCK:
            self._blocks[place : place + 1] = [block[:BLOCK], block[BLOCK:]]

    def _block_of(self, item: T) -> int:
        """Which block `item` is in, or belongs into."""
        return max(0, bisect_right(self._blocks, item, key=_first) - 1)


def below(blocks: Sequence[Sequence[T]], bound: T) -> Iterator[T]:
    """The items of `blocks` that are smaller than `bound`, the smallest first."""
    for block in blocks:
        if block[-1] < bound:
            yield from block
        else:
            yield from block[: bisect_left(block, bound)]
            return
