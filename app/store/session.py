"""How the layers above get a connection to look with, apart from the writer's. A database that is away is
`Unavailable` to them, whatever the driver calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import Unavailable
from app.store.dialect import is_unavailable
from app.store.engine import Engines

Connection: TypeAlias = AsyncConnection


@asynccontextmanager
async def reading(engines: Engines) -> AsyncIterator[Connection]:
    """One transaction that sees what is committed and waits for no writer. Raises `Unavailable`."""
    try:
        async with engines.reader.begin() as connection:
            yield connection
    except Exception as error:
        if is_unavailable(error):
            raise Unavailable("the database cannot be read right now") from error
        raise
