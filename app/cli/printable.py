"""Text that others chose, made fit for a terminal: no name may move a cursor, set a colour or break a line."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def printable(text: str, keep: str = "") -> str:
    """The text with everything escaped that does not print, but for the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def span(seconds: float) -> str:
    """A length of time in one unit: `42s`, `3h`."""
    whole = max(0, int(seconds))
    for length, unit in _UNITS:
        if whole >= length:
            return f"{whole // length}{unit}"
    return "0s"


def ago(moment: datetime | None) -> str:
    """How long ago it was by this machine's clock, or how far ahead it is."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return f"in {span(-seconds)}" if seconds <= -1 else span(seconds)
