"""`fairlane queues`."""

from __future__ import annotations

import click

from app.cli.connection import connected
from app.cli.json_lines import print_json
from app.cli.tables import Column, print_table
from app.client import Client, Queue, Tenant


def paused(row: Queue | Tenant) -> str:
    """What a table says of the switch."""
    return "paused" if row.paused else "-"


COLUMNS = (
    Column[Queue]("QUEUE", lambda queue: queue.name),
    Column[Queue]("QUEUED", lambda queue: str(queue.queued), is_right=True, is_whole=True),
    Column[Queue]("RUNNING", lambda queue: str(queue.running), is_right=True, is_whole=True),
    Column[Queue]("PAUSED", paused, is_whole=True, style=lambda queue: "yellow" if queue.paused else ""),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line")
@connected()
def queues(client: Client, *, as_json: bool) -> None:
    """List the queues."""
    found = client.list_queues()
    if as_json:
        for queue in found:
            print_json(queue)
    else:
        print_table(COLUMNS, found)
