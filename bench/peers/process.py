"""A peer's program in a process of its own, in the peers' environment."""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from bench.peers.environment import PYTHON, ROOT
from bench.rounds import GaveUp

_PATIENCE_SEC: Final = 45.0
_LONGEST_LINE: Final = 16 * 1024 * 1024
"""The times of all calls of a run."""


class PeerProcess:
    """What takes commands and answers them."""

    def __init__(self, process: Process, complaints: Path) -> None:
        self._process = process
        self._complaints = complaints
        self.takes_many = True

    async def do(self, command: str, **options: object) -> dict[str, Any]:
        """What came of a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **options}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    async def begun(self) -> None:
        """Wait until it takes commands."""
        self.takes_many = (await self._answer())["takes_many"]

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise GaveUp from error
        if not line:
            raise RuntimeError(f"a peer has ended:\n{self._complaints.read_text()}")
        return cast("dict[str, Any]", json.loads(line))


@asynccontextmanager
async def peer_process(name: str, url: str, *arguments: str) -> AsyncIterator[PeerProcess]:
    """The program `bench.peers.<name>` on a database; it is gone in the end."""
    with tempfile.TemporaryDirectory() as folder:
        complaints = Path(folder) / "stderr"
        with complaints.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                str(PYTHON),
                "-m",
                f"bench.peers.{name}",
                url,
                *arguments,
                cwd=ROOT,
                stdin=PIPE,
                stdout=PIPE,
                stderr=stderr,
                limit=_LONGEST_LINE,
            )
        made = PeerProcess(process, complaints)
        try:
            await made.begun()
            yield made
        finally:
            await made.end()
