"""Changes that can be taken back. The order is changed speculatively inside a database transaction; if
that fails, memory must be exactly as it was. Every lasting change goes through one of these few mutators."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, NewType, TypeVar

from app.scheduling.heap import IndexedHeap, Key
from app.scheduling.line import Line

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Savepoint = NewType("Savepoint", int)
"""A point within an open journal that can be rolled back to."""


class Journal:
    """Makes changes and, while it is open, remembers how to undo each of them.

    Closed, it makes them and remembers nothing. Misuse (opening it twice, closing it unopened) raises
    `RuntimeError`. Undoing costs as much as doing did.
    """

    __slots__ = ("_inverses",)

    def __init__(self) -> None:
        self._inverses: list[Callable[[], object]] | None = None

    @property
    def is_open(self) -> bool:
        """Whether changes are being remembered."""
        return self._inverses is not None

    def begin(self) -> None:
        """Start remembering."""
        if self._inverses is not None:
            raise RuntimeError("a journal is open already")
        self._inverses = []

    def commit(self) -> None:
        """Keep the changes made since `begin`."""
        self._opened()
        self._inverses = None

    def rollback(self) -> None:
        """Undo the changes made since `begin`."""
        self.rollback_to(Savepoint(0))
        self._inverses = None

    def savepoint(self) -> Savepoint:
        """Mark this point; marks nest, and rolling back to one ends those after it."""
        return Savepoint(len(self._opened()))

    def rollback_to(self, mark: Savepoint) -> None:
        """Undo the changes made since `mark`; the journal stays open."""
        inverses = self._opened()
        if mark > len(inverses):
            raise RuntimeError("what this savepoint marks was rolled back already")
        while len(inverses) > mark:
            inverses.pop()()

    def assign(self, target: object, name: str, value: object) -> None:
        """Set the attribute `name` of `target`."""
        old = getattr(target, name)
        if old != value:
            setattr(target, name, value)
            self._record(partial(setattr, target, name, old))

    def insert(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Add an entry whose key is new to `mapping`."""
        if key in mapping:
            raise ValueError(f"already there: {key!r}")
        mapping[key] = value
        self._record(partial(mapping.__delitem__, key))

    def delete(self, mapping: dict[K, V], key: K) -> None:
        """Remove an entry; `KeyError` if there is none."""
        self._record(partial(mapping.__setitem__, key, mapping.pop(key)))

    def push(self, heap: IndexedHeap[K], item: K, key: Key) -> None:
        """`heap.push`."""
        heap.push(item, key)
        self._record(partial(heap.remove, item))

    def remove(self, heap: IndexedHeap[K], item: K) -> None:
        """`heap.remove`."""
        self._record(partial(heap.push, item, heap.remove(item)))

    def rekey(self, heap: IndexedHeap[K], item: K, key: Key) -> None:
        """`heap.rekey`."""
        old = heap.rekey(item, key)
        if old != key:
            self._record(partial(heap.rekey, item, old))

    def put_in(self, line: Line[V], item: V) -> None:
        """`line.add`."""
        line.add(item)
        self._record(partial(line.remove, item))

    def take_out(self, line: Line[V], item: V) -> None:
        """`line.remove`."""
        line.remove(item)
        self._record(partial(line.add, item))

    def _opened(self) -> list[Callable[[], object]]:
        if self._inverses is None:
            raise RuntimeError("no journal is open")
        return self._inverses

    def _record(self, inverse: Callable[[], object]) -> None:
        if self._inverses is not None:
            self._inverses.append(inverse)


class Touched(Generic[K]):
    """The things that have changed since they were last taken, each once. A rollback forgets the touches
    it undoes, and brings back what was taken meanwhile."""

    __slots__ = ("_items", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._items: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: K) -> None:
        """`item` has changed."""
        if item not in self._items:
            self._journal.insert(self._items, item, None)

    def discard(self, item: K) -> None:
        """`item` is gone, nobody needs to know of its changes."""
        if item in self._items:
            self._journal.delete(self._items, item)

    def take(self) -> list[K]:
        """Everything touched; from here on, none of it is."""
        taken = list(self._items)
        self._journal.assign(self, "_items", {})
        return taken
