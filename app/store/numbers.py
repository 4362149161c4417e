"""The numbers that new jobs are given: some are always in store, so that no job waits for the database to say which are
free. What is in store when a process ends is given to nobody."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import dialect

FEWEST_DRAWN: Final = 100
"""So many at once cost no more than one, and are no loss."""


MOST_RESTOCKED: Final = 500
"""For more the next transaction waits a moment, as it does for much else."""


class Numbers:
    """Numbers of `jobs.seq`, growing. They are drawn in the transactions of one writer."""

    def __init__(self) -> None:
        self._left: deque[int] = deque()
        self._used = 0

    async def begin(self, connection: Callable[[], AsyncConnection], wanted: int) -> None:
        """Have so many for the transaction that begins here, whose connection is asked for if it is needed."""
        self._used = 0
        if wanted > len(self._left):
            await self._draw(connection(), wanted - len(self._left))

    def take(self) -> int:
        """The next one; at most as many as were wanted."""
        self._used += 1
        return self._left.popleft()

    async def restock(self, connection: Callable[[], AsyncConnection]) -> None:
        """At the end of a transaction, have as many for one like it. One that takes very many draws them itself, while
        the answers to the last are on their way."""
        if len(self._left) < self._used <= MOST_RESTOCKED:
            await self._draw(connection(), self._used)

    def drop(self) -> None:
        """The transaction is undone, and on SQLite with it what it has drawn."""
        self._left.clear()

    async def _draw(self, connection: AsyncConnection, count: int) -> None:
        self._left.extend(await dialect.draw_seqs(connection, max(count, FEWEST_DRAWN)))
