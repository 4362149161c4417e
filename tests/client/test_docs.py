"""The page on the client is true: every block of it runs, in order, and prints what stands behind its prints."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import Any, Final

from app.client import Client
from tests.databases import Databases
from tests.pages import PROMISED, blocks, printed_by
from tests.served import PATIENCE_SEC, serving

PROGRAM: Final = "# worker.py\n"


async def test_every_block_of_the_page_runs_and_prints_what_it_says(sqlite_databases: Databases) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    worker: Process | None = None
    async with serving(sqlite_databases.create().url) as served:
        for block in (each.replace("http://127.0.0.1:8080", served.url) for each in blocks("client.md")):
            if block.startswith(PROGRAM):
                with Client(served.url) as client:
                    client.cancel_jobs("acme")  # its worker would have a lot to do
                worker = await asyncio.create_subprocess_exec(sys.executable, "-c", block, stderr=DEVNULL)
                continue
            lines = await asyncio.wait_for(asyncio.to_thread(printed_by, block, names), PATIENCE_SEC)
            assert len(lines) == len(PROMISED.findall(block)), (block, lines)
            for line, promise in zip(lines, PROMISED.findall(block), strict=True):
                assert re.fullmatch(re.escape(promise).replace(r"\.\.\.", ".*"), line), (promise, line)
        assert worker is not None
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), PATIENCE_SEC) == 0
