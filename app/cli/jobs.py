"""`fairlane jobs`."""

from __future__ import annotations

from itertools import islice

import click

from app.cli.connection import connected
from app.cli.json_lines import print_json
from app.cli.names import queue_names, tenant_names
from app.cli.printable import ago
from app.cli.tables import Column, print_table
from app.client import Client, Job, State
from app.clock import rfc3339

STYLES = {
    State.PENDING: "dim",
    State.QUEUED: "",
    State.SCHEDULED: "cyan",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.CANCELLED: "yellow",
}


def style_of(job: Job) -> str:
    """The colour of a job's state."""
    return STYLES[job.state]


COLUMNS = (
    Column[Job]("ID", lambda job: job.id, is_whole=True),
    Column[Job]("STATE", lambda job: job.state, is_whole=True, style=style_of),
    Column[Job]("TENANT", lambda job: job.tenant),
    Column[Job]("SUITE", lambda job: job.test_suite),
    Column[Job]("PRIO", lambda job: str(job.priority), is_right=True, is_whole=True),
    Column[Job]("QUEUE", lambda job: job.queue, is_extra=True),
    Column[Job]("TRY", lambda job: f"{job.attempt}/{job.max_attempts}", is_right=True, is_whole=True, is_extra=True),
    Column[Job]("WORKER", lambda job: job.worker or "-", is_extra=True),
    Column[Job](
        "SUBMITTED",
        lambda job: rfc3339(job.submitted_at),
        seen=lambda job: ago(job.submitted_at),
        seen_title="AGE",
        is_whole=True,
    ),
)


@click.command()
@click.option("-t", "--tenant", metavar="NAME", help="only this tenant's", shell_complete=tenant_names)
@click.option("-s", "--state", type=click.Choice([state.value for state in State]), help="only those in this state")
@click.option("-q", "--queue", metavar="NAME", help="only those in this queue", shell_complete=queue_names)
@click.option("--suite", help="only those of this test suite")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="how many at most")
@click.option("--all", "is_all", is_flag=True, help="however many there are")
@click.option("--oldest-first", is_flag=True, help="oldest first, not newest first")
@click.option("--ids", is_flag=True, help="print the ids alone, one a line")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line")
@connected()
def jobs(
    client: Client,
    *,
    tenant: str | None,
    state: str | None,
    queue: str | None,
    suite: str | None,
    limit: int,
    is_all: bool,
    oldest_first: bool,
    ids: bool,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    \b
    fairlane jobs --state running
    fairlane jobs --tenant acme --state failed --ids | xargs fairlane retry
    fairlane jobs --all --json | jq -r .test_suite | sort | uniq -c
    """
    walk = client.iter_jobs(
        tenant=tenant,
        state=state,
        queue=queue,
        test_suite=suite,
        limit=1000 if is_all else min(limit, 1000),
        order="asc" if oldest_first else "desc",
    )
    found = walk if is_all else islice(walk, limit)
    if ids:
        for job in found:
            click.echo(job.id)
    elif as_json:
        for job in found:
            print_json(job)
    else:
        print_table(COLUMNS, list(found))
