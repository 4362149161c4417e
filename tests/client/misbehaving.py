"""A tiny HTTP server that answers as it is told, or not at all: for what a real service does only on its worst day."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

Act: TypeAlias = Callable[[StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Misbehaving:
    """Does one act for each request, in order; the last one again and again."""

    acts: list[Act]
    url: str = ""
    received: list[Received] = field(default_factory=list)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
                await act(writer)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def misbehaving(*acts: Act) -> AsyncIterator[Misbehaving]:
    """A server for the while."""
    server = Misbehaving(list(acts))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await server.serve(reader, writer)
        tasks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await listening.wait_closed()


def says(status: int, body: object = None, **headers: str) -> Act:
    """Answers with that JSON, or those bytes."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)

    async def act(writer: StreamWriter) -> None:
        writer.write(_head(status, content_length=str(len(encoded)), **headers) + encoded)
        await writer.drain()

    return act


def refuses(status: int, sentence: str = "no", **headers: str) -> Act:
    """Answers with an error in Fairlane's words."""
    return says(status, {"error": sentence, "details": []}, **headers)


async def hangs_up(writer: StreamWriter) -> None:
    """Lets the connection go without a word."""
    writer.close()


async def resets(writer: StreamWriter) -> None:
    """Breaks the connection off."""
    writer.transport.abort()


async def breaks_off(writer: StreamWriter) -> None:
    """Promises more than it says."""
    writer.write(_head(200, content_length="100") + b'{"half": ')
    await writer.drain()
    writer.close()


async def babbles(writer: StreamWriter) -> None:
    """Speaks another protocol."""
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()
    writer.close()


async def is_silent(_: StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.Event().wait()


def drips(pieces: Iterable[bytes], every_sec: float) -> Act:
    """Answers bit by bit."""

    async def act(writer: StreamWriter) -> None:
        writer.write(_head(200, transfer_encoding="chunked"))
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(every_sec)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return act


def _head(status: int, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read(reader: StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body)
