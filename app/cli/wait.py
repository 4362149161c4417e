"""`fairlane wait`."""

from __future__ import annotations

import sys
import time
from math import inf

import click

from app.cli.connection import connected
from app.cli.exits import Exit
from app.cli.json_lines import print_json
from app.cli.names import JOB_ID
from app.cli.terminal import busy
from app.client import Client, Job, State


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="how long to wait in all")
@click.option("--json", "as_json", is_flag=True, help="print each job as a JSON object, one a line")
@connected(patience_sec=60.0)
def wait(client: Client, ids: tuple[str, ...], *, timeout: float | None, as_json: bool) -> None:
    """Wait until the jobs have ended, and print how.

    Exit code 0 if all are completed, 1 if one has failed or was cancelled, 5 if the time was up.

    \b
    fairlane wait $(fairlane submit -t acme -s tests/login) && echo it works
    """
    ends_at = inf if timeout is None else time.monotonic() + timeout
    code = Exit.OK
    for job_id in ids:
        left_sec = None if timeout is None else max(0.0, round(ends_at - time.monotonic(), 2))
        with busy(f"waiting for {job_id}"):
            job = client.wait_for(job_id, left_sec)
        _print_end(job, as_json=as_json)
        if job.state is not State.COMPLETED:
            code = Exit.NO
    sys.exit(code)


def _print_end(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
    else:
        click.echo(f"{job.id} {job.state}")
