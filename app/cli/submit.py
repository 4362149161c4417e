"""`fairlane submit`: one job by flags, or a file of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from msgspec import Raw, json

from app.cli.connection import connected
from app.cli.json_lines import print_json
from app.cli.names import queue_names, tenant_names
from app.cli.submit_file import FileSubmission, Printed
from app.client import Client


@click.command(short_help="Submit one job, or a file of them.")
@click.argument("file", required=False, type=click.File("rb"))
@click.option("-t", "--tenant", metavar="NAME", help="who submits", shell_complete=tenant_names)
@click.option("-s", "--suite", "test_suite", help="what to run")
@click.option("-p", "--priority", type=int, help="0-10, 0 the most urgent  [default: 0]")
@click.option(
    "-q", "--queue", metavar="NAME", help="which workers it is for  [default: default]", shell_complete=queue_names
)
@click.option("--delay", "delay_sec", type=int, metavar="SECONDS", help="not before so long from now")
@click.option("--at", "run_at", metavar="TIME", help="not before this time, such as 2030-01-31T09:30:00Z")
@click.option("--payload", metavar="JSON", help="what its worker is given; @FILE reads it from a file, @- from stdin")
@click.option("--cost", type=int, help="1-1000, how much of the tenant's share it takes  [default: 1]")
@click.option("--max-attempts", type=int, help="1-100  [default: 3]")
@click.option("--timeout", "timeout_sec", type=int, metavar="SECONDS", help="how long an attempt may run")
@click.option("--key", metavar="KEY", help="one job: its idempotency key; the same key again submits nothing")
@click.option(
    "--key-prefix",
    metavar="TEXT",
    help="a file: what its jobs' idempotency keys begin with, in place of the file's name",
)
@click.option("--ids", is_flag=True, help="a file: print the jobs' ids, one a line")
@click.option("--json", "as_json", is_flag=True, help="print the jobs as JSON objects, one a line")
@connected(patience_sec=60.0)
def submit(
    client: Client,
    /,
    file: IO[bytes] | None,
    *,
    key: str | None,
    key_prefix: str | None,
    ids: bool,
    as_json: bool,
    payload: str | None,
    **given: Any,
) -> None:
    """Submit one job, or with FILE (- is standard input) a job for each line of JSON.

    \b
    fairlane submit --tenant acme --suite tests/login --priority 2
    fairlane submit jobs.jsonl
    ls tests/*.py | jq -cR '{test_suite: .}' | fairlane submit --tenant acme -

    One job: its id is printed once it is stored for good.

    A file: each line is an object with the fields of the HTTP interface, {"tenant": "acme", "test_suite":
    "tests/login", "priority": 2}; the options say what a line leaves out. A file is checked before anything is sent,
    and bad lines are named by their numbers. Send it again after an interruption: a line that is stored is not stored
    twice, until another --key-prefix says that this is another run.
    """
    asked = {field: value for field, value in given.items() if value is not None}
    if payload is not None:
        asked["payload"] = _payload(payload)
    if file is None:
        if key_prefix is not None or ids:
            raise click.UsageError("--key-prefix and --ids are for a file")
        _submit_one(client, asked, key, as_json=as_json)
    else:
        if key is not None:
            raise click.UsageError("--key is for one job; a file takes --key-prefix")
        printed = Printed.IDS if ids else Printed.JSON if as_json else Printed.SUMMARY
        FileSubmission(client, file, _as_json(asked), key_prefix, printed).run()


def _submit_one(client: Client, asked: dict[str, Any], key: str | None, *, as_json: bool) -> None:
    if not {"tenant", "test_suite"} <= asked.keys():
        raise click.UsageError("give --tenant and --suite for one job, or a file of JSON lines, - for standard input")
    if "run_at" in asked:
        asked["run_at"] = _time(asked["run_at"])
    job = client.submit(**asked, idempotency_key=key)
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)


def _as_json(asked: Mapping[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.encode(value)) for name, value in asked.items()}


def _payload(text: str) -> Raw:
    """The JSON as it was given: not decoded and encoded again, whole numbers of any length stay what they are."""
    raw = _contents(text[1:]) if text.startswith("@") else text.encode(errors="surrogateescape")
    try:
        json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"--payload is no JSON: {error}") from None
    return Raw(raw)


def _contents(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.UsageError(f"--payload: {name}: {error.strerror}") from None


def _time(text: str) -> datetime:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise click.UsageError(f"--at: {text!r} is no time such as 2030-01-31T09:30:00Z") from None
