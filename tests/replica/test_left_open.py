"""What the dispatcher before has begun, and can neither finish nor take back, is in nobody's way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from tests.databases import Database
from tests.replica.several import claimed, replicas_on, submitted, until
from tests.served import serving

_WRITERS: Final = (
    "FROM pg_stat_activity WHERE application_name = 'fairlane writer' AND datname = current_database() AND backend_xid"
)
_STUCK: Final = f"{_WRITERS} IS NOT NULL"
_IDLE: Final = f"{_WRITERS} IS NULL"


@asynccontextmanager
async def _stuck_between_two_messages(database: Database, job_id: str) -> AsyncIterator[None]:
    """As a writer's session is whose process, or way, stopped when a statement was prepared and not yet executed:
    Postgres counts that neither as idle, which it would end, nor as a statement that takes too long."""
    settings = {"application_name": "fairlane writer", "idle_in_transaction_session_timeout": "1000"}
    session = await asyncpg.connect(database.url, server_settings=settings | {"statement_timeout": "1000"})
    try:
        await session.execute("BEGIN")
        await session.execute(f"SELECT FROM jobs WHERE id = '{job_id}' FOR UPDATE")
        await session.prepare("SELECT 1")
        yield
    finally:
        session.terminate()


async def test_a_connection_in_place_of_another_waits_for_no_lock_of_that_one(postgres: Database) -> None:
    """Its way to Postgres was cut, and only the process has noticed."""
    async with serving(postgres.url) as served, served.client() as client:
        job = await submitted(client, "locked")
        async with _stuck_between_two_messages(postgres, job["id"]):
            # Beside it the server's own session may just be renewing its claim.
            await until(
                lambda: postgres.value(f"SELECT bool_or(state_change < clock_timestamp() - interval '1 s') {_STUCK}")
            )
            await until(lambda: postgres.value(f"SELECT bool_or(pg_terminate_backend(pid)) {_IDLE}"))
            [leased] = await claimed(client, start=True)
            assert leased["id"] == job["id"]


async def test_who_takes_over_waits_for_no_lock_of_the_one_before(postgres: Database) -> None:
    async with replicas_on(postgres, 2, leader_ttl_sec=1) as made, made.all[1].client() as by_second:
        job = await submitted(by_second, "locked")
        async with _stuck_between_two_messages(postgres, job["id"]):
            await made.all[0].kill()
            await made.all[1].logged("dispatch_begun")
            [leased] = await claimed(by_second, start=True)
            assert leased["id"] == job["id"]
