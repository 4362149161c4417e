"""The two clients behind one face, so that one test holds both to the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from app.client import AsyncClient, Client, Job

Kind = Literal["blocking", "async"]
KINDS: Final[tuple[Kind, ...]] = ("blocking", "async")


class Either:
    """A client of either kind; every method is awaited. The blocking one works in a thread, so that what it speaks
    to may run here."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def method(*args: Any, **kwargs: Any) -> Any:
            called = getattr(self.client, name)
            if isinstance(self.client, AsyncClient):
                return await called(*args, **kwargs)
            return await asyncio.to_thread(called, *args, **kwargs)

        return method

    def within(self, deadline_sec: float | None) -> Either:
        """As the client's own."""
        return Either(self.client.within(deadline_sec))

    def without_retries(self) -> Either:
        """As the client's own."""
        return Either(self.client.without_retries())

    async def walked(self, **which: Any) -> list[Job]:
        """All that `iter_jobs` gives."""
        if isinstance(self.client, AsyncClient):
            return [job async for job in self.client.iter_jobs(**which)]
        return await asyncio.to_thread(list, self.client.iter_jobs(**which))


@asynccontextmanager
async def connected(kind: Kind, url: str, **options: Any) -> AsyncIterator[Either]:
    """A client of that kind."""
    if kind == "async":
        async with AsyncClient(url, **options) as client:
            yield Either(client)
        return
    with Client(url, **options) as blocking:
        yield Either(blocking)
