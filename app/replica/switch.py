"""Every replica answers every call: by its own application while it dispatches, otherwise through the one that does.
While nobody dispatches a call waits, for as long as it takes until another takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from app.api.elsewhere import Call, UnlessNotOurs, as_received, keep_as_received, receiving_again
from app.api.errors import ClientGone
from app.api.request import hung_up
from app.errors import NotDispatching, Unavailable
from app.events import ForwardFailed
from app.replica.forward import BrokenOff, Forwarder, NotTaken, Refused
from app.replica.life import Life
from app.replica.reign import Reign
from app.store.dispatcher import Holder

_HEALTH: Final = "/health/"
_NOBODY: Final = "no replica dispatches right now; send this again in a moment"
_IN_DOUBT: Final = "the replica that dispatches broke off; this may have been done"
_MOST_BREAKS: Final = 3
_EVENTS: Final = b"text/event-stream"


class Switch:
    """The ASGI application of a replica for as long as it lives. `standby` is what serves while it does not dispatch; a
    server that is alone needs none."""

    standby: ASGIApp | None = None

    def __init__(self, life: Life, forwarder: Forwarder, wait_sec: float) -> None:
        self._life = life
        self._forwarder = forwarder
        self._wait_sec = wait_sec

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reign = self._life.reign
        if reign is not None and (reign.is_sure or scope["path"].startswith(_HEALTH) or await reign.is_ours()):
            await self._serve(reign, scope, receive, send)
        elif self.standby is None:
            raise NotDispatching("another server has taken over this database")
        else:
            keep_as_received(scope)
            await self.standby(scope, receive, send)

    async def _serve(self, reign: Reign, scope: Scope, receive: Receive, send: Send) -> None:
        """By that reign, unless it comes to its end before anything is done: then by the next, whosever that is."""
        if self.standby is None:
            await reign.serve(scope, receive, send)
            return
        untouched, answer = as_received(scope), UnlessNotOurs(send, lambda: reign.is_over)
        await reign.serve(scope, receive, answer.send)
        if answer.is_held_back:
            keep_as_received(untouched)
            await self.standby(untouched, receiving_again(scope, receive), send)

    async def hand_on(self, call: Call, receive: Receive, send: Send) -> None:
        """Have a call answered by the replica that dispatches; that may be this one by then. One that only waits is let
        go when this replica is asked to end. Raises `Unavailable`."""
        answer = _Answer(send)
        work = asyncio.create_task(self._answered_elsewhere(call, answer))
        gone = asyncio.create_task(hung_up(receive))
        leaving = asyncio.create_task(self._life.asked_to_leave())
        try:
            await asyncio.wait({work, gone, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if call.if_nothing_came and answer.may_end_now and not (work.done() or gone.done()):
                await _ended(work)
                await answer.end_with(*call.if_nothing_came)
                return
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_ours = work.done() and work.result()
            if not work.done() and not answer.has_begun:
                raise ClientGone
        finally:
            await _ended(work, gone, leaving)
        if is_ours:
            await self(call.scope, call.receiving(receive), send)

    async def _answered_elsewhere(self, call: Call, answer: _Answer) -> bool:
        """Whether it is for us to answer it: we dispatch by now."""
        loop = asyncio.get_running_loop()
        ends_at, breaks, is_refused = loop.time() + self._wait_sec, 0, False
        while True:
            place = await self._dispatcher_by(ends_at, is_refused=is_refused)
            if place is None:
                return True
            try:
                await self._forward(place, call, answer)
            except NotTaken as error:
                is_refused = isinstance(error, Refused)
                (self._life.way.refused if is_refused else self._life.way.not_reached)(place)
                self._tell(ForwardFailed(place.address, str(error)))
            except BrokenOff as error:
                self._tell(ForwardFailed(place.address, str(error)))
                if answer.has_begun:
                    await answer.end_if_it_may_end_anywhere()
                    return False
                breaks += 1
                if not call.may_repeat or breaks == _MOST_BREAKS:
                    raise Unavailable(_IN_DOUBT) from error
                ends_at = loop.time() + self._wait_sec
            else:
                return False
            await self._life.news()

    def _tell(self, event: ForwardFailed) -> None:
        self._life.onlooker.emit(event)

    async def _dispatcher_by(self, ends_at: float, *, is_refused: bool) -> Holder | None:
        """Who dispatches, once somebody does; None if that is we. Raises `Unavailable`."""
        life = self._life
        while asyncio.get_running_loop().time() < ends_at:
            if life.reign is not None and life.reign.is_sure:
                return None
            if (place := life.way.place_to_try(again=is_refused)) is not None:
                return place
            if life.reign is None and not life.onlooker.can_read:
                raise Unavailable("the database is away")
            await life.news()
        raise Unavailable(_NOBODY)

    async def _forward(self, place: Holder, call: Call, answer: _Answer) -> None:
        """Raises `NotTaken`, `BrokenOff`."""
        superseded = self._life.superseded
        answer.when_begun = partial(self._life.way.reached, place)
        hop = asyncio.create_task(self._forwarder.forward(place.address, call, answer.send))
        try:
            await asyncio.wait({hop, superseded}, return_when=asyncio.FIRST_COMPLETED)
            if not hop.done():
                raise BrokenOff("another one dispatches by now")
            hop.result()
        finally:
            await _ended(hop)


class _Answer:
    """What was sent of an answer so far. `when_begun` is called with its first part."""

    when_begun: Callable[[], None]

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self._is_stream_of_events = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            self.when_begun()
            types = [value for name, value in message["headers"] if name == b"content-type"]
            self._is_stream_of_events = any(value.startswith(_EVENTS) for value in types)
        await self._send(message)

    @property
    def may_end_now(self) -> bool:
        """Whether no part of it would be missing."""
        return self._is_stream_of_events or not self.has_begun

    async def end_with(self, kind: bytes, body: bytes) -> None:
        """All of it, or if some was sent, no more."""
        if self.has_begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def end_if_it_may_end_anywhere(self) -> None:
        """Whoever reads events comes again when they end. Of everything else the client must see that a part is
        missing, and it does: the connection is closed on it."""
        if self._is_stream_of_events:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them, and wait until they are at their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
