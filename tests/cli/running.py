"""Commands as people and scripts run them: in this process where that is enough, else in one of their own, and on a
terminal of a known size."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]
from click.testing import CliRunner, Result

from app.cli import main
from tests.served import PATIENCE_SEC

_CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's background ignores it
    "from app.cli import main; main(prog_name='fairlane')"
)
PROGRAM = (sys.executable, "-c", _CODE)
PAUSE_SEC = 0.02


def environ(url: str, **more: str) -> dict[str, str]:
    """What a command finds around it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return ours | {"FAIRLANE_URL": url, "COLUMNS": "80", "TERM": "xterm"} | more


@dataclass(frozen=True)
class Fairlane:
    """`fairlane`, with the address of a service, and a key where it asks for one."""

    url: str
    key: str | None = None

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        """Run a command in this process, its output in no terminal, and insist on its exit code."""
        result = CliRunner().invoke(main, arguments, input=stdin, env=self._environ(), prog_name="fairlane")
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: str, stdin: str | None = None) -> list[dict[str, Any]]:
        """What a command prints with --json."""
        return [json.loads(line) for line in self(*arguments, "--json", stdin=stdin).stdout.splitlines()]

    def submit(self, tenant: str, suite: str = "suite", *more: str) -> str:
        """The id of a new job."""
        return self("submit", "--tenant", tenant, "--suite", suite, *more).stdout.strip()

    def state(self, job_id: str) -> str:
        """The state of a job."""
        [job] = self.json("job", job_id)
        return str(job["state"])

    @asynccontextmanager
    async def process(self, *arguments: str, **variables: str) -> AsyncIterator[Process]:
        """A command in a process of its own; it is gone in the end."""
        started = await asyncio.create_subprocess_exec(
            *PROGRAM, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environ() | variables
        )
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):
                started.kill()
            await started.communicate()

    @asynccontextmanager
    async def terminal(self, *arguments: str, width: int = 80, height: int = 24) -> AsyncIterator[Terminal]:
        """A command on a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        variables = self._environ()
        del variables["COLUMNS"]
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, start_new_session=True
        )
        terminal = Terminal(process, ours, theirs)
        try:
            yield terminal
        finally:
            terminal.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _environ(self) -> dict[str, str]:
        return environ(self.url, **({"FAIRLANE_KEY": self.key} if self.key else {}))


class Terminal:
    """A terminal with a command on it; `text` is all that was written to it."""

    def __init__(self, process: Process, ours: int, theirs: int) -> None:
        self.process = process
        self.theirs = theirs
        self.text = ""
        self._ours = ours
        asyncio.get_running_loop().add_reader(ours, self._read)

    def _read(self) -> None:
        with suppress(OSError):
            self.text += os.read(self._ours, 65536).decode(errors="replace")

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._ours, keys.encode())

    async def shows(self, words: str) -> None:
        """Wait until it has these words, from what is seen last on."""
        await until(lambda: words in self.text, lambda: f"{words!r} in {self.text[-3000:]!r}")

    async def exited(self) -> int:
        """The command's exit code."""
        async with asyncio.timeout(PATIENCE_SEC):
            code = await self.process.wait()
        self._read_all()
        return code

    def _read_all(self) -> None:
        os.set_blocking(self._ours, False)
        with suppress(OSError):
            while got := os.read(self._ours, 65536):
                self.text += got.decode(errors="replace")

    def close(self) -> None:
        """Take it away."""
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        os.close(self.theirs)


async def until(happened: Callable[[], bool], what: Callable[[], str] = lambda: "it") -> None:
    """Wait until it has happened; what has no event to wait for is looked at again and again."""
    try:
        async with asyncio.timeout(PATIENCE_SEC):
            while not happened():  # noqa: ASYNC110  # processes and files set no event
                await asyncio.sleep(PAUSE_SEC)
    except TimeoutError:
        raise AssertionError(f"never came: {what()}") from None


def are_gone(pids: Iterable[int]) -> bool:
    """Whether none of these processes is alive; a zombie is not."""
    return not any(_is_alive(pid) for pid in pids)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
