"""Clients that connect and say nothing, and one that wants to be served meanwhile."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

from tests.served import PATIENCE_SEC, Served

MOST: Final = 10_000
REQUESTS: Final = 300

_SPARE_FILES: Final = 500
_AT_A_TIME: Final = 500
"""Fewer than the kernel keeps for a service that is busy."""


def as_many_as_may_be() -> int:
    """10,000, or what the system lets a process have open, said aloud."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(MOST, hard - _SPARE_FILES)
    if count < MOST:
        print(f"only {count} connections: the system allows no more open files")  # noqa: T201
    return count


@asynccontextmanager
async def connected(served: Served, count: int) -> AsyncIterator[list[socket.socket]]:
    """So many connections on which nothing is said, each of them taken by the service. They cost this process no more
    than a file: what is measured meanwhile is the service."""
    where = urlsplit(served.url)
    process = psutil.Process(served.process.pid)
    await _until_alone(process, where.port)
    open_before = process.num_fds()
    with ExitStack() as stack:
        made: list[socket.socket] = []
        while len(made) < count:
            address = (where.hostname, where.port)
            many = range(min(_AT_A_TIME, count - len(made)))
            made += [stack.enter_context(socket.create_connection(address, PATIENCE_SEC)) for _ in many]
            await _until_open(process, at_least=open_before + len(made))  # the kernel takes them before it does
        yield made
    await _until_open(process, at_most=open_before)


async def took_ms(served: Served) -> list[float]:
    """How long some usual requests took, one after the other, the quickest first."""
    took = []
    async with served.client() as client:
        for n in range(REQUESTS):
            began = time.perf_counter()
            if n % 3:
                answer = await client.get("/stats")
            else:
                answer = await client.post("/jobs", json={"tenant": "acme", "test_suite": "smoke"})
            took.append((time.perf_counter() - began) * 1000)
            assert answer.is_success
    return sorted(took)


def p99(took: list[float]) -> float:
    """What all but one of a hundred did not exceed."""
    return took[len(took) * 99 // 100]


async def _until_alone(process: psutil.Process, port: int | None) -> None:
    """The connection of a client that has left is an open file until the service has noticed."""
    async with asyncio.timeout(PATIENCE_SEC):
        while any(  # noqa: ASYNC110
            each.status != psutil.CONN_LISTEN and each.laddr.port == port for each in process.net_connections("tcp")
        ):
            await asyncio.sleep(0.02)


async def _until_open(process: psutil.Process, *, at_least: int = 0, at_most: int = sys.maxsize) -> None:
    """Nobody tells of a file that is opened or closed, so this looks again and again."""
    async with asyncio.timeout(PATIENCE_SEC):
        while not at_least <= process.num_fds() <= at_most:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
