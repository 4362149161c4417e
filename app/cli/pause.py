"""`fairlane pause` and `fairlane resume`."""

from __future__ import annotations

import click

from app.cli.connection import connected
from app.cli.exits import Exit, Stopped
from app.cli.names import queue_names, tenant_names
from app.cli.printable import printable
from app.client import Client


@click.command()
@click.argument("queue", required=False, shell_complete=queue_names)
@click.option("-t", "--tenant", metavar="NAME", help="this tenant's jobs, in all queues", shell_complete=tenant_names)
@click.option("--create", is_flag=True, help="also a queue that has had no job yet")
@connected()
def pause(client: Client, queue: str | None, *, tenant: str | None, create: bool) -> None:
    """Give out no more jobs of a queue or a tenant. What runs goes on, and jobs can still be submitted.

    \b
    fairlane pause linux
    fairlane pause --tenant acme
    """
    _switch(client, queue, tenant, create=create, paused=True)


@click.command()
@click.argument("queue", required=False, shell_complete=queue_names)
@click.option("-t", "--tenant", metavar="NAME", help="this tenant's jobs, in all queues", shell_complete=tenant_names)
@connected()
def resume(client: Client, queue: str | None, *, tenant: str | None) -> None:
    """Give out the jobs of a queue or a tenant again."""
    _switch(client, queue, tenant, create=False, paused=False)


def _switch(client: Client, queue: str | None, tenant: str | None, *, create: bool, paused: bool) -> None:
    word = "paused" if paused else "resumed"
    if queue is not None and tenant is None:
        # Without this look a slip of the pen would create a queue, and leave the one that was meant as it is.
        if not create and all(known.name != queue for known in client.list_queues()):
            hint = "; --create pauses one that has had no job yet" if paused else ""
            raise Stopped(f"there is no queue {queue}{hint}", Exit.NOT_FOUND)
        client.put_queue(queue, paused=paused)
        click.echo(printable(f"queue {queue} {word}"))
    elif tenant is not None and queue is None:
        client.patch_tenant(tenant, paused=paused)
        click.echo(printable(f"tenant {tenant} {word}"))
    else:
        raise click.UsageError("give either a queue or --tenant")
