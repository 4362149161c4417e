"""Looking at many rows without holding the loop, or all of them in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncConnection

_ROWS: Final = 500


async def in_slices(
    connection: AsyncConnection, statement: Select[Any], at_once: int = _ROWS
) -> AsyncIterator[Sequence[Any]]:
    """The rows of a statement, so many at a time; others come in between."""
    async for rows in (await connection.stream(statement)).partitions(at_once):
        yield rows
