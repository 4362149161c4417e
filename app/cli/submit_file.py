"""How a file of jobs is submitted: checked, sent while a bar grows, and told how far it came whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import IO, Final
from uuid import uuid4

import click
from msgspec import Raw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from app.cli.batches import Stored, send_all
from app.cli.exits import Exit, Stopped, code_of, sentence_of
from app.cli.files import STDIN, name_of
from app.cli.json_lines import print_json
from app.cli.lines import BadLine, Keys, Line, faults_of, prefix_of_file, read_lines
from app.cli.printable import printable
from app.cli.terminal import busy
from app.client import Client, FairlaneError

_MOST_FAULTS: Final = 20


class Printed(Enum):
    """What goes to standard output."""

    SUMMARY = auto()
    IDS = auto()
    JSON = auto()


class FileSubmission:
    """One run over one file."""

    def __init__(
        self, client: Client, file: IO[bytes], defaults: Mapping[str, Raw], key_prefix: str | None, printed: Printed
    ) -> None:
        self._client = client
        self._file = file
        self._defaults = defaults
        self._printed = printed
        self._name = name_of(file)
        own_prefix = uuid4().hex[:16] if self._name == STDIN else prefix_of_file(self._name)
        self._prefix = key_prefix or own_prefix
        self._needs_prefix_to_go_on = self._name == STDIN and key_prefix is None
        self._stored = self._new = self._last_line = 0
        self._bad: BadLine | None = None

    def run(self) -> None:
        """Submit all of it, or end with an exit code and a sentence that says what is stored."""
        # A pipe cannot be read twice: there, what comes before a bad line is sent before that line is read.
        total = self._check() if self._file.seekable() else None
        try:
            self._send(total)
        except FairlaneError as error:
            raise self._broken_off(sentence_of(error), code_of(error)) from error
        except KeyboardInterrupt:
            raise self._broken_off("interrupted", Exit.INTERRUPTED) from None
        if self._bad is not None:
            raise self._broken_off(f"line {self._bad.number}: {self._bad}", Exit.USAGE)
        if self._printed is Printed.SUMMARY:
            click.echo(self._summary())

    def _check(self) -> int:
        """How many jobs the file has, if it has nothing else."""
        faults, total = [], 0
        with busy(f"checking {self._name}"):
            for fault in faults_of(self._file, self._defaults):
                total += 1
                if fault is not None:
                    faults.append(fault)
        self._file.seek(0)
        if not faults:
            return total
        told = [f"line {fault.number}: {fault}" for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            told.append(f"and {len(faults) - _MOST_FAULTS} more lines")
        raise Stopped("\n  ".join([f"nothing is submitted, for {self._name} is wrong", *told]), Exit.USAGE)

    def _send(self, total: int | None) -> None:
        newest = self._client.list_jobs(limit=1).jobs
        since = newest[0].submitted_at if newest else None
        with _progress(total) as (advance, say):
            for stored in send_all(self._client, self._good_lines(), say):
                self._stored += len(stored.jobs)
                self._new += stored.new_since(since)
                self._last_line = stored.lines[-1].number
                advance(len(stored.jobs))
                self._print(stored)

    def _good_lines(self) -> Iterator[Line]:
        """The lines up to the first bad one."""
        try:
            yield from read_lines(self._file, self._defaults, Keys(self._prefix))
        except BadLine as bad:
            self._bad = bad

    def _print(self, stored: Stored) -> None:
        for job in stored.jobs:
            if self._printed is Printed.IDS:
                click.echo(job.id)
            elif self._printed is Printed.JSON:
                print_json(job)

    def _summary(self) -> str:
        old = self._stored - self._new
        told = f"{_jobs(self._new)} submitted"
        if old:
            told += f", {old} {'was' if old == 1 else 'were'} stored before"
        if old and not self._new:
            told += "; another --key-prefix submits them anew"
        return told

    def _broken_off(self, why: str, code: Exit) -> Stopped:
        reached = f"lines 1 to {self._last_line} are stored" if self._stored else "nothing is stored"
        option = f" with --key-prefix {self._prefix}" if self._needs_prefix_to_go_on else ""
        return Stopped(f"{why}\n{reached}; send the same again{option} to go on, nothing is stored twice", code)


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


@contextmanager
def _progress(total: int | None) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """A bar on standard error if that is a terminal. What it gives: to be called with how many more are done, and with
    what else there is to say."""
    console = Console(stderr=True, highlight=False)
    columns: Iterable[TextColumn | BarColumn | MofNCompleteColumn | TimeRemainingColumn] = (
        TextColumn("submitting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda n: progress.advance(task, n), lambda words: console.print(Text(printable(words)), soft_wrap=True)
