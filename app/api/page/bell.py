"""Tells open pages that there is something new to see, and not more often than it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from litestar import get
from litestar.di import NamedDependency

from app.api.page.request import PageRequest
from app.api.page.shared import Shared
from app.api.stream import EventStream
from app.flow.watch.feed import Watcher

_LONGEST_SILENCE_SEC: Final = 10.0
"""Times pass also when nothing moves."""

_LEAST_PAUSE_SEC: Final = 1.0
"""Between two rings, however much moves."""

_RING: Final = b"event: changed\ndata: look again\n\n"


@get("/page/changes", include_in_schema=False)
async def ring_on_changes(request: PageRequest, front_page: NamedDependency[Shared[str]]) -> EventStream:
    """An event whenever a page has something new to show: once a second at most, every ten seconds at least."""
    watcher = request.core.feed.watch(reads=False)
    return EventStream(request.core, request.holder, watcher, rings(watcher, front_page))


async def rings(watcher: Watcher, front_page: Shared[str]) -> AsyncIterator[bytes]:
    """What the stream tells, for ever."""
    await front_page.stale()  # who asks for the bell may have been given one from before its ears were open
    yield _RING
    while True:
        try:
            async with asyncio.timeout(_LONGEST_SILENCE_SEC):
                await watcher.arrived()
        except TimeoutError:
            yield _RING
            continue
        await front_page.stale()  # until then a look would not show what is new
        watcher.skip()
        yield _RING
        await asyncio.sleep(_LEAST_PAUSE_SEC)
