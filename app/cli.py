"""The command line: `fairlane serve`, `fairlane migrate`, `fairlane config`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click

from app.errors import FairlaneError
from app.logs import start_logging
from app.settings import PREFIX, Settings, read_settings
from app.store import migrate
from app.store.dialect import SQLITE, is_unavailable
from app.store.dispatcher import FileLock
from app.store.engine import parse_url

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("fairlane"), prog_name="fairlane")
def main() -> None:
    """Fairlane decides what runs next on the machines that many teams share, and for whom."""


def _settings_options(*names: str) -> Callable[[Command], Command]:
    """A flag for each setting, or for those named; what it means comes from `Settings`."""

    def decorate(command: Command) -> Command:
        for f in reversed(fields(Settings)):
            if names and f.name not in names:
                continue
            command = click.option(
                "--" + f.name.replace("_", "-"),
                f.name,
                metavar="VALUE",
                help=f"{f.metadata['means']}  [{PREFIX}{f.name.upper()}; default: {f.metadata['default']}]",
            )(command)
        return command

    return decorate


@main.command()
@_settings_options()
def serve(**flags: str | None) -> None:
    """Run the service. A SQLite file is made, and brought up to date, by itself."""
    # Here, so that the web server is loaded for those who serve and not for --help.
    from app.main import serve as run

    settings = _settings(flags)
    emit = start_logging(settings.log_format, settings.log_level)
    sys.exit(_finish(run(settings, emit)))


@main.group(name="migrate")
def migrate_group() -> None:
    """Bring the database's schema up or down, or say where it stands. Stop the service first on SQLite."""


@migrate_group.command()
@_settings_options("database_url")
def up(database_url: str | None) -> None:
    """Apply every migration that is missing."""
    settings = _settings({"database_url": database_url})
    with _not_in_use(settings):
        before = _finish(migrate.status(settings.database_url))
        _finish(migrate.upgrade(settings.database_url))
    steps = ", ".join(before.pending) or "nothing to do"
    click.echo(f"schema at {before.head}: {steps}")


@migrate_group.command()
@click.argument("revision")
@click.option("--yes", is_flag=True, help="do not ask")
@_settings_options("database_url")
def down(revision: str, database_url: str | None, *, yes: bool) -> None:
    """Take back every migration after REVISION; `base` takes back all, and every row with them."""
    settings = _settings({"database_url": database_url})
    if not yes:
        click.confirm(f"Take the schema back to {revision}? What later migrations added is deleted", abort=True)
    with _not_in_use(settings):
        _finish(migrate.downgrade(settings.database_url, revision))
    click.echo(f"schema at {revision}")


@migrate_group.command()
@_settings_options("database_url")
def status(database_url: str | None) -> None:
    """Say which schema the database has; exit code 1 if migrations are missing."""
    found = _finish(migrate.status(_settings({"database_url": database_url}).database_url))
    click.echo(f"schema at {found.current or 'nothing yet'}; this version wants {found.head}")
    for revision in found.pending:
        click.echo(f"missing: {revision}")
    sys.exit(1 if found.pending else 0)


@main.command()
@_settings_options()
def config(**flags: str | None) -> None:
    """Print every setting as `serve` with the same flags would use it, passwords left out."""
    for name, value in _settings(flags).shown().items():
        click.echo(f"{name}={value}")


def _settings(flags: dict[str, str | None]) -> Settings:
    try:
        return read_settings(os.environ, flags)
    except FairlaneError as error:
        raise click.ClickException(str(error)) from error


def _finish(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run to the end; what a person can mend is said in a sentence, without a traceback."""
    try:
        return asyncio.run(work)
    except FairlaneError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        if not is_unavailable(error):
            raise
        raise click.ClickException(f"the database cannot be reached: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """The driver's own words; SQLAlchemy's wrapping says nothing to a person."""
    original = getattr(error, "orig", None) or error
    return (str(original.__cause__ or original).splitlines() or [type(original).__name__])[0]


@contextmanager
def _not_in_use(settings: Settings) -> Iterator[None]:
    """Keeps a server from starting on a SQLite file while its schema is changed, and the reverse."""
    address = parse_url(settings.database_url)
    if address.dialect != SQLITE:
        yield
        return
    lock = FileLock(Path(address.target))
    if not lock.take():
        raise click.ClickException("a Fairlane server runs on this database; stop it first")
    try:
        yield
    finally:
        lock.release()
