"""`fairlane config`."""

from __future__ import annotations

import click

from app.cli.flags import settings_flags, settings_from


@click.command()
@settings_flags()
def config(**flags: str | None) -> None:
    """Print the settings.

    They are those that `serve` with the same flags would use, passwords left out.
    """
    for name, value in settings_from(flags).shown().items():
        click.echo(f"{name}={value}")
