"""How figures read: short, in the units people think in."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from msgspec import json

_LONGEST_JSON: Final = 20_000
_NOTHING: Final = "\N{EN DASH}"
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def moment(at: datetime) -> str:
    """A day and a time of day to the millisecond, UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def time_of_day(at: datetime) -> str:
    """Hours and minutes, UTC."""
    return at.strftime("%H:%M")


def between(start: datetime | None, end: datetime | None) -> str:
    """How long it took from one time to another; nothing where one of them is not known."""
    return "" if start is None or end is None else duration((end - start).total_seconds())


def duration(seconds: float | timedelta | None) -> str:
    """Two units at most: `3 min 20 s`. Below ten seconds tenths, below one second milliseconds."""
    if seconds is None:
        return _NOTHING
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return _in_two_units(round(seconds))


def _in_two_units(seconds: int) -> str:
    for (unit, size), (smaller_unit, smaller) in pairwise(_UNITS):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            rest //= smaller
            return f"{whole} {unit} {rest} {smaller_unit}" if rest else f"{whole} {unit}"
    return f"{seconds} s"


def percent(part: float | None) -> str:
    """Of a whole of 1."""
    if part is None:
        return _NOTHING
    if 0 < part < 0.005:
        return "<1%"
    return f"{part * 100:.0f}%"


def number(n: int) -> str:
    """With a thin space between thousands."""
    return f"{n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def pretty(value: Any) -> str:
    """JSON as people read it, as much of it as they do."""
    text = json.format(json.encode(value), indent=2).decode()
    return text if len(text) <= _LONGEST_JSON else text[:_LONGEST_JSON] + "\N{HORIZONTAL ELLIPSIS}"


def sentence(text: str) -> str:
    """With a capital at its beginning and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
