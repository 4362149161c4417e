"""Names that clients invent, where only so many may be kept: as values of a label, above all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

OTHER: Final = "other"
"""What all names share that there was no room for."""


class FewNames:
    """The first so many names keep their own, for good. Every later one is `other`, and stays it: a figure that
    moved from one name to another would seem to fall."""

    def __init__(self, room: int, *, first: str | None = None) -> None:
        """Room for `room` names, of which `first` has its place from the beginning."""
        self._room = room
        self._kept: dict[str, str] = {}
        if first is not None:
            self.of(first)

    @property
    def kept(self) -> Sequence[str]:
        """The names that are their own label, in the order in which they came."""
        return tuple(self._kept)

    def of(self, name: str) -> str:
        """The label of `name`."""
        label = self._kept.get(name)
        if label is None:
            if len(self._kept) >= self._room or name == OTHER:
                return OTHER
            label = self._kept[name] = name
        return label

    def meet(self, names: Iterable[str]) -> None:
        """Give places to these, as far as there is room."""
        for name in names:
            self.of(name)
