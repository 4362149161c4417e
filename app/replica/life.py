"""The life of a replica: it stands by until nobody dispatches, dispatches until another has taken over or it is asked
to end, and stands by again."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime
from typing import Final, TypeAlias

from app.errors import AnotherDispatcher, DispatchLost, NotServed
from app.events import DispatchBegun, DispatchHandedOver, DispatchTakenOver, LoopFailed, StandingBy
from app.flow.onlooker import Onlooker
from app.flow.replicas import beat
from app.replica.reign import Reign
from app.replica.way import LOOK_EVERY_SEC, Way
from app.store import replicas
from app.store.answers import ANSWER_SEC
from app.store.dialect import is_unavailable
from app.store.dispatcher import FOR_A_COPY, Holder

Begin: TypeAlias = Callable[[], AbstractAsyncContextManager[Reign]]
"""Begins to dispatch, for who has just taken the row; at its end the row is given back."""

TAKING_OVER_SEC: Final = 1.0
"""So long it may take from the moment at which a claim lapses until another replica dispatches."""

_RETRY_SEC: Final = 1.0
_FOLLOWED_SEC: Final = 1.0
"""So long a row that was given back is left to the others, who look ten times meanwhile."""

_GRACE_SEC: Final = 1.0
"""A dispatcher that was followed may still answer what it has done before: so long."""

_HELD_SEC: Final = 10.0
"""A connection keeps what its last request was answered by, and is closed when none comes for five seconds."""


class Life:
    """What this replica is at the moment: `reign` while it dispatches; `way` leads to who does so otherwise."""

    def __init__(self, onlooker: Onlooker, begin: Begin) -> None:
        self.onlooker = onlooker
        self.reign: Reign | None = None
        self.superseded = _future()
        """Done some time after another has followed who dispatched: who was asked before answers no more."""
        self._begin = begin
        self._dispatcher = onlooker.dispatcher
        self._me = self._dispatcher.me
        self._writer = onlooker.engines.writer  # its one connection is free as long as this replica does not dispatch
        self._clock, self._emit = onlooker.clock, onlooker.emit
        self.way = Way(onlooker.clock, self._dispatcher.address, self._dispatcher.claim_sec + TAKING_OVER_SEC)
        self._stack = AsyncExitStack()
        self._news = asyncio.Event()
        self._told_of: int | None = None
        self._beat_at = 0.0
        self._asked_to_leave, self._may_end = asyncio.Event(), asyncio.Event()

    async def news(self) -> None:
        """Wait until it was looked once more who dispatches, or for as long as it takes between two looks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_SEC):
                await self._news.wait()

    async def start(self) -> None:
        """Dispatch, or find out who does. Raises what a start raises."""
        if self.onlooker.is_alone:
            await self._dispatcher.take(self._writer, locked=True)
            await self._reign()
            return
        seen = await self._dispatcher.look(self._writer)
        if seen is not None and seen.address == FOR_A_COPY:
            await self._dispatcher.take(self._writer, locked=False)
            await self._reign()
            return
        await self._look()

    async def run(self) -> None:
        """Go on until cancelled. Raises what keeps this replica from being of any more use."""
        while True:
            if self.reign is None:
                await self._stand_by()
            elif await self._is_lost(self.reign):
                await self._step_down()
            else:
                await self._abdicate(self.reign)

    async def leave(self) -> None:
        """It was asked to end: when this returns, somebody else dispatches if there is anybody. What comes is still
        answered."""
        self.onlooker.is_leaving = True
        self._asked_to_leave.set()
        await self._may_end.wait()

    async def asked_to_leave(self) -> None:
        """Wait until it is."""
        await self._asked_to_leave.wait()

    async def rest(self) -> None:
        """No more slow rounds, if this replica still dispatches."""
        if self.reign is not None:
            await self.reign.rest()

    async def close(self) -> None:
        """The end, after `run` has ended."""
        await self._stack.aclose()
        self.reign = None
        if not self.onlooker.is_alone:
            await self._sign_off()

    # --- dispatching

    async def _reign(self) -> None:
        """The row was taken."""
        if not self.onlooker.is_alone:
            with suppress(Exception):  # it is noted again in a moment
                await self._beat(self._dispatcher.since)
        self.onlooker.is_taking_over = True
        try:
            self.reign = await self._stack.enter_async_context(self._begin())
        except Exception:
            gc.collect()  # it is tried again and again; this attempt goes with the next
            raise
        finally:
            self.onlooker.is_taking_over = False
        self._see(None)
        self._emit(DispatchBegun(self._dispatcher.epoch))

    async def _take_over(self) -> None:
        """The row was taken. If this one is asked to leave before it has read all that it needs, it gives it back."""
        reigning = asyncio.create_task(self._reign(), name="taking over")
        asked = asyncio.create_task(self._asked_to_leave.wait(), name="asked to leave")
        try:
            await asyncio.wait({reigning, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            reigning.cancel()  # without effect once it reigns
            await asyncio.wait({reigning})
        if reigning.cancelled():
            with suppress(Exception):  # it lapses by itself
                await self._dispatcher.release(self._writer)
        else:
            reigning.result()

    async def _is_lost(self, reign: Reign) -> bool:
        """Whether another one has taken over; not, if this one is asked to leave before that."""
        lost = asyncio.create_task(reign.core.writer.lost_event.wait(), name="dispatch lost")
        asked = asyncio.create_task(self._asked_to_leave.wait(), name="asked to leave")
        ends = {lost} if self._may_end.is_set() else {lost, asked}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return lost.done()
        finally:
            lost.cancel()
            asked.cancel()

    async def _step_down(self) -> None:
        self._emit(DispatchTakenOver())
        self.reign = None
        await self._stack.aclose()
        if self.onlooker.is_alone:
            raise DispatchLost("another server has taken over this database")
        self._forget()

    def _forget(self) -> None:
        """All that was in memory hangs together in cycles. Python looks for them so seldom that the next reign may come
        before, and what is there when one begins is not looked at while it lasts."""
        gc.collect()
        asyncio.get_running_loop().call_later(_HELD_SEC, gc.collect)

    async def _abdicate(self, reign: Reign) -> None:
        """Let another replica go on at once; if there is none, finish what is begun."""
        if await self._has_successor():
            await self._hand_over(reign)
        if self.reign is not None:
            await self.reign.drain()
        self._may_end.set()

    async def _hand_over(self, reign: Reign) -> None:
        """To whoever takes the row; if nobody does, this one goes on: who was heard of lately may have gone since."""
        began = self._clock.monotonic()
        self.reign = None
        await reign.hurry()
        await self._stack.aclose()
        took_sec = self._clock.monotonic() - began
        if not await self._is_followed():
            with suppress(Exception):  # a database that is away can be taken by nobody
                if await self._dispatcher.take_if_free(self._writer):
                    await self._reign()
                    return
        self._emit(DispatchHandedOver(took_sec * 1000))
        await self._sign_off()

    async def _is_followed(self) -> bool:
        """Whether another one dispatches, soon."""
        until = self._clock.monotonic() + _FOLLOWED_SEC
        while self._clock.monotonic() < until:
            with suppress(Exception):  # the next look may be better
                await self._look()
            self._tell_news()
            if self.way.holder is not None and self.way.holder.epoch > self._dispatcher.epoch:
                return True
            await asyncio.sleep(LOOK_EVERY_SEC)
        return False

    async def _has_successor(self) -> bool:
        if self.onlooker.is_alone:
            return False
        with suppress(Exception):  # a database that is away says nothing, and takes no other dispatcher either
            async with self.onlooker.reading() as connection:
                return await replicas.others_live(connection, self._me, self._dispatcher.claim_sec)
        return False

    # --- standing by

    async def _stand_by(self) -> None:
        while self.reign is None:
            if self.onlooker.is_leaving and not self._may_end.is_set():
                await self._sign_off()
                self._may_end.set()
            pause = LOOK_EVERY_SEC
            try:
                await self._look()
                self._refuse_beside_a_copy()
            except (AnotherDispatcher, NotServed):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may be better
                pause = self._told(error)
            self._tell_news()
            if self.reign is None:
                await asyncio.sleep(pause)

    async def _look(self) -> None:
        """Who dispatches? If nobody does, this one does from now on."""
        is_taken = False
        async with self.onlooker.engines.writer_answers.required(ANSWER_SEC):
            seen = await self._dispatcher.look(self._writer)
            if not self.onlooker.is_leaving:  # who leaves takes nothing any more, and is not to be counted on
                is_free = seen is None or seen.is_free
                is_taken = is_free and await self._dispatcher.take_if_free(self._writer)
                if not is_taken and self._clock.monotonic() >= self._beat_at:
                    await self._beat()
        self.onlooker.can_read, self.onlooker.looked_at = True, self._clock.monotonic()
        if is_taken:
            await self._take_over()
        else:
            self._see(seen)

    def _see(self, seen: Holder | None) -> None:
        if self.way.see(seen):
            self._supersede()
        self.onlooker.cut_off_from = self.way.cut_off_from()
        self.onlooker.is_misled = seen is not None and not seen.is_free and seen.address == self._dispatcher.address
        if seen is not None and not seen.is_free and seen.epoch != self._told_of:
            self._told_of = seen.epoch
            self._emit(StandingBy(seen.holder, seen.address))

    def _supersede(self) -> None:
        old, self.superseded = self.superseded, _future()
        asyncio.get_running_loop().call_later(_GRACE_SEC, _finish, old)

    def _refuse_beside_a_copy(self) -> None:
        seen = self.way.holder
        if seen is not None and not seen.is_free and seen.address == FOR_A_COPY:
            raise AnotherDispatcher(seen.holder, seen.address)

    def _tell_news(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _told(self, error: Exception) -> float:
        """A database that is away shows in `ready`; everything else is a fault."""
        self.onlooker.looked_at = self._clock.monotonic()
        if is_unavailable(error):
            self.onlooker.can_read = False
            return LOOK_EVERY_SEC
        self._emit(LoopFailed("replica", "".join(traceback.format_exception(error)), _RETRY_SEC))
        return _RETRY_SEC

    # --- the register

    async def _beat(self, dispatching_since: datetime | None = None) -> None:
        await beat(self.onlooker, dispatching_since)
        self._beat_at = self._clock.monotonic() + self._dispatcher.renew_every_sec

    async def _sign_off(self) -> None:
        with suppress(Exception):  # whom nobody hears of is struck off by the others
            await self.onlooker.note(lambda connection: replicas.forget(connection, self._me.name))


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _finish(future: asyncio.Future[None]) -> None:
    future.set_result(None)
