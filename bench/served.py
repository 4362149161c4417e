"""A service as its users run it: `fairlane serve` in a process of its own with the settings it comes with, its log in
a file beside it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]

from bench.wire import Address

FAIRLANE: Final = "from app.cli import main; main()"
NO_OP: Final = "from bench.noop import main; main()"

_PATIENCE_SEC: Final = 30.0


class Served:
    """A running service."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._usage = psutil.Process(process.pid)
        self.address: Address

    @property
    def cpu_sec(self) -> float:
        """What it has used of the processors since it began."""
        used = self._usage.cpu_times()
        return float(used.user + used.system)

    @property
    def memory_bytes(self) -> int:
        """What it holds of the machine's memory."""
        return int(self._usage.memory_info().rss)

    def told(self, event: str) -> Iterator[dict[str, Any]]:
        """What its log has so far of one kind of event."""
        mark = f'"{event}"'
        with self._log.open() as lines:
            for line in lines:
                if mark in line:
                    with suppress(ValueError):  # the last line may be half of one
                        yield json.loads(line)

    async def listens(self) -> None:
        """Wait until it does; `address` says where. Nobody tells of a line in a file, so this looks again and again."""
        async with asyncio.timeout(_PATIENCE_SEC):
            while not (listening := next(self.told("server_listening"), None)):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the service has ended:\n{self._log.read_text()}")
                await asyncio.sleep(0.02)
        self.address = Address(listening["host"], listening["port"])

    async def kill(self) -> None:
        """End it at once: what it would still do is thrown away."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def serving(url: str, program: str = FAIRLANE) -> AsyncIterator[Served]:
    """A service on a database that listens; it is gone in the end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    environ |= {"FAIRLANE_DATABASE_URL": url, "FAIRLANE_PORT": "0", "FAIRLANE_LOG_FORMAT": "json"}
    command = (sys.executable, "-c", program, "serve")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=output, stderr=output)
        served = Served(process, log)
        try:
            await served.listens()
            yield served
        finally:
            await served.kill()
