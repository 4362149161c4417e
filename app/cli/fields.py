"""One thing with its fields, a field a line."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from app.cli.printable import printable
from app.cli.terminal import print_text

_LABEL: Final = 18


def print_field(label: str, text: str, style: str = "") -> None:
    """Print a field; a text of several lines stands below its label's first line."""
    lines = printable(text, keep="\n").split("\n")
    shown = ("\n" + " " * _LABEL).join(lines)
    print_text(Text.assemble((label.ljust(_LABEL), "bold"), (shown, style)))
