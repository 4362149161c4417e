"""`fairlane migrate`: up, down, status. They import the store where they need it, so that nobody else waits for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from app.cli.flags import finish, settings_flags, settings_from
from app.settings import Settings


@click.group()
def migrate() -> None:
    """Bring the schema up or down, or say where it stands. Stop the service first on SQLite."""


@migrate.command()
@settings_flags("database_url")
def up(database_url: str | None) -> None:
    """Apply every migration that is missing."""
    from app.store import migrate

    settings = settings_from({"database_url": database_url})
    with _not_in_use(settings):
        before = finish(migrate.status(settings.database_url))
        finish(migrate.upgrade(settings.database_url))
    steps = ", ".join(before.pending) or "nothing to do"
    click.echo(f"schema at {before.current if before.is_newer else before.head}: {steps}")


@migrate.command()
@click.argument("revision")
@click.option("--yes", is_flag=True, help="do not ask")
@settings_flags("database_url")
def down(revision: str, database_url: str | None, *, yes: bool) -> None:
    """Take back every migration after REVISION; `base` takes back all, and every row with them."""
    from app.store import migrate

    settings = settings_from({"database_url": database_url})
    if not yes:
        click.confirm(f"Take the schema back to {revision}? What later migrations added is deleted", abort=True)
    with _not_in_use(settings):
        finish(migrate.downgrade(settings.database_url, revision))
    click.echo(f"schema at {revision}")


@migrate.command()
@settings_flags("database_url")
def status(database_url: str | None) -> None:
    """Say which schema the database has; exit code 1 if this version cannot work on it."""
    from app.store import migrate

    found = finish(migrate.status(settings_from({"database_url": database_url}).database_url))
    click.echo(f"schema at {found.current or 'nothing yet'}; this version wants {found.head}")
    for revision in found.pending:
        click.echo(f"missing: {_in_words(revision)}")
    if found.is_newer:
        may = "may go on to work on it" if found.is_usable else "may not work on it"
        click.echo(f"newer than this version, which {may}")
    sys.exit(0 if found.is_usable else 1)


def _in_words(revision: str) -> str:
    from app.store import migrate

    step = migrate.step_to(revision)
    return f"{revision}, {step.kind}: from then on only versions of {step.oldest_code} or later may run"


@contextmanager
def _not_in_use(settings: Settings) -> Iterator[None]:
    """Keeps a server from starting on a SQLite file while its schema is changed, and the reverse."""
    from app.store.dialect import SQLITE
    from app.store.dispatcher import FileLock
    from app.store.engine import parse_url

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
