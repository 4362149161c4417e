"""A beanstalkd of our own, where the machine has one: it is no package of Python's."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

PROGRAM: Final = shutil.which("beanstalkd")
_PATIENCE_SEC: Final = 10.0


@asynccontextmanager
async def beanstalkd() -> AsyncIterator[str]:
    """Where it listens. It syncs each write, in a folder beside the other databases."""
    assert PROGRAM is not None
    port = _unused_port()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("-l", "127.0.0.1", "-p", str(port), "-b", folder, "-f", "0")
        process = await asyncio.create_subprocess_exec(PROGRAM, *arguments, stdout=DEVNULL, stderr=DEVNULL)
        try:
            await _listens(port)
            yield f"127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _unused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


async def _listens(port: int) -> None:
    """It tells nobody that it does, so this tries again and again."""
    async with asyncio.timeout(_PATIENCE_SEC):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
