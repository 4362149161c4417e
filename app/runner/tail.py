"""The end of an output of any length, in a bounded room."""

from __future__ import annotations

_CONTINUES_A_CHARACTER = range(0x80, 0xC0)


class Tail:
    """Keeps the last `most` bytes of what it is fed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self._is_cut = False

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        self._kept += data
        excess = len(self._kept) - self._most
        if excess > 0:
            self._is_cut = True
            del self._kept[:excess]

    def text(self) -> str:
        """What is kept, as text that JSON and every database takes: bytes that are no UTF-8 and NUL become U+FFFD. A
        character that the cut went through is left out."""
        start = 0
        if self._is_cut:
            while start < min(3, len(self._kept)) and self._kept[start] in _CONTINUES_A_CHARACTER:
                start += 1
        return self._kept[start:].decode(errors="replace").replace("\0", "\ufffd")
