"""`fairlane tenant`: set, load, erase."""

from __future__ import annotations

from math import isfinite, nan
from typing import IO, Any

import click

from app.cli.connection import connected
from app.cli.exits import Exit, Stopped, code_of, sentence_of
from app.cli.names import tenant_names
from app.cli.printable import printable
from app.cli.tenant_file import SETTINGS, NewTenant, read_tenants
from app.cli.tenants import limit
from app.client import Client, FairlaneError, NotFound, Tenant


class _OrNone(click.ParamType[Any]):
    """A number, or the word `none` for no limit."""

    def __init__(self, number: type[int] | type[float]) -> None:
        self.name = "number|none"
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """None for `none`, else a number."""
        if value is None or value == "none":
            return _NO_LIMIT
        try:
            number = self._number(value)
        except ValueError:
            number = nan
        if not isfinite(number):
            self.fail(f"{value!r} is neither a number nor none", param, ctx)
        return number


_LIMIT = "NUMBER|none"
_NO_LIMIT = object()
"""What was said, where None is what click has for an option that was not given."""


@click.group()
def tenant() -> None:
    """Set up tenants: their share, rate and limits."""


@tenant.command(name="set")
@click.argument("name", shell_complete=tenant_names)
@click.option("--weight", type=int, help="1-1000, its share beside the others'")
@click.option("--rate", "rate_per_sec", type=_OrNone(float), metavar=_LIMIT, help="jobs a second it may submit")
@click.option("--burst", type=int, help="jobs it may submit at once")
@click.option(
    "--max-running", type=_OrNone(int), metavar=_LIMIT, help="its jobs in workers' hands at most, over all queues"
)
@click.option("--max-queued", type=_OrNone(int), metavar=_LIMIT, help="its jobs waiting at most")
@click.option("--paused/--not-paused", default=None, help="whether none of its jobs is given out")
@connected()
def set_one(client: Client, /, name: str, **given: Any) -> None:
    """Change of a tenant what is given, at once; one that is not there is created.

    \b
    fairlane tenant set acme --weight 3 --rate 50 --max-queued none
    """
    changes: dict[str, Any] = {
        field: None if value is _NO_LIMIT else value for field, value in given.items() if value is not None
    }
    try:
        before, after = client.get_tenant(name), client.patch_tenant(name, **changes)
    except NotFound:
        before, after = None, client.put_tenant(name, **changes)
    click.echo(_change(before, after))


@tenant.command()
@click.argument("file", type=click.File("rb"))
@connected()
def load(client: Client, file: IO[bytes]) -> None:
    """Set up all tenants that a file names; those it does not name stay as they are.

    A file whose name ends in .toml has a table for each tenant; what it leaves out gets its default, and "none" is no
    limit. Any other, and - for standard input, has a JSON object a line, as `fairlane tenants --json` prints them. All
    of it is checked before anything is set.

    \b
    [acme]
    weight = 3
    rate_per_sec = 50
    """
    wanted = read_tenants(file)
    before = {known.name: known for known in client.list_tenants()}
    for done, each in enumerate(wanted):
        try:
            after = client.put_tenant(each.name, **each.settings)
        except FairlaneError as error:
            raise _half_done(wanted[done:], error) from error
        click.echo(_change(before.get(each.name), after))


@tenant.command()
@click.argument("name", shell_complete=tenant_names)
@click.option("--dry-run", is_flag=True, help="only say what there is to delete")
@click.option("--cancel", is_flag=True, help="cancel its unfinished jobs first")
@click.option("--yes", is_flag=True, help="do not ask")
@connected()
def erase(client: Client, name: str, *, dry_run: bool, cancel: bool, yes: bool) -> None:
    """Delete all that is kept of a tenant: its jobs with their attempts, its settings, its figures, its name.

    Nothing brings it back. A tenant with unfinished jobs is refused unless they are cancelled first, and new ones may
    come meanwhile. Where the command was cut, the same one goes on.

    \b
    fairlane tenant erase acme --dry-run
    """
    found = client.erase_tenant(name, dry_run=True)
    shown = printable(name)
    if dry_run:
        click.echo(f"{shown}: {found.left} jobs would be deleted, {found.unfinished} of them unfinished")
        return
    if not yes:
        click.confirm(f"Delete all that is kept of {shown}, {found.left} jobs?", abort=True)
    if cancel and found.unfinished:
        click.echo(f"{client.cancel_jobs(name)} cancelled")
    click.echo(f"{shown}: {_erase_all(client, name)} jobs deleted, and the tenant")


def _erase_all(client: Client, name: str) -> int:
    """Call until it is gone; how many jobs there were."""
    erased = 0
    while True:
        try:
            done = client.erase_tenant(name)
        except NotFound:  # it was there a moment ago: a try whose answer was lost has done it
            return erased
        erased += done.erased
        if done.is_gone:
            return erased
        if not done.erased:
            raise Stopped(
                f"{erased} jobs deleted, but {name} is still there with {done.left}; try again, and if that does not"
                " help, the service's log says what stands in the way",
                Exit.NOT_NOW,
            )


def _half_done(left: list[NewTenant], error: FairlaneError) -> Stopped:
    names = ", ".join(each.name for each in left[:10]) + (" and more" if len(left) > 10 else "")
    return Stopped(f"{sentence_of(error)}\nnot set: {names}", code_of(error))


def _change(before: Tenant | None, after: Tenant) -> str:
    """What has become of a tenant, in a line."""
    if before is None:
        return printable(f"{after.name} created: " + ", ".join(f"{name} {_said(after, name)}" for name in SETTINGS))
    moved = [
        f"{name} {_said(before, name)} -> {_said(after, name)}"
        for name in SETTINGS
        if getattr(before, name) != getattr(after, name)
    ]
    return printable(f"{after.name}: " + (", ".join(moved) or "as it was"))


def _said(tenant: Tenant, name: str) -> str:
    value = getattr(tenant, name)
    return str(value).lower() if isinstance(value, bool) else limit(value)
