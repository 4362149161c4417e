"""Bytes on a socket: what no HTTP client would send, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httptools
import msgspec

from tests.served import PATIENCE_SEC, Served


@dataclass(frozen=True)
class Answer:
    """One answer on a connection."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The sentence, of an answer in our words."""
        assert self.headers["content-type"] == "application/json", self
        told = msgspec.json.decode(self.body)
        assert sorted(told) == ["details", "error"]
        return str(told["error"])


class _Parsed:
    """What the parser calls, answer after answer."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.parser = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.answers.append(Answer(self.parser.get_status_code(), self._headers, self._body))
        self._begin()


class Connection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parsed = _Parsed()
        self._told = 0

    async def say(self, *pieces: bytes) -> None:
        """Send it, as far as the service takes it before it closes."""
        with suppress(ConnectionError):
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()

    async def next(self) -> Answer:
        """The next answer."""
        while self._told == len(self._parsed.answers):
            assert await self._more(), "the service closed without an answer"
        self._told += 1
        return self._parsed.answers[self._told - 1]

    async def rest(self) -> list[Answer]:
        """All that still comes until the service closes."""
        while await self._more():
            pass
        return self._parsed.answers[self._told :]

    async def _more(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SEC):
                came = await self._reader.read(0x10000)
        except ConnectionResetError:  # something was still on its way to it when it closed
            return False
        self._parsed.parser.feed_data(came)
        return bool(came)

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def connection(served: Served) -> AsyncIterator[Connection]:
    """A connection for the duration of the block."""
    async with connections(served, 1) as [made]:
        yield made


@asynccontextmanager
async def connections(served: Served, count: int) -> AsyncIterator[list[Connection]]:
    """So many of them."""
    where = urlsplit(served.url)
    made: list[Connection] = []
    try:
        while len(made) < count:
            made.append(Connection(*await asyncio.open_connection(where.hostname, where.port)))
        yield made
    finally:
        for each in made:
            await each.close()


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """A whole request; `length` is what it says of its body where that is a lie."""
    said = f"Content-Length: {len(body) if length is None else length}"
    return head("POST", path, "Content-Type: application/json", said, *headers) + body


def head(method: str, path: str, *headers: str, host: str | None = "Host: here") -> bytes:
    """A request without its body."""
    lines = [f"{method} {path} HTTP/1.1", *([host] if host else []), *headers]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def chunked(pieces: Iterable[bytes]) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


LAST = head("GET", "/health/live", "Connection: close")
"""A last request, after which the service closes."""


def peak_bytes(served: Served) -> int:
    """The most memory that its process ever had; only Linux says so."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
