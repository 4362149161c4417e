"""Idempotency keys in flight. Twins of one request wait for the first of them, so that each key is looked
up and inserted by one task at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

Key = tuple[str, str]
"""(tenant, idempotency key)."""


class KeysInFlight:
    """The keys that a submit is working on right now."""

    def __init__(self) -> None:
        self._held: dict[Key, asyncio.Event] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[Key]) -> AsyncIterator[None]:
        """Wait until nobody works on any of the keys, then keep others waiting. All are taken at one
        moment, so two batches that share keys never wait for each other."""
        wanted = set(keys)
        while busy := [self._held[key] for key in wanted if key in self._held]:
            await busy[0].wait()
        done = asyncio.Event()
        self._held.update(dict.fromkeys(wanted, done))
        try:
            yield
        finally:
            for key in wanted:
                del self._held[key]
            done.set()
