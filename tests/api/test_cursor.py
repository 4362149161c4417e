"""Cursors: what is written is read again, and nothing else is."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from app.api.cursor import read_cursor, write_cursor


@given(st.integers(0, 2**63 - 1))
def test_what_was_written_is_read(seq: int) -> None:
    assert read_cursor(write_cursor(seq)) == seq


@given(st.text(max_size=20) | st.text("AQaq019_-=", min_size=12, max_size=12))
@example("AQAAAAAAAAAB\n")
@example("Af__________")
@example("AgAAAAAAAAAB")
def test_anything_else_is_refused(text: str) -> None:
    seq = read_cursor(text)
    assert seq is None or write_cursor(seq) == text
