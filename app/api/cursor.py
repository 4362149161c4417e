"""A page's cursor: where the page before it ended, as text that clients hand back and do not read.
It holds nothing secret, so a forged one only starts the walk elsewhere."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

_FORMAT: Final = b"\x01"
_SEQ_BYTES: Final = 8
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{12}")


def write_cursor(seq: int) -> str:
    """The text for `seq`, a whole number of 63 bits."""
    return urlsafe_b64encode(_FORMAT + seq.to_bytes(_SEQ_BYTES)).decode()


def read_cursor(text: str) -> int | None:
    """The `seq` that `write_cursor` wrote; None for any other text."""
    if not _TEXT.fullmatch(text):
        return None
    written = urlsafe_b64decode(text)
    seq = int.from_bytes(written[1:])
    return seq if written[:1] == _FORMAT and seq < 1 << 63 else None
