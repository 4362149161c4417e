"""The connections by which calls are handed on."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from litestar.types import Message

from app.api.elsewhere import Call
from app.replica import forward
from app.replica.forward import BrokenOff, Forwarder, NotTaken
from app.store.dispatcher import FOR_A_COPY
from tests.served import PATIENCE_SEC

_YES: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Patient:
    """Answers all but those that wait, on connections that stay open."""

    def __init__(self) -> None:
        self.connections = 0
        self.waiting = asyncio.Semaphore(0)
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET /waits "):
                    self.waiting.release()
                else:
                    writer.write(_YES)
        writer.close()


def _call(path: bytes) -> Call:
    scope: Any = {"method": "GET", "raw_path": path, "query_string": b"", "headers": [(b"host", b"here")]}
    return Call(scope, b"", may_repeat=True, if_nothing_came=None)


async def _send(message: Message) -> None:
    """Nobody is there to see it."""


async def _waiting(far: Patient, forwarder: Forwarder) -> list[asyncio.Task[None]]:
    """A hundred calls, all of which have arrived."""
    calls = [asyncio.create_task(forwarder.forward(far.address, _call(b"/waits"), _send)) for _ in range(100)]
    for _ in calls:
        await far.waiting.acquire()
    return calls


async def test_calls_go_over_one_connection_however_many_others_wait() -> None:
    far, forwarder = Patient(), Forwarder("a replica")
    async with asyncio.timeout(PATIENCE_SEC), far.listening():
        waiting = await _waiting(far, forwarder)
        for _ in range(20):
            await forwarder.forward(far.address, _call(b"/stats"), _send)
        assert far.connections == 100 + 1
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await forwarder.forward(far.address, _call(b"/stats"), _send)  # what was cut off is not used again
        await forwarder.close()


async def test_who_hangs_up_on_everybody_hangs_up_on_all() -> None:
    far, forwarder = Patient(), Forwarder("a replica")
    async with asyncio.timeout(PATIENCE_SEC), far.listening():
        waiting = await _waiting(far, forwarder)
        await forwarder.close()
        for broken in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(broken, BrokenOff)


async def test_a_far_end_that_has_vanished_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_SILENT_SEC", 0.1)
    far, forwarder = Patient(), Forwarder("a replica")
    async with asyncio.timeout(PATIENCE_SEC), far.listening():
        with pytest.raises(BrokenOff):
            await forwarder.forward(far.address, _call(b"/waits"), _send)
        await forwarder.forward(far.address, _call(b"/stats"), _send)
        await forwarder.close()


@pytest.mark.parametrize("address", [FOR_A_COPY, "[1.2]:8080", "here:90000"])
async def test_at_what_is_no_address_nobody_takes_anything(address: str) -> None:
    forwarder = Forwarder("a replica")
    with pytest.raises(NotTaken):
        await forwarder.forward(address, _call(b"/stats"), _send)
    await forwarder.close()
