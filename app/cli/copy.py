"""`fairlane copy` and `fairlane reopen`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.flags import finish
from app.cli.printable import printable
from app.clock import rfc3339

if TYPE_CHECKING:
    from app.store.copy import Copied, Step


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(source: str, target: str) -> None:
    """Move a whole service into an empty database, SQLite or Postgres.

    FROM and TO are addresses as in FAIRLANE_DATABASE_URL; neither may be served meanwhile. Run it again if it was cut:
    it goes on where it stood. FROM stays as it is, but is not served any more.

    \b
    fairlane copy sqlite:///fairlane.db postgresql://fairlane@db.example.com/fairlane
    """
    from app.store import copy as copies  # here, so that nobody else waits for the store

    with _progress() as tell:
        done = finish(copies.copy(source, target, tell))
    for line in _told(done):
        click.echo(printable(line))


@click.command()
@click.argument("database", metavar="DATABASE")
def reopen(database: str) -> None:
    """Let a database be served again that was copied into another.

    Only if that other one is not used: two services would work on the same jobs.

    \b
    fairlane reopen sqlite:///fairlane.db
    """
    from app.store import copy as copies

    with _progress() as tell:
        mark = finish(copies.reopen(database, tell))
    click.echo(
        "it was not copied into another database"
        if mark is None
        else printable(f"it may be served again; see that nobody serves {mark.other}")
    )


def _told(done: Copied) -> Iterator[str]:
    if done.digests is None:
        yield f"{done.source} was copied into {done.target} at {rfc3339(done.finished_at)}: nothing to do"
        return
    for table, digest in done.digests.items():
        yield f"{table:16} {digest.rows:>9} rows, digest {digest}, the same in both"
    yield f"{done.source} is copied into {done.target}: serve that one"


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """A bar on standard error, if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(step: Step) -> None:
            doing = printable(f"{step.doing} {step.table}").strip()
            progress.update(task, description=doing, completed=step.done, total=step.of or None)

        yield tell
