"""`fairlane tenants`."""

from __future__ import annotations

import click

from app.cli.connection import connected
from app.cli.json_lines import print_json
from app.cli.names import tenant_names
from app.cli.queues import paused
from app.cli.tables import Column, print_table
from app.client import Client, Tenant


def limit(value: float | None) -> str:
    """A limit; `none` if there is none."""
    return "none" if value is None else f"{value:.12g}"


COLUMNS = (
    Column[Tenant]("TENANT", lambda tenant: tenant.name),
    Column[Tenant]("WEIGHT", lambda tenant: str(tenant.weight), is_right=True, is_whole=True),
    Column[Tenant]("QUEUED", lambda tenant: str(tenant.queued), is_right=True, is_whole=True),
    Column[Tenant]("RUNNING", lambda tenant: str(tenant.running), is_right=True, is_whole=True),
    Column[Tenant]("RATE/S", lambda tenant: limit(tenant.rate_per_sec), is_right=True, is_whole=True),
    Column[Tenant]("BURST", lambda tenant: limit(tenant.burst), is_right=True, is_whole=True, is_extra=True),
    Column[Tenant]("MOST RUNNING", lambda tenant: limit(tenant.max_running), is_right=True, is_whole=True),
    Column[Tenant]("MOST QUEUED", lambda tenant: limit(tenant.max_queued), is_right=True, is_whole=True, is_extra=True),
    Column[Tenant]("PAUSED", paused, is_whole=True, style=lambda tenant: "yellow" if tenant.paused else ""),
)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=tenant_names)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line, as `tenant load` takes it")
@connected()
def tenants(client: Client, names: tuple[str, ...], *, as_json: bool) -> None:
    """List all tenants, or those named."""
    found = [client.get_tenant(name) for name in names] if names else client.list_tenants()
    if as_json:
        for tenant in found:
            print_json(tenant)
    else:
        print_table(COLUMNS, found)
