"""A page's cursor: where the page before it ended, as text that clients hand back and do not read.
It holds nothing secret, so a forged one only starts the walk elsewhere."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

_FORMAT: Final = b"\x01"
_SEQ_BYTES: Final = 8

CURSOR_PATTERN: Final = r"^A[Q-X][A-Za-z0-9_-]{10}(?![\s\S])"
"""Every text that can be one: the format, and 63 bits."""

_CURSOR: Final = re.compile(CURSOR_PATTERN)


def write_cursor(seq: int) -> str:
    """The text for `seq`, a whole number of 63 bits."""
    return urlsafe_b64encode(_FORMAT + seq.to_bytes(_SEQ_BYTES)).decode()


def read_cursor(text: str) -> int | None:
    """The `seq` that `write_cursor` wrote; None for any other text."""
    if not _CURSOR.match(text):
        return None
    return int.from_bytes(urlsafe_b64decode(text)[len(_FORMAT) :])
