"""`fairlane reporting-role`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from app.cli.flags import finish, settings_flags, settings_from
from app.errors import FairlaneError

if TYPE_CHECKING:
    from app.store.reporting_role import ReportingRole

PASSWORD: Final = "FAIRLANE_REPORTING_PASSWORD"  # noqa: S105  # the name of a variable


@click.command("reporting-role")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="print the SQL, without the password, and do nothing")
@click.option(
    "--timeout",
    "timeout_sec",
    type=click.FloatRange(1, 86400),
    default=30.0,
    show_default=True,
    help="seconds a statement may take",
)
@click.option("--whole-jobs", is_flag=True, help="let it read payloads, results and errors too")
@click.option("--keep-password", is_flag=True, help="leave the password of a role that there is as it is")
@settings_flags("database_url")
def reporting_role(
    name: str, timeout_sec: float, database_url: str | None, *, dry_run: bool, whole_jobs: bool, keep_password: bool
) -> None:
    """Make a role of Postgres for analysts, or bring it into line.

    It can read the reports and nothing else, and no statement of it runs for long. The password is asked for, or read
    from FAIRLANE_REPORTING_PASSWORD; it is shown nowhere, and the server itself does not get to see it. The role of
    FAIRLANE_DATABASE_URL must own the tables and be allowed to make roles.
    """
    from app.store.dialect import POSTGRES
    from app.store.engine import parse_url
    from app.store.reporting_role import ReportingRole

    url = settings_from({"database_url": database_url}).database_url
    try:
        if parse_url(url).dialect != POSTGRES:
            raise click.UsageError("this is for Postgres: SQLite knows no roles, only who may read the file")
        verifier = None if keep_password else _verifier(dry_run=dry_run)
        role = ReportingRole(name, verifier, timeout_sec, whole_jobs)
    except FairlaneError as error:
        raise click.ClickException(str(error)) from error
    for statement in finish(_make(url, role, dry_run=dry_run)):
        click.echo(f"{statement};")
    if not dry_run:
        click.echo(f"{name} may read the reports; a statement of it may take {timeout_sec:g} s")


def _verifier(*, dry_run: bool) -> str:
    from app.store.reporting_role import scram_verifier

    if dry_run:
        return "***"
    if (password := os.environ.get(PASSWORD)) is None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return scram_verifier(password)


async def _make(url: str, role: ReportingRole, *, dry_run: bool) -> Sequence[str]:
    """The statements to show."""
    from app.store import migrate
    from app.store.engine import open_migrator
    from app.store.reporting_role import make, statements

    engine = open_migrator(url)
    try:
        await migrate.require_usable(engine)
        if dry_run:
            return await statements(engine, role)
        await make(engine, role)
        return ()
    finally:
        await engine.dispose()
