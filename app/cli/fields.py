"""One thing with its fields, a field a line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from rich.text import Text

from app.cli.jobs import STYLES
from app.cli.printable import ago, printable
from app.cli.terminal import is_terminal, print_text
from app.client import State
from app.clock import rfc3339

_LABEL: Final = 18


def print_fields(fields: Iterable[tuple[str, str]], state: State) -> None:
    """Print the fields of a job, its state in the colour of that."""
    for label, text in fields:
        print_field(label, text, style=STYLES[state] if label == "state" else "")


def moment_text(moment: datetime) -> str:
    """A time; for a person also how long ago, or in how long."""
    return f"{rfc3339(moment)}  ({ago(moment)})" if is_terminal() else rfc3339(moment)


def print_field(label: str, text: str, style: str = "") -> None:
    """Print a field; a text of several lines stands below its label's first line."""
    lines = printable(text, keep="\n").split("\n")
    shown = ("\n" + " " * _LABEL).join(lines)
    print_text(Text.assemble((label.ljust(_LABEL), "bold"), (shown, style)))
