"""What is run for every job: a worker's handler that turns a job into a command, and the command's end into a result
or a failure."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct, json

from app.client import ClaimedJob, Context, GiveUp, Job, TryAgain
from app.runner.guard import Guard
from app.runner.junit import Counts, Unreadable, count_tests
from app.runner.process import Ended, run
from app.runner.template import FIELDS, Template, value_of

log: Final = logging.getLogger("fairlane.runner")

_ERROR_BYTES: Final = 4096
_RENAMED: Final = {"id": "job_id"}


class CommandFailed(TryAgain):
    """The command did not exit with 0; another try may help."""


class Result(Struct, frozen=True, kw_only=True):
    """The result of a job whose command exited with 0. `output` is the last 4 KiB of it, `tests` the counts of the
    JUnit XML report if one was asked for and written."""

    exit_code: int
    duration_sec: float
    output: str
    tests: Counts | None


def variable_of(field: str) -> str:
    """The variable in which a command finds a field of its job."""
    return "FAIRLANE_" + _RENAMED.get(field, field).upper()


def job_variables(job: Job) -> dict[str, str]:
    """The environment in which a command finds what its job is."""
    return {variable_of(field): value_of(job, field) for field in FIELDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A handler for a worker.

    Args:
        arguments: the command, an argument each.
        fields: the job's fields of which the command makes arguments; their values are checked.
        environ: the environment of the command, beside the variables of its job.
        guard: what ends the commands if the worker is killed.
        junit: where the command writes a JUnit XML report; what is there before is removed.
        no_retry_codes: the exit codes that say that another try would not help.
        allows_dash: whether a value may begin with `-`, and so be taken for an option.
        kill_after_sec: how long the command has between SIGTERM and SIGKILL.
    """

    arguments: tuple[Template, ...]
    fields: frozenset[str]
    environ: Mapping[str, str]
    guard: Guard
    junit: Template | None = None
    no_retry_codes: frozenset[int] = frozenset()
    allows_dash: bool = False
    kill_after_sec: float = 3.0

    async def __call__(self, context: Context) -> Result:
        """Run the command for the job.

        Raises `CommandFailed` if another try may help, and `GiveUp` if it would not.
        """
        job = context.job
        self._check(job)
        report = None if self.junit is None else Path(self.junit.fill(job))
        if report is not None:
            _remove(report)
        log.info("job %s begins: tenant %s, %s", job.id, job.tenant, job.test_suite)
        ended = await self._run(job)
        tests = None if report is None else await _tests(report, job)
        return self._result(job, ended, tests)

    def _check(self, job: ClaimedJob) -> None:
        for field in sorted(self.fields):
            value = value_of(job, field)
            if value.lstrip().startswith("-") and not self.allows_dash:
                raise GiveUp(f"{field} begins with - and would be taken for an option: {value[:100]!r}")
            if "\0" in value:
                raise GiveUp(f"{field} holds NUL, which no argument can")

    async def _run(self, job: ClaimedJob) -> Ended:
        try:
            return await run(
                [argument.fill(job) for argument in self.arguments],
                environ=dict(self.environ) | job_variables(job),
                stdin=json.encode(job.payload),
                timeout_sec=job.timeout_sec,
                kill_after_sec=self.kill_after_sec,
                guard=self.guard,
            )
        except ValueError as error:  # NUL, or what the system's encoding cannot say
            raise GiveUp(f"the job cannot be made into a command: {error}") from None
        except OSError as error:
            sentence = f"the command cannot be run: {error}"
            raise (GiveUp if error.errno == errno.E2BIG else CommandFailed)(sentence) from None

    def _result(self, job: ClaimedJob, ended: Ended, tests: Counts | None) -> Result:
        sentence = _sentence(job, ended, tests)
        log.info("job %s: %s", job.id, sentence)
        if ended.code == 0 and not ended.timed_out:
            duration_sec = round(ended.duration_sec, 3)
            return Result(exit_code=0, duration_sec=duration_sec, output=ended.output, tests=tests)
        is_in_vain = ended.code in self.no_retry_codes and not ended.timed_out
        raise (GiveUp if is_in_vain else CommandFailed)(_with_output(sentence, ended.output))


def _sentence(job: ClaimedJob, ended: Ended, tests: Counts | None) -> str:
    took = f"{ended.duration_sec:.1f} s"
    if ended.timed_out:
        how = f"timed out after {job.timeout_sec} s"
    elif ended.code < 0:
        how = f"ended by {_signal_name(-ended.code)} after {took}"
    else:
        how = f"exit code {ended.code} after {took}"
    if tests is None:
        return how
    counts = f"tests {tests.tests}, failures {tests.failures}, errors {tests.errors}, skipped {tests.skipped}"
    return f"{how}; {counts}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with_output(sentence: str, output: str) -> str:
    """What the service keeps is 4 KiB from the front, and the end of an output is what tells most: it is cut here, at
    its front."""
    room = _ERROR_BYTES - len(sentence.encode()) - len("\n")
    shown = output.strip().encode()[-room:].decode(errors="ignore")
    return f"{sentence}\n{shown}" if shown else sentence


def _remove(report: Path) -> None:
    try:
        report.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"the old report cannot be removed: {error}") from None


async def _tests(report: Path, job: ClaimedJob) -> Counts | None:
    try:
        return await asyncio.to_thread(count_tests, report)
    except Unreadable as error:
        log.warning("job %s: the report %s is not read: %s", job.id, report, error)
        return None


def inherited_environ() -> dict[str, str]:
    """The worker's environment without what is Fairlane's: a key or a database's password is no tenant's business."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
