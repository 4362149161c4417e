"""`fairlane retry`."""

from __future__ import annotations

import sys

import click

from app.cli.connection import connected
from app.cli.names import JOB_ID
from app.cli.several import each
from app.client import Client


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@connected()
def retry(client: Client, ids: tuple[str, ...]) -> None:
    """Submit failed or cancelled jobs anew.

    What is printed are the new jobs' ids, one a line.
    """
    sys.exit(each(ids, lambda job_id: click.echo(client.retry_job(job_id).id)))
