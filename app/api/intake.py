"""Bodies on their way in: how much of them all is held at once, and how long one may take. Small ones always get
through, for they are not counted."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from litestar.types import Receive, ReceiveMessage

from app.api.errors import BodyTooSlow, TooManyBodies

_MOST_BYTES: Final = 256 * 1024 * 1024
_FREE_BYTES: Final = 64 * 1024
"""Of each body, so that many large ones that do not come to their end keep no small one out."""


class Intake:
    """What all bodies share."""

    within_sec: ClassVar[float] = 60.0

    def __init__(self) -> None:
        self.left_bytes = _MOST_BYTES


class Body:
    """One body, from its headers until its request is answered."""

    def __init__(self, intake: Intake, receive: Receive) -> None:
        self._intake = intake
        self._receive = receive
        self._deadline = asyncio.get_running_loop().time() + intake.within_sec
        self._is_complete = False
        self._free_bytes = _FREE_BYTES
        self._held_bytes = 0

    async def receive(self) -> ReceiveMessage:
        """What comes next of it, and after it. Raises `BodyTooSlow` and `TooManyBodies`."""
        if self._is_complete:
            return await self._receive()
        message = await self._next()
        if message["type"] == "http.request":
            self._is_complete = not message["more_body"]
            self._hold(len(message["body"]))
        return message

    def let_go(self) -> None:
        """Its request is answered: nothing of it is held any more."""
        self._intake.left_bytes += self._held_bytes
        self._held_bytes = 0

    async def _next(self) -> ReceiveMessage:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            raise BodyTooSlow from None

    def _hold(self, count: int) -> None:
        free = min(count, self._free_bytes)
        self._free_bytes -= free
        counted = count - free
        if counted > self._intake.left_bytes:
            raise TooManyBodies
        self._intake.left_bytes -= counted
        self._held_bytes += counted
