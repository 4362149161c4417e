"""The end of an output."""

from __future__ import annotations

import pytest

from app.runner.tail import Tail


def _text(most: int, *chunks: bytes) -> str:
    tail = Tail(most)
    for chunk in chunks:
        tail.feed(chunk)
    return tail.text()


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ((), ""),
        ((b"abc",), "abc"),
        ((b"abc", b"def"), "cdef"),
        ((b"abcdefgh",), "efgh"),
        ((b"abc", b"", b"d", b"e"), "bcde"),
        ((b"a\0b",), "a\ufffdb"),
        ((b"\xff\xfea",), "\ufffd\ufffda"),
        (("xä€".encode(),), "€"),  # the cut goes through ä, and what is left of it is left out
        (("a€€".encode(),), "€"),
    ],
)
def test_it_keeps_the_last_bytes_as_text(chunks: tuple[bytes, ...], kept: str) -> None:
    assert _text(4, *chunks) == kept


def test_its_room_is_bounded() -> None:
    tail = Tail(4096)
    for _ in range(1000):
        tail.feed(b"x" * 100_000)
    assert tail.text() == "x" * 4096
