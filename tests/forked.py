"""Processes of the service that begin as copies of one in which all its modules are loaded. To load them takes more
than a second of a processor, four fifths of a start, and the tests start hundreds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any, Final

LOADED: Final = get_context("forkserver")
"""Whose processes begin with all that serves loaded. There is one such server for each process of pytest."""
LOADED.set_forkserver_preload(["app.cli", "app.main"])


class Forked:
    """What `asyncio.subprocess.Process` is for a program, as far as a service needs it."""

    def __init__(self, process: ForkServerProcess, stdout: StreamReader) -> None:
        self.pid = process.pid or 0
        self.stdout = stdout
        self.returncode: int | None = None
        self._process = process
        self._has_ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    def send_signal(self, number: signal.Signals) -> None:
        """Raises `ProcessLookupError` once it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """`send_signal` with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, once it has ended; negative if a signal has ended it."""
        code: int = await asyncio.shield(self._has_ended)
        return code

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._has_ended.set_result(self.returncode)


class _Passed:
    """An open file that goes along with the start of a process. (What is made before that is shared in another way: it
    stays open here until the process has asked for it.)"""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> Any:
        return _here, (DupFd(self._descriptor),)


def _here(passed: Any) -> int:
    descriptor: int = passed.detach()
    return descriptor


async def fork(environment: Mapping[str, str], *arguments: str) -> Forked:
    """Start `fairlane` with these arguments. Its output and its errors are one."""
    reading, writing = os.pipe()
    try:
        process = LOADED.Process(target=_run, args=(_Passed(writing), dict(environment), arguments), daemon=True)
        process.start()
    finally:
        os.close(writing)
    stdout = StreamReader()
    pipe = os.fdopen(reading, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: StreamReaderProtocol(stdout), pipe)
    return Forked(process, stdout)


def _run(output: int, environment: dict[str, str], arguments: tuple[str, ...]) -> None:
    """The life of the new process."""
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - the old one knows what it was opened on
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    from app.cli import main

    main()
