"""What only a real server and bytes on a socket can show: requests that no HTTP client would send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.databases import Databases
from tests.served import PATIENCE_SEC, Served, serving

JSON_TYPE: Final = b"Content-Type: application/json\r\n"
CHUNK: Final = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


@pytest.fixture
async def served(sqlite_databases: Databases) -> AsyncIterator[Served]:
    """One engine is enough: none of these requests gets as far as a database."""
    async with serving(sqlite_databases.create().url) as running:
        yield running


async def conversation(served: Served, *requests: bytes) -> bytes:
    """All that comes back until the server closes; a last request asks it to."""
    where = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"".join(requests) + b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(PATIENCE_SEC):
        answers = await reader.read()
    writer.close()
    return answers


async def test_a_request_smuggled_behind_two_lengths_is_not_answered(served: Served) -> None:
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    answers = await conversation(served, b"POST /jobs HTTP/1.1\r\nHost: a\r\n" + lengths)
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /stats HTTP/1.1\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    ],
)
async def test_a_malformed_head_ends_the_connection(served: Served, head: bytes, status: int) -> None:
    answers = await conversation(served, head)
    assert answers.startswith(b"HTTP/1.1 %d " % status)
    assert answers.count(b"HTTP/1.1 ") == 1


async def test_after_a_body_too_large_the_connection_still_serves(served: Served) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: a\r\n" + JSON_TYPE
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK * 20 + b"0\r\n\r\n"
    plain = head + b"Content-Length: 1048577\r\n\r\n" + b" " * 1_048_577
    answers = await conversation(served, chunked, plain)
    assert answers.count(b"HTTP/1.1 413 ") == 2
    assert answers.count(b"HTTP/1.1 200 ") == 1


async def test_a_client_that_hangs_up_in_mid_body_makes_no_noise(served: Served) -> None:
    where = urlsplit(served.url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"POST /jobs HTTP/1.1\r\nHost: a\r\n" + JSON_TYPE + b"Content-Length: 40\r\n\r\n{")
    await writer.drain()
    async with served.client() as client:  # a whole request behind it, so that its head has arrived
        await client.get("/health/live")
    writer.close()
    event = await served.logged("request_served", lambda event: event["path"] == "/jobs")
    assert event["status"] == 499
    assert not [event for event in served.events if event["level"] not in ("debug", "info")]
