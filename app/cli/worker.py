"""`fairlane worker`: a command for every job."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from app.cli.connection import URL, key, url_option, usable_url, without_login
from app.cli.names import queue_names
from app.cli.printable import printable
from app.client import AsyncClient, Worker
from app.runner import (
    FIELDS,
    BadTemplate,
    Command,
    Template,
    fields_of,
    guarding,
    inherited_environ,
    variable_of,
)

_SHELL: Final = "/bin/sh"
# A worker that ends releases the jobs of handlers that have not ended 5 seconds after they were told to.
_MOST_KILL_AFTER_SEC: Final = 4.0
# A path with a name in it would let a tenant choose which file is removed and read.
_FIELDS_OF_A_PATH: Final = ("id", "attempt")


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    default=["default"],
    show_default=True,
    help="where jobs are claimed from; several are tried in their order",
    shell_complete=queue_names,
)
@click.option("-c", "--concurrency", type=click.IntRange(1, 1000), default=1, show_default=True, help="jobs at once")
@click.option(
    "--name", metavar="NAME", help="what the service calls this worker  [default: host, process and a bit of chance]"
)
@click.option("--junit", metavar="PATH", help="where the command writes JUnit XML; {id} and {attempt} may stand in it")
@click.option(
    "--no-retry-code",
    "no_retry_codes",
    type=click.IntRange(1, 255),
    multiple=True,
    metavar="CODE",
    help="an exit code that says: another try would not help",
)
@click.option("--shell", is_flag=True, help="COMMAND is a text for the shell; fields are variables in it")
@click.option(
    "--allow-dash", is_flag=True, help="let a field begin with -, though the command may take it for an option"
)
@click.option(
    "--kill-after",
    "kill_after_sec",
    type=click.FloatRange(0, _MOST_KILL_AFTER_SEC),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="from SIGTERM to SIGKILL for a command that must end",
)
@click.option(
    "--grace",
    "grace_sec",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="how long commands may go on when the worker is told to end",
)
@click.option(
    "--lease",
    "lease_sec",
    type=click.IntRange(3, 3600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="how soon others get its jobs if it dies; it learns of a cancelled job within a third of it",
)
@url_option
def worker(
    command: Sequence[str],
    *,
    queues: Sequence[str],
    concurrency: int,
    name: str | None,
    junit: str | None,
    no_retry_codes: Sequence[int],
    shell: bool,
    allow_dash: bool,
    kill_after_sec: float,
    grace_sec: float,
    lease_sec: int,
    url: str,
) -> None:
    """Run a command for every job of a queue, until SIGTERM or Ctrl-C.

    \b
    fairlane worker --queue linux --concurrency 4 -- pytest -q {test_suite}
    fairlane worker --junit 'out/{id}.xml' -- pytest --junit-xml=out/{id}.xml {test_suite}
    fairlane worker --shell -- 'make "$FAIRLANE_TEST_SUITE" 2>&1 | tee last.log'

    Each argument stays one argument, whatever a field holds, and no shell is between. Placeholders are {id} {tenant}
    {test_suite} {queue} {priority} {cost} {attempt} {max_attempts}; {{ and }} are braces. A job whose field would begin
    with - fails, for the command would take it for an option. The command finds the job's payload on its standard input
    as JSON, and its fields in FAIRLANE_JOB_ID, FAIRLANE_TENANT, FAIRLANE_TEST_SUITE, FAIRLANE_ATTEMPT and so on.

    Exit code 0 completes the job, any other fails it, and it is tried again while it has attempts left. The result has
    the exit code, the duration, the last 4 KiB of output, and the counts of tests. When a job times out, is cancelled,
    or its lease is lost, its command's whole process group is ended.
    """
    with usable_url():
        client = AsyncClient(url, key=key())
    arguments = _shell_text(command) if shell else _arguments(command)
    report = None if junit is None else _report(junit, concurrency)
    _log_to_stderr()
    with guarding(kill_after_sec) as guard:
        handler = Command(
            arguments=arguments,
            fields=_fields_in_shell(command[0]) if shell else fields_of(arguments),
            environ=inherited_environ() | {URL: without_login(url)},
            guard=guard,
            junit=report,
            no_retry_codes=frozenset(no_retry_codes),
            allows_dash=allow_dash,
            kill_after_sec=kill_after_sec,
        )
        Worker(
            client,
            handler,
            queues=queues,
            concurrency=concurrency,
            lease_sec=lease_sec,
            grace_sec=grace_sec,
            name=name,
        ).run_forever()


def _arguments(command: Sequence[str]) -> tuple[Template, ...]:
    try:
        program, *arguments = (Template.parse(argument) for argument in command)
    except BadTemplate as error:
        raise click.UsageError(str(error)) from None
    if program.fields:
        raise click.UsageError(f"{command[0]}: the program itself cannot come from a job")
    if shutil.which(program.literal) is None:
        raise click.UsageError(f"{program.literal}: there is no such program here")
    return (program, *arguments)


def _shell_text(command: Sequence[str]) -> tuple[Template, ...]:
    if len(command) != 1:
        raise click.UsageError("with --shell give the command as one argument, in quotes")
    for field in FIELDS:
        if re.search(rf"(?<![$]){{{field}}}", command[0]):
            variable = variable_of(field)
            raise click.UsageError(f'in a text for the shell write "${variable}" for {{{field}}}')
    return tuple(Template.of_literal(text) for text in (_SHELL, "-c", command[0]))


def _fields_in_shell(text: str) -> frozenset[str]:
    return frozenset(field for field in FIELDS if re.search(rf"{variable_of(field)}(?!\w)", text))


def _report(path: str, concurrency: int) -> Template:
    try:
        report = Template.parse(path, _FIELDS_OF_A_PATH)
    except BadTemplate as error:
        raise click.UsageError(f"--junit: {error}") from None
    if concurrency > 1 and "id" not in report.fields:
        raise click.UsageError(
            "--junit: with a concurrency over 1 there must be {id} in the path, or jobs share a file"
        )
    return report


class _Lines(logging.Handler):
    """Writes what the worker and its commands have to say as lines, fit for a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        with suppress(OSError, ValueError):  # a closed pipe under the log must not stop a worker
            click.echo(printable(f"[WORKER] {self.format(record)}", keep="\n"), err=True)


def _log_to_stderr() -> None:
    logger = logging.getLogger("fairlane")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Lines()]
    logger.propagate = False
