"""Counts the tests in a JUnit XML report. The file was written by a command that a tenant chose, so nothing in it is
trusted: no document type, hence no entities; a bounded size; no tree is built; only a plain file is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat  # with a handler that refuses document types, it expands nothing

from msgspec import Struct

MOST_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_GRAVEST_FIRST: Final = ("error", "failure", "skipped")


class Unreadable(Exception):
    """There is a report and it cannot be read; the message says why."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many tests there were, and how many of them did not pass, each counted once."""

    tests: int
    failures: int
    errors: int
    skipped: int


def count_tests(path: Path) -> Counts | None:
    """The counts of the report at `path`; None if there is none. Blocks while it reads.

    The test cases are counted and not the sums that suites state: writers disagree on whether nested suites are in
    them. Raises `Unreadable`.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that a pipe in its place does not wait for a writer
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise Unreadable("it is not a plain file")
        return _counted(_chunks(opened))
    finally:
        os.close(opened)


def _chunks(opened: int) -> Iterator[bytes]:
    size = 0
    while chunk := os.read(opened, _CHUNK_BYTES):
        size += len(chunk)
        if size > MOST_BYTES:
            raise Unreadable(f"it is larger than {MOST_BYTES // 1024 // 1024} MiB")
        yield chunk


class _Counter:
    """Expat's handlers. A test case that has a failure and an error counts as the graver, once."""

    def __init__(self) -> None:
        self.tests = 0
        self.by_outcome = dict.fromkeys(_GRAVEST_FIRST, 0)
        self._found: set[str] | None = None

    def start(self, name: str, _attributes: dict[str, str]) -> None:
        if name == "testcase":
            self._found = set()
        elif self._found is not None and name in _GRAVEST_FIRST:
            self._found.add(name)

    def end(self, name: str) -> None:
        if name == "testcase" and self._found is not None:
            self.tests += 1
            for outcome in _GRAVEST_FIRST:
                if outcome in self._found:
                    self.by_outcome[outcome] += 1
                    break
            self._found = None


def _counted(chunks: Iterator[bytes]) -> Counts:
    counter, parser = _Counter(), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = counter.start, counter.end
    parser.StartDoctypeDeclHandler = _refuse_document_type
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)  # noqa: FBT003  # expat takes no keywords
        parser.Parse(b"", True)  # noqa: FBT003
    except (expat.ExpatError, LookupError, ValueError) as error:  # the latter two for an encoding that it states
        raise Unreadable(f"it is no XML: {error}") from None
    by = counter.by_outcome
    return Counts(tests=counter.tests, failures=by["failure"], errors=by["error"], skipped=by["skipped"])


def _refuse_document_type(*_: object) -> NoReturn:
    raise Unreadable("it declares a document type")
