"""The time in which this replica dispatches: what serves requests meanwhile, and how it comes to an end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from litestar.types import ASGIApp, Receive, Scope, Send

from app.errors import NotDispatching, Unavailable
from app.flow.core import Core, Phase
from app.flow.dispatch import end_waiting
from app.flow.housekeeping import Housekeeper
from app.flow.tick import Ticker

HAND_OVER_SEC: Final = 0.2
"""So long those who are being served, and a slow round at work, keep the next dispatcher waiting."""


class Reign:
    """What runs on one `core`, and the application that serves it."""

    def __init__(self, core: Core, ticker: Ticker, housekeeper: Housekeeper, app: ASGIApp) -> None:
        self.core = core
        self._ticker = ticker
        self._housekeeper = housekeeper
        self._app = app
        self._is_handed_over = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._in_flight += 1
        self._idle.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have taken over: the claim has not lapsed, or no other process can open the file."""
        return self.core.is_alone or self.core.dispatcher.is_sure

    async def is_ours(self) -> bool:
        """The same, when the claim could not be renewed in time: the database is asked. Raises `NotDispatching` if it
        does not say it: others may know."""
        try:
            async with self.core.reading() as connection:
                return await self.core.dispatcher.is_still_ours(connection)
        except Unavailable as error:
            raise NotDispatching(str(error)) from error

    @property
    def is_over(self) -> bool:
        """Whether somebody else dispatches, or may from now on."""
        return self._is_handed_over or self.core.writer.lost is not None

    async def drain(self) -> None:
        """Take no new work; results are still taken."""
        self.core.phase = Phase.DRAINING
        end_waiting(self.core)
        await self._ticker.stop()

    async def rest(self) -> None:
        """End the slow rounds."""
        await self._housekeeper.stop()

    async def hurry(self) -> None:
        """Bring to an end what can be in a moment. Who waits for a job, or watches, is let go; who comes too late for
        this is answered by the next."""
        self.core.phase, self._is_handed_over = Phase.DRAINING, True
        end_waiting(self.core)
        await asyncio.gather(self._served(), self._ticker.stop(), self._housekeeper.stop(HAND_OVER_SEC))

    async def _served(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_SEC):
                await self._idle.wait()
