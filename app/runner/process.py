"""One run of a command: in a session and process group of its own, with a file as its input, the end of its output
kept, and nothing of the group left behind, however the run ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Final

from app.client.threads import in_thread
from app.runner import groups
from app.runner.guard import Guard
from app.runner.tail import Tail

OUTPUT_BYTES: Final = 4096
_LAST_OUTPUT_SEC: Final = 0.5
_KILLED_SEC: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `code` is the exit code, or minus the number of the signal that ended it; `output` the last
    4 KiB of standard output and standard error, as they came."""

    code: int
    duration_sec: float
    output: str
    timed_out: bool


async def run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    stdin: bytes,
    timeout_sec: float | None,
    kill_after_sec: float,
    guard: Guard,
) -> Ended:
    """Run a command to its end, or to its timeout, or until the awaiting task is cancelled.

    Whatever is left of its process group then is sent SIGTERM, and SIGKILL `kill_after_sec` later, or as soon as the
    task is cancelled once more.

    Raises OSError or ValueError if it cannot be run.
    """
    tail = Tail(OUTPUT_BYTES)
    async with _captured(tail) as output:
        began_at = time.monotonic()
        group = _Group(_spawn(command, environ, stdin, output), kill_after_sec, guard)
        output.close()
        try:
            timed_out = not await group.exits_within(timeout_sec)
        finally:
            await _to_the_end(group)
    return Ended(group.code, time.monotonic() - began_at, tail.text(), timed_out)


def _spawn(
    command: Sequence[str], environ: Mapping[str, str], stdin: bytes, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    with TemporaryFile() as given:  # unlike a pipe it never waits for a reader, and never breaks for want of one
        given.write(stdin)
        given.seek(0)
        return subprocess.Popen(  # noqa: S603  # no shell; what is run was written by whoever started the worker
            command, env=environ, stdin=given, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


class _Group:
    """The process group of a command."""

    def __init__(self, leader: subprocess.Popen[bytes], kill_after_sec: float, guard: Guard) -> None:
        self._id = leader.pid
        self._kill_after_sec = kill_after_sec
        self._guard = guard
        guard.watch(self._id)
        self._exit = asyncio.create_task(in_thread(lambda process: process.wait(), leader, f"wait for {leader.pid}"))

    @property
    def code(self) -> int:
        """The leader's exit code, once it has exited."""
        return self._exit.result()

    async def exits_within(self, sec: float | None) -> bool:
        """Whether the leader exits in that time."""
        await asyncio.wait({self._exit}, timeout=sec)
        return self._exit.done()

    async def end(self) -> None:
        """Leave nothing of it alive: what is there is asked first, and killed if it does not go."""
        if groups.send(self._id, signal.SIGTERM) and not await self._ends_within(self._kill_after_sec):
            self.kill()
            await self._ends_within(_KILLED_SEC)
        await asyncio.wait({self._exit})
        self._guard.forget(self._id)

    def kill(self) -> None:
        """End all of it at once."""
        groups.send(self._id, signal.SIGKILL)

    async def _ends_within(self, sec: float) -> bool:
        """Whether all of it ends in that time. A group tells nobody that it has, so this looks again and again."""
        ends_at = time.monotonic() + sec
        if not await self.exits_within(sec):
            return False
        pause_sec = 0.01
        while groups.is_alive(self._id):
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, 0.1)
        return True


async def _to_the_end(group: _Group) -> None:
    """End the group, whatever happens to the task that waits for it."""
    ending = asyncio.create_task(group.end())
    is_cancelled = False
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            is_cancelled = True
            group.kill()
    ending.result()
    if is_cancelled:
        raise asyncio.CancelledError


class _Reader(asyncio.Protocol):
    """Feeds what comes through a pipe to a tail."""

    def __init__(self, tail: Tail) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.feed(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed.set_result(None)


@asynccontextmanager
async def _captured(tail: Tail) -> AsyncIterator[IO[bytes]]:
    """A file whose writers feed the tail. In the end it waits a moment for what is still on the way, and not for
    writers that have left the group and keep the file open."""
    out_of, into = os.pipe()
    with os.fdopen(into, "wb", buffering=0) as writing:
        reader = _Reader(tail)
        reading = os.fdopen(out_of, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: reader, reading)
        try:
            yield writing
            await asyncio.wait({reader.closed}, timeout=_LAST_OUTPUT_SEC)
        finally:
            transport.close()
