"""An answer that goes on: server-sent events. It ends at once when the service drains, when the client hangs up, and
when the client takes nothing for a while; and with the key that it was asked for with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

from app.api.request import hung_up
from app.errors import NoKey
from app.flow.access.admit import is_still_let_in, until_shut_out
from app.flow.core import Core
from app.flow.watch.feed import Watcher
from app.keys import Holder

QUIET_SEC: Final = 15.0
"""So long may a stream be silent; then it says that it is still there."""

STILL_HERE: Final = b":\n\n"

_STUCK_SEC: Final = 30.0
"""A client that takes nothing for so long is let go."""

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that collects an answer before it hands it on would hold this one for ever
}


class EventStream(ASGIResponse):
    """Sends `events` of `watcher`, which it closes in the end, for as long as `holder` is let in."""

    _should_set_content_length = False

    def __init__(self, core: Core, holder: Holder, watcher: Watcher, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers=dict(_HEADERS))
        self._core = core
        self._holder = holder
        self._watcher = watcher
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watcher:
            await super().__call__(scope, receive, send)

    async def send_body(self, send: Send, receive: Receive) -> None:
        sending = asyncio.create_task(self._send_events(send), name="event stream")
        gone = asyncio.create_task(hung_up(receive), name="event stream's client")
        shut_out = asyncio.create_task(self._shut_out(), name="event stream's key")
        try:
            ends = {sending, gone, shut_out, self._core.feed.ended}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (tasks := {sending, gone, shut_out}):
                task.cancel()
            await asyncio.wait(tasks)
        with suppress(TimeoutError):
            if not sending.cancelled():
                sending.result()
            async with asyncio.timeout(0):  # what a client takes no more is not waited for
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        await send(_part(STILL_HERE))  # so that the client knows at once that it is heard
        async for event in self._events:
            if not await is_still_let_in(self._core, self._holder):
                return
            async with asyncio.timeout(_STUCK_SEC):
                await send(_part(event))

    async def _shut_out(self) -> None:
        with suppress(NoKey):
            await until_shut_out(self._core, self._holder)


def _part(body: bytes) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": body, "more_body": True}
