"""`fairlane serve`."""

from __future__ import annotations

import gc
import sys

import click

from app.cli.flags import finish, settings_flags, settings_from


@click.command()
@settings_flags()
def serve(**flags: str | None) -> None:
    """Run the service. A SQLite file is made, and brought up to date, by itself."""
    # Here, so that the web server is loaded for those who serve and not for --help. All of it stays, and to look for
    # what does not is a seventh of the work.
    gc.disable()
    from app.logs import start_logging
    from app.main import serve as run

    gc.enable()
    settings = settings_from(flags)
    emit = start_logging(settings.log_format, settings.log_level)
    sys.exit(finish(run(settings, emit)))
