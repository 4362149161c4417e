"""The exit codes, the same for every command, and what is said when something goes wrong: a sentence, never a
traceback."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import click

from app.cli.printable import printable
from app.client import (
    Conflict,
    DeadlineExceeded,
    Denied,
    FairlaneError,
    InvalidRequest,
    KeyReused,
    NotFound,
    Unavailable,
)


class Exit(IntEnum):
    """What a script can tell apart."""

    OK = 0
    NO = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    NOT_NOW = 5
    INTERRUPTED = 130
    NOBODY_READS = 141


MEANINGS: Final = (
    (Exit.OK, "done"),
    (Exit.NO, "the answer is no: a job has failed or was cancelled (wait), migrations are missing, you said no"),
    (Exit.USAGE, "the command line or a file is wrong"),
    (Exit.NOT_FOUND, "there is no such job, tenant, queue or key"),
    (Exit.REFUSED, "the service refused: a job's state forbids it, a key is not good for it"),
    (Exit.NOT_NOW, "not now: the service is away, over a limit, or the time was up; try again later"),
)


class Stopped(click.ClickException):
    """Ends the command with a sentence and an exit code."""

    def __init__(self, sentence: str, code: Exit) -> None:
        super().__init__(printable(sentence, keep="\n"))
        self.exit_code = code  # type: ignore[misc] # click reads it from the instance


def stopped(error: FairlaneError) -> Stopped:
    """How a command ends for an error of the client."""
    return Stopped(sentence_of(error), code_of(error))


def code_of(error: FairlaneError) -> Exit:
    """The exit code for an error of the client."""
    match error:
        case InvalidRequest():
            return Exit.USAGE
        case NotFound():
            return Exit.NOT_FOUND
        case Conflict() | Denied() | KeyReused():
            return Exit.REFUSED
    return Exit.NOT_NOW


def sentence_of(error: FairlaneError) -> str:
    """What a person is told; with several bad fields, each on a line of its own."""
    sentence = str(error)
    if notes := getattr(error, "__notes__", ()):
        sentence += f" ({'; '.join(notes)})"
    if isinstance(error, InvalidRequest) and len(error.details) > 1:
        sentence = "\n  ".join(f"{detail.field} {detail.message}" for detail in error.details)
    failure = error.__cause__ if isinstance(error, DeadlineExceeded) else error
    if isinstance(failure, Unavailable):
        sentence += "\n--url or FAIRLANE_URL says where the service is, --patience how long to try"
        if failure.in_doubt:
            sentence += "; it may have been done all the same"
    return sentence
