"""The register of replicas, judged by the database's clock alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from app.clock import Clock
from app.errors import DispatchLost
from app.store import replicas
from app.store.dispatcher import Dispatcher
from app.store.engine import Engines, open_engines
from app.store.replicas import Replica
from tests.databases import Database, Databases

LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)
"""When they were started, by a clock that nobody believes."""


def replica(name: str) -> Replica:
    return Replica(name, f"{name}:8080", "1.0", LONG_AGO)


async def beat(engines: Engines, who: Replica, since: datetime | None = None) -> None:
    async with engines.writer.begin() as connection:
        await replicas.beat(connection, who, since)


async def test_each_is_there_until_it_leaves_or_is_silent_for_long(database: Database, engines: Engines) -> None:
    one, two = replica("one"), replica("two")
    for who in (one, two, one):
        await beat(engines, who)
    async with engines.reader.begin() as connection:
        found = await replicas.every(connection)
        assert [(each.name, each.address, each.version, each.started_at) for each in found] == [
            (who.name, who.address, "1.0", LONG_AGO) for who in (one, two)
        ]
        assert all(0 <= each.lag_sec < 60 for each in found)
        assert await replicas.others_live(connection, one, within_sec=60)
        assert not await replicas.others_live(connection, one, within_sec=-60)
    async with engines.writer.begin() as connection:
        await replicas.forget(connection, "two")
    async with engines.reader.begin() as connection:
        assert not await replicas.others_live(connection, one, within_sec=60)
    await database.execute("UPDATE replicas SET last_seen_at = started_at")
    await beat(engines, two)
    async with engines.reader.begin() as connection:
        assert [each.name for each in await replicas.every(connection)] == ["two"]


async def test_only_who_holds_the_row_dispatches(database: Database, engines: Engines) -> None:
    dispatcher = Dispatcher(Clock(), lambda _: None, "one:8080", ttl_sec=60)
    assert await dispatcher.take_if_free(engines.writer)
    assert not await Dispatcher(Clock(), lambda _: None, "two:8080").take_if_free(engines.writer)
    for who in (dispatcher.me, replica("who says so too")):
        await beat(engines, who, LONG_AGO)

    async def roles() -> dict[str, str]:
        async with engines.reader.begin() as connection:
            return {each.address: each.role for each in await replicas.every(connection)}

    assert await roles() == {"one:8080": "dispatcher", "who says so too:8080": "standby"}
    await dispatcher.release(engines.writer)
    assert await roles() == {"one:8080": "standby", "who says so too:8080": "standby"}
    assert await database.value("SELECT epoch FROM dispatcher") == 1


async def test_of_many_who_take_a_row_that_has_lapsed_one_gets_it(database: Database) -> None:
    async with AsyncExitStack() as stack:
        all_engines = [await stack.enter_async_context(open_engines(database.url)) for _ in range(8)]
        for epoch in range(1, 4):
            dispatchers = [Dispatcher(Clock(), lambda _: None, f"{number}:1", ttl_sec=60) for number in range(8)]
            takes = (made.take_if_free(engines.writer) for made, engines in zip(dispatchers, all_engines, strict=True))
            taken = await asyncio.gather(*takes)
            assert sorted(taken) == [False] * 7 + [True]
            assert dispatchers[taken.index(True)].epoch == epoch
            await database.execute("UPDATE dispatcher SET expires_at = '2026-01-05T00:00:00.000000Z'")


async def test_a_row_that_is_being_proved_is_passed_over_though_it_has_lapsed(postgres_databases: Databases) -> None:
    database = await asyncio.to_thread(postgres_databases.create)
    one, two = (Dispatcher(Clock(), lambda _: None, address, ttl_sec=60) for address in ("one:1", "two:1"))
    async with open_engines(database.url) as ours, open_engines(database.url) as theirs:
        assert await one.take_if_free(ours.writer)
        await database.execute("UPDATE dispatcher SET expires_at = now() - interval '1 minute'")
        async with ours.writer.begin() as connection:
            await one.prove(connection, Clock().now())
            assert not await two.take_if_free(theirs.writer)  # at once: to wait would end with a lock timeout
        assert not await two.take_if_free(theirs.writer)
        await database.execute("UPDATE dispatcher SET expires_at = now() - interval '1 minute'")
        assert await two.take_if_free(theirs.writer)
        with pytest.raises(DispatchLost):
            async with ours.writer.begin() as connection:
                await one.prove(connection, Clock().now())
    await asyncio.to_thread(postgres_databases.drop, database)
