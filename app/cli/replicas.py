"""`fairlane replicas`."""

from __future__ import annotations

import click

from app.cli.connection import connected
from app.cli.json_lines import print_json
from app.cli.printable import ago
from app.cli.tables import Column, print_table
from app.client import Client, Replica


def _lag(replica: Replica) -> str:
    return f"{replica.lag_sec:.1f}s"


COLUMNS = (
    Column[Replica]("REPLICA", lambda replica: replica.name),
    Column[Replica]("ADDRESS", lambda replica: replica.address, is_whole=True),
    Column[Replica]("ROLE", lambda replica: replica.role, is_whole=True),
    Column[Replica]("SINCE", lambda replica: ago(replica.dispatching_since) or "-", is_right=True, is_whole=True),
    Column[Replica]("UP", lambda replica: ago(replica.started_at), is_right=True, is_whole=True, is_extra=True),
    Column[Replica]("LAG", _lag, is_right=True, is_whole=True),
    Column[Replica]("VERSION", lambda replica: replica.version, is_whole=True, is_extra=True),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line")
@connected()
def replicas(client: Client, *, as_json: bool) -> None:
    """List the servers of the service: which one dispatches, and since when."""
    found = client.list_replicas()
    if as_json:
        for replica in found:
            print_json(replica)
    else:
        print_table(COLUMNS, found)
