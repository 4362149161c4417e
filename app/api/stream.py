"""An answer that goes on: server-sent events. It ends at once when the service drains, when the client hangs up, and
when the client takes nothing for a while; and with the key that it was asked for with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

from app.api.request import hung_up
from app.flow.watch.feed import Feed, Watcher

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
    """Sends `events` of `watcher`, which it closes in the end, for as long as `may_go_on` says yes before each."""

    _should_set_content_length = False

    def __init__(
        self, feed: Feed, watcher: Watcher, events: AsyncIterator[bytes], may_go_on: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__(headers=dict(_HEADERS))
        self._ended = feed.ended
        self._watcher = watcher
        self._events = events
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watcher:
            await super().__call__(scope, receive, send)

    async def send_body(self, send: Send, receive: Receive) -> None:
        sending = asyncio.create_task(self._send_events(send), name="event stream")
        gone = asyncio.create_task(hung_up(receive), name="event stream's client")
        try:
            await asyncio.wait({sending, gone, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.wait({sending, gone})
        with suppress(TimeoutError):
            if not sending.cancelled():
                sending.result()
            async with asyncio.timeout(0):  # what a client takes no more is not waited for
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        await send(_part(STILL_HERE))  # so that the client knows at once that it is heard
        async for event in self._events:
            if not await self._may_go_on():
                return
            async with asyncio.timeout(_STUCK_SEC):
                await send(_part(event))


def _part(body: bytes) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": body, "more_body": True}
