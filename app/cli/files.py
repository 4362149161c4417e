"""Files that are given by name, or `-` for standard input."""

from __future__ import annotations

from typing import IO, Final

STDIN: Final = "<stdin>"


def name_of(file: IO[bytes]) -> str:
    """How a person knows the file."""
    return getattr(file, "name", STDIN)
