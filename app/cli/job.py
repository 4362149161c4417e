"""`fairlane job`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from app.cli.connection import connected
from app.cli.fields import moment_text, print_fields
from app.cli.json_lines import as_line, as_object, print_json
from app.cli.names import JOB_ID
from app.cli.printable import ago
from app.cli.tables import Column, print_table
from app.client import Attempt, Client, Job
from app.clock import rfc3339


def _time(moment: datetime | None) -> str:
    return "" if moment is None else rfc3339(moment)


def _took(attempt: Attempt) -> str:
    began = attempt.started_at or attempt.scheduled_at
    return f"{(attempt.ended_at - began).total_seconds():.1f}s"


def _first_line(error: str | None) -> str:
    return (error or "-").split("\n", maxsplit=1)[0]


ATTEMPTS = (
    Column[Attempt]("ATTEMPT", lambda attempt: str(attempt.number), is_right=True, is_whole=True),
    Column[Attempt]("OUTCOME", lambda attempt: attempt.outcome, is_whole=True),
    Column[Attempt](
        "STARTED",
        lambda attempt: _time(attempt.started_at) or "-",
        seen=lambda attempt: ago(attempt.started_at) or "-",
        is_whole=True,
    ),
    Column[Attempt]("TOOK", _took, is_right=True, is_whole=True),
    Column[Attempt]("WORKER", lambda attempt: attempt.worker),
    Column[Attempt]("ERROR", lambda attempt: _first_line(attempt.error)),
)


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, its attempts in `attempts`")
@connected()
def job(client: Client, job_id: str, *, as_json: bool) -> None:
    """Show a job with all its fields, and its attempts."""
    found, attempts = client.get_job(job_id), client.list_attempts(job_id)
    if as_json:
        print_json(found, attempts=[as_object(attempt) for attempt in attempts])
        return
    print_fields(_lines(found), found.state)
    if attempts:
        click.echo()
        print_table(ATTEMPTS, attempts)


def _lines(job: Job) -> Iterator[tuple[str, str]]:
    """The fields that say something, in the order in which people look for them."""
    shown = ("id", "state", "tenant", "test_suite", "queue", "priority", "cost", "attempt", "worker", "progress")
    for name in (*shown, "submitted_at", "run_at", "started_at", "completed_at", "lease_expires_at", "timeout_sec"):
        value = getattr(job, name)
        if value is not None:
            yield name, _text(job, name, value)
    if job.retry_of is not None:
        yield "retry_of", job.retry_of
    for name in ("payload", "error"):
        value = getattr(job, name)
        if value is not None:
            yield name, value if name == "error" else as_line(value)
    yield from _result(job.result)


def _text(job: Job, name: str, value: Any) -> str:
    match name, value:
        case "attempt", _:
            return f"{value} of {job.max_attempts}"
        case "progress", _:
            return f"{value:.0%}"
        case "timeout_sec", _:
            return f"{value} s"
        case _, datetime():
            return moment_text(value)
    return str(value)


def _result(result: Any) -> Iterator[tuple[str, str]]:
    """A result; one of a command with its output as it was printed."""
    match result:
        case None:
            return
        case {"output": str(output), **others}:
            yield "result", as_line(others)
            if output.strip():
                yield "output", output.strip("\n")
        case _:
            yield "result", as_line(result)
