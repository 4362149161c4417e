"""Ids and tokens that nobody can guess, and that stand side by side in an index if they were made one after the other:
of an index of ten million random ones, each that comes meets another page."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Final

from app.clock import to_micros

_VERSION_AND_VARIANT: Final = 0x7 << 76 | 0x2 << 62
_RANDOM: Final = ~(0xF << 76 | 0x3 << 62)


def new_id(now: datetime) -> str:
    """A UUID of version 7 (RFC 9562) as 32 hex digits: 48 bits of milliseconds, then 74 random bits."""
    number = (to_micros(now) // 1000) << 80 | int.from_bytes(os.urandom(10)) & _RANDOM | _VERSION_AND_VARIANT
    return f"{number:032x}"
