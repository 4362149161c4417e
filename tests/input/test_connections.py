"""Thousands of clients that connect and say nothing: they are held, others are served, and nothing is left of them."""

from __future__ import annotations

from typing import Final

import psutil  # type: ignore[import-untyped]
import pytest

from tests.databases import Databases
from tests.effort import EFFORT
from tests.input.idle import as_many_as_may_be, connected, p99, took_ms
from tests.served import serving

FEW: Final = 10
ROUNDS: Final = 1 if EFFORT == 1 else 3
GENEROUS_MS: Final = 1000.0
"""What is promised is a tenth of that on a machine that does nothing else: `make bench` measures it."""

A_CONNECTION_BYTES: Final = 32 * 1024
"""An idle one takes a third of that."""


@pytest.mark.torture
async def test_idle_connections_are_held_and_hold_nobody_up(sqlite_databases: Databases) -> None:
    """One engine is enough: it knows nothing of connections."""
    many = as_many_as_may_be()
    async with serving(sqlite_databases.create().url) as served:
        process = psutil.Process(served.process.pid)
        await took_ms(served)
        for _ in range(ROUNDS):
            before = process.memory_info().rss
            async with connected(served, FEW):
                with_few = p99(await took_ms(served))
            async with connected(served, many) as idle:
                with_many = p99(await took_ms(served))
                each = (process.memory_info().rss - before) / many
                for one in (idle[0], idle[many // 2], idle[-1]):
                    one.sendall(b"GET /health/live HTTP/1.1\r\nHost: here\r\n\r\n")
                    assert one.recv(100).startswith(b"HTTP/1.1 200 ")
            print(f"p99 {with_few:.1f} ms with {FEW} idle, {with_many:.1f} ms with {many}; {each / 1024:.1f} KiB each")  # noqa: T201
            assert with_many < max(GENEROUS_MS, 10 * with_few)
            assert each < A_CONNECTION_BYTES
