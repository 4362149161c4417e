"""`fairlane cancel`."""

from __future__ import annotations

import sys

import click

from app.cli.connection import connected
from app.cli.names import JOB_ID, queue_names, tenant_names
from app.cli.printable import printable
from app.cli.several import each
from app.client import Client, State

_UNFINISHED = [state.value for state in State if not state.is_final]


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=JOB_ID)
@click.option(
    "-t", "--tenant", metavar="NAME", help="all unfinished jobs of this tenant instead", shell_complete=tenant_names
)
@click.option(
    "-q", "--queue", metavar="NAME", help="with --tenant: only those in this queue", shell_complete=queue_names
)
@click.option("--suite", help="with --tenant: only those of this test suite")
@click.option("-s", "--state", type=click.Choice(_UNFINISHED), help="with --tenant: only those in this state")
@click.option("--yes", is_flag=True, help="with --tenant: do not ask")
@connected()
def cancel(
    client: Client,
    ids: tuple[str, ...],
    *,
    tenant: str | None,
    queue: str | None,
    suite: str | None,
    state: str | None,
    yes: bool,
) -> None:
    """Cancel jobs by their ids, or all unfinished jobs of a tenant.

    \b
    fairlane cancel 01890a5d4c7e7b3f8a9b0c1d2e3f4a5b
    fairlane cancel --tenant acme --state queued
    """
    if bool(ids) == (tenant is not None):
        raise click.UsageError("give either ids or --tenant")
    if tenant is None:
        if queue or suite or state:
            raise click.UsageError("--queue, --suite and --state go with --tenant")
        sys.exit(each(ids, lambda job_id: click.echo(f"{client.cancel_job(job_id).id} cancelled")))
    client.get_tenant(tenant)  # or a name that nobody has would have no jobs, and all would seem well
    if not yes:
        click.confirm(f"Cancel {_which(tenant, queue, suite, state)}?", abort=True)
    cancelled = client.cancel_jobs(tenant, queue=queue, test_suite=suite, state=state)
    click.echo(f"{cancelled} cancelled")


def _which(tenant: str, queue: str | None, suite: str | None, state: str | None) -> str:
    words = f"all {state or 'unfinished'} jobs of {tenant}"
    words += f" in queue {queue}" if queue else ""
    return printable(words + (f" for {suite}" if suite else ""))
