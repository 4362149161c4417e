"""What is otherwise on a terminal: colours, and something that moves while nothing else does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.text import Text

from app.cli.printable import printable


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def print_text(text: Text) -> None:
    """Print a text, with its styles if a person reads it."""
    if is_terminal():
        Console(highlight=False).print(text, soft_wrap=True)
    else:
        click.echo(text.plain)


@contextmanager
def busy(doing: str) -> Iterator[None]:
    """Say what is being done, on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(Text(printable(doing))):
        yield
