"""Tables. On a terminal they fit its width: first what matters least is left out, then what may be cut is. Elsewhere
they are plain: every column, nothing cut, two spaces between, so that a pipe gets the same whatever the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.printable import printable
from app.cli.terminal import is_terminal

T = TypeVar("T")

GAP: Final = 2
_ENOUGH: Final = 24


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column.

    `text` is what it says of a row; `seen` and `seen_title`, if given, are what a terminal has instead. `is_whole`:
    never cut. `is_extra`: left out where there is no room. `style`: rich's name of a colour for a row, or "".
    """

    title: str
    text: Callable[[T], str]
    seen: Callable[[T], str] | None = None
    seen_title: str = ""
    is_right: bool = False
    is_whole: bool = False
    is_extra: bool = False
    style: Callable[[T], str] | None = None

    @property
    def head(self) -> str:
        """What a terminal shows above it."""
        return self.seen_title or self.title

    def cell(self, row: T) -> str:
        """What a terminal shows of a row."""
        return printable((self.seen or self.text)(row))


def print_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> None:
    """Print a table to standard output."""
    if is_terminal():
        console = Console(highlight=False)
        console.print(table(columns, rows, console.width))
    else:
        for line in _plain(columns, rows):
            click.echo(line)


def table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Table:
    """A table of one line a row, no wider than `width`."""
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    kept = fitting(columns, rows, width)
    for column in kept:
        drawn.add_column(
            Text(column.head, no_wrap=True, overflow="ellipsis"),
            justify="right" if column.is_right else "left",
            no_wrap=column.is_whole,
        )
    for row in rows:
        drawn.add_row(*(_cell(column, row) for column in kept))
    return drawn


def fitting(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Column[T]]:
    """The columns for which there is room. The extra ones are left out, from the last on, until what may be cut has
    enough to be told from others."""
    kept = list(columns)
    for column in reversed(columns):
        if sum(_wanted_width(each, rows) + GAP for each in kept) - GAP <= width:
            break
        if column.is_extra:
            kept.remove(column)
    return kept


def _wanted_width(column: Column[T], rows: Sequence[T]) -> int:
    widest = max([cell_len(column.head), *(cell_len(column.cell(row)) for row in rows)])
    return widest if column.is_whole else min(widest, _ENOUGH)


def _cell(column: Column[T], row: T) -> Text:
    style = column.style(row) if column.style else ""
    return Text(column.cell(row), style=style, no_wrap=True, overflow="ellipsis")


def _plain(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[str]:
    cells = [[column.title for column in columns]]
    cells += [[printable(column.text(row)) for column in columns] for row in rows]
    widths = [max(map(cell_len, texts)) for texts in zip(*cells, strict=True)]
    return [_plain_line(columns, texts, widths) for texts in cells]


def _plain_line(columns: Sequence[Column[T]], texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, text, width in zip(columns, texts, widths, strict=True):
        space = " " * (width - cell_len(text))
        padded.append(space + text if column.is_right else text + space)
    return (" " * GAP).join(padded).rstrip()
