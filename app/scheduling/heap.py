"""A binary min-heap that knows where each item sits, so that any item can leave or move, not only the
first. It knows nothing of jobs or lanes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

Key: TypeAlias = tuple[int, ...]
"""What a heap orders by: whole numbers only, since a NaN would scramble it."""

T = TypeVar("T", bound=Hashable)

Nodes: TypeAlias = list[tuple[Key, T]]
"""Keys and items as a heap: below the one at i are those at 2 i + 1 and 2 i + 2, and none has a smaller key."""


class IndexedHeap(Generic[T]):
    """Distinct items in the order of their keys, the smallest first.

    `push`, `remove`, `rekey` and `pop` cost O(log n) in the worst case, `heapify` O(n), the rest O(1).
    Only keys are ever compared; which of two items with equal keys comes first is not defined, so
    whoever needs one order makes the keys distinct. Source: Williams 1964 (heapsort), Floyd 1964
    (building it bottom-up), with a map from item to position.
    """

    __slots__ = ("_nodes", "_positions")

    def __init__(self) -> None:
        self._nodes: Nodes[T] = []
        self._positions: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, item: T) -> bool:
        return item in self._positions

    def __iter__(self) -> Iterator[T]:
        """All items, in no particular order."""
        return iter(self._positions)

    def key(self, item: T) -> Key:
        """The key that `item` is held under; `KeyError` if it is not in the heap."""
        return self._nodes[self._positions[item]][0]

    def peek(self) -> T:
        """The item with the smallest key; `IndexError` if the heap is empty."""
        return self._nodes[0][1]

    def pop(self) -> T:
        """Take out the item with the smallest key; `IndexError` if the heap is empty."""
        first = self.peek()
        self.remove(first)
        return first

    def push(self, item: T, key: Key) -> None:
        """Add `item`; `ValueError` if it is in the heap already."""
        if item in self._positions:
            raise ValueError(f"already in the heap: {item!r}")
        self._nodes.append((key, item))
        self._rise(len(self._nodes) - 1)

    def remove(self, item: T) -> Key:
        """Take `item` out and return its key; `KeyError` if it is not in the heap."""
        hole = self._positions.pop(item)
        key = self._nodes[hole][0]
        last = self._nodes.pop()
        if hole < len(self._nodes):
            self._nodes[hole] = last
            self._settle(hole, than=key)
        return key

    def rekey(self, item: T, key: Key) -> Key:
        """Move `item` to where `key` belongs and return its old key; `KeyError` if it is not in the heap."""
        index = self._positions[item]
        old = self._nodes[index][0]
        self._nodes[index] = (key, item)
        self._settle(index, than=old)
        return old

    def least_but(self, item: T) -> Key | None:
        """The smallest key of all items but `item`; None if there is no other. O(1)."""
        return min((key for key, other in self._nodes[:3] if other != item), default=None)

    def below(self, key: Key) -> Iterator[T]:
        """The items whose keys are smaller than `key`, in no particular order, in O(as many as are taken). The
        heap must not change meanwhile."""
        nodes, untried = self._nodes, [0]
        while untried:
            index = untried.pop()
            if index < len(nodes) and nodes[index][0] < key:
                yield nodes[index][1]
                untried += (2 * index + 1, 2 * index + 2)

    def heapify(self, entries: Iterable[tuple[T, Key]]) -> None:
        """Replace the contents by `entries`; `ValueError`, and no change, if an item comes twice."""
        nodes = [(key, item) for item, key in entries]
        positions = {item: index for index, (_, item) in enumerate(nodes)}
        if len(positions) != len(nodes):
            raise ValueError("an item comes twice")
        self._nodes, self._positions = nodes, positions
        for index in reversed(range(len(nodes) // 2)):
            self._sink(index)

    def _settle(self, index: int, *, than: Key) -> None:
        """Restore the order around `index`, whose node has just replaced one with the key `than`."""
        if self._nodes[index][0] < than:
            self._rise(index)
        else:
            self._sink(index)

    def _rise(self, index: int) -> None:
        nodes, positions = self._nodes, self._positions
        rising = nodes[index]
        while index > 0:
            above = (index - 1) // 2
            parent = nodes[above]
            if not rising[0] < parent[0]:
                break
            nodes[index] = parent
            positions[parent[1]] = index
            index = above
        nodes[index] = rising
        positions[rising[1]] = index

    def _sink(self, index: int) -> None:
        nodes, positions = self._nodes, self._positions
        sinking, end = nodes[index], len(nodes)
        while (below := 2 * index + 1) < end:
            if below + 1 < end and nodes[below + 1][0] < nodes[below][0]:
                below += 1
            child = nodes[below]
            if not child[0] < sinking[0]:
                break
            nodes[index] = child
            positions[child[1]] = index
            index = below
        nodes[index] = sinking
        positions[sinking[1]] = index
