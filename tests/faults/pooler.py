"""PgBouncer between a service and its Postgres: the next transaction gets another connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.served import PATIENCE_SEC

PROGRAM: Final = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

_CONFIGURATION: Final = """
[databases]
* = host={folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
"""


class Pooler:
    """A pooler by transaction, before the server that listens in this folder. It is told to ignore nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._configuration: str
        self._process: asyncio.subprocess.Process
        self.port = _free_port()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """It is there for the duration of the block."""
        with self._written():
            await self._start()
            try:
                yield
            finally:
                await self._kill()

    async def restart(self) -> None:
        """It dies, with all connections on both sides, and another one takes its place."""
        await self._kill()
        await self._start()

    @contextmanager
    def _written(self) -> Iterator[None]:
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write(_CONFIGURATION.format(folder=self._folder, port=self.port))
            file.flush()
            Path(file.name).chmod(0o644)
            self._configuration = file.name
            yield

    async def _start(self) -> None:
        assert PROGRAM is not None
        # Only its owner may enter the folder of the server's socket, and as root PgBouncer does not run.
        owner = ["-u", self._folder.owner()] if os.getuid() == 0 else []
        self._process = await asyncio.create_subprocess_exec(PROGRAM, "-q", *owner, self._configuration)
        async with asyncio.timeout(PATIENCE_SEC):
            while not await self._is_listening():
                assert self._process.returncode is None, "PgBouncer has not begun"
                await asyncio.sleep(0.02)

    async def _is_listening(self) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        return False

    async def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
