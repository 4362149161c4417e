"""A service behind a pooler by transaction: nothing of it lives in a session."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import open_engines
from tests.effort import EFFORT
from tests.faults.clients import at_work
from tests.faults.pooler import PROGRAM, Pooler
from tests.faults.postgres import OwnPostgres

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: the package pgbouncer)"),
]


async def test_work_goes_on_behind_it_and_after_its_death(own: OwnPostgres) -> None:
    pooler = Pooler(own.socket.parent)
    async with pooler.run(), at_work(own.database, "pooler", url=own.through(pooler)) as clients:
        await clients.progress(50)
        for _ in range(EFFORT):
            async with clients.trouble("another pooler"):
                await pooler.restart()


async def test_the_same_connection_of_ours_is_several_of_the_server(own: OwnPostgres) -> None:
    """Or nothing of this would have been tried."""
    pooler = Pooler(own.socket.parent)
    async with (
        pooler.run(),
        open_engines(own.through(pooler)) as engines,
        engines.writer.connect() as writer,
        engines.reader.connect() as reader,
    ):
        before = await _server_side(writer)
        await writer.rollback()
        held = await _server_side(reader)  # in a transaction that goes on
        after = await _server_side(writer)
    assert before == held != after


async def _server_side(connection: AsyncConnection) -> int:
    number: int = (await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one()
    return number
