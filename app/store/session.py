"""How the layers above get a connection to look with, apart from the writer's. A database that is away is
`Unavailable` to them, whatever the driver calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import Unavailable
from app.store.answers import ANSWER_SEC
from app.store.dialect import FROZEN, is_unavailable
from app.store.engine import Engines
from app.store.schema import dispatcher

Connection: TypeAlias = AsyncConnection


@asynccontextmanager
async def reading(engines: Engines, *, patient: bool = False) -> AsyncIterator[Connection]:
    """One transaction that sees what is committed and waits for no writer. Raises `Unavailable`, unless `patient` also
    as soon as the database is found not to answer; a single look may take longer than that."""
    with _unavailable_if_away():
        in_time = nullcontext() if patient else engines.reader_answers.required(ANSWER_SEC)
        async with in_time, engines.reader.begin() as connection:
            yield connection


@asynccontextmanager
async def freezing(engines: Engines) -> AsyncIterator[Connection]:
    """A connection that is in no transaction yet; from `freeze` on it sees the database as it was at that call,
    however long it looks. Raises `Unavailable`."""
    with _unavailable_if_away():
        async with engines.reader.connect() as connection:
            yield await connection.execution_options(**FROZEN[engines.dialect])


async def freeze(connection: Connection) -> None:
    """Begin the transaction of `freezing`; once more, if it has begun already."""
    await connection.rollback()
    await connection.begin()
    await connection.execute(select(dispatcher.c.epoch))  # it is the first look that settles what is seen


@contextmanager
def _unavailable_if_away() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_unavailable(error):
            raise Unavailable("the database cannot be read right now") from error
        raise
