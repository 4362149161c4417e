"""Asks the replica that dispatches for a sign of life where no call has shown one of late: a balancer that sends nobody
here any more is to learn when it may again."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from litestar.types import Message

from app.api.elsewhere import Call
from app.events import Emit, LoopFailed
from app.replica.forward import BrokenOff, Forwarder, NotTaken, Refused
from app.replica.way import Way

_ANSWER_SEC: Final = 2.0
"""So long a sign of life may take."""

_SCOPE: Final[Any] = {
    "method": "GET",
    "raw_path": b"/health/live",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],  # which every replica takes
}
_QUESTION: Final = Call(_SCOPE, b"", may_repeat=True, if_nothing_came=None)


@asynccontextmanager
async def probing(way: Way, forwarder: Forwarder, every_sec: float, emit: Emit) -> AsyncIterator[None]:
    """Again and again, for as long as the block lasts."""
    task = asyncio.create_task(_go_on(way, forwarder, every_sec, emit), name="probe")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _go_on(way: Way, forwarder: Forwarder, every_sec: float, emit: Emit) -> None:
    while True:
        await asyncio.sleep(every_sec)
        try:
            await probe(way, forwarder, every_sec)
        except Exception:  # noqa: BLE001 - whatever it was must not end the loop
            emit(LoopFailed("probe", traceback.format_exc(), every_sec))


async def probe(way: Way, forwarder: Forwarder, every_sec: float) -> None:
    """Whoever answers there is reached, whatever he says, unless it is that he does not dispatch."""
    place = way.place_to_probe(every_sec)
    if place is None:
        return
    try:
        async with asyncio.timeout(_ANSWER_SEC):
            await forwarder.forward(place.address, _QUESTION, _ignore)
    except Refused:
        way.refused(place)
    except (NotTaken, BrokenOff, TimeoutError):
        way.not_reached(place)
    else:
        way.reached(place)


async def _ignore(_part: Message) -> None:
    """What is said is of no interest."""
