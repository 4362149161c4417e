"""`fairlane snapshot`."""

from __future__ import annotations

from pathlib import Path

import click

from app.cli.flags import settings_flags, settings_from
from app.cli.printable import printable
from app.errors import FairlaneError


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@settings_flags("database_url")
def snapshot(file: Path, database_url: str | None) -> None:
    """Copy the SQLite database into a new FILE.

    A service that is at work goes on meanwhile; none is needed.

    \b
    fairlane snapshot monday.db
    """
    from app.store import snapshot as snapshots  # here, so that nobody else waits for the store

    try:
        made = snapshots.make(settings_from({"database_url": database_url}).database_url, file)
    except FairlaneError as error:
        raise click.ClickException(printable(str(error))) from error
    rows = f"{made.jobs} jobs, {made.attempts} attempts, {made.tenants} tenants"
    click.echo(printable(f"{file}: {made.size / 1e6:.1f} MB, {rows}"))
