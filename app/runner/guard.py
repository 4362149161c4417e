"""What ends a worker's commands if the worker itself is killed: a small process beside it that knows their process
groups and waits for the worker's end of a pipe to close."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from app.runner import orphans

_PROGRAM: Final = str(Path(orphans.__file__))


class Guard:
    """Tells the process beside the worker which groups are alive. If that process is gone, nobody is told, and the
    worker's own care for its commands is as good as before."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def watch(self, group: int) -> None:
        """A group has begun."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """A group has ended."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        with suppress(OSError):
            self._pipe.write(line.encode())


@contextmanager
def guarding(kill_after_sec: float) -> Iterator[Guard]:
    """A guard that, once this process has ended or leaves the context, sends SIGTERM to the groups that are still
    alive, and SIGKILL that many seconds later."""
    arguments = (sys.executable, "-I", "-S", _PROGRAM, str(kill_after_sec))
    # In a session of its own: whatever is sent to the worker's group, by a terminal or a supervisor, must not end it.
    beside = subprocess.Popen(  # noqa: S603  # our own interpreter and our own file
        arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, cwd="/", start_new_session=True
    )
    assert beside.stdin is not None  # noqa: S101  # for the types; it was asked for
    try:
        yield Guard(beside.stdin)
    finally:
        with suppress(OSError):
            beside.stdin.close()
        beside.wait()
