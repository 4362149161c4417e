"""Who is there: each replica tells of all, and who is gone is told of no more."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
from sqlalchemy import text

from app.store.engine import open_engines
from app.store.replicas import Replica, beat, every
from tests.cli.running import Fairlane
from tests.databases import Database, Databases
from tests.replica.several import TTL_SEC, replicas_on, until
from tests.served import Served, serving


async def _listed(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get("/replicas")
    assert answer.status_code == 200
    return list(answer.json())


async def test_every_replica_tells_of_all(postgres: Database) -> None:
    async with replicas_on(postgres, 3, shutdown_grace_sec=3600) as made, made.all[2].client() as by_third:
        listed = await _listed(by_third)
        assert [each["address"] for each in listed] == [served.url.removeprefix("http://") for served in made.all]
        assert [each["role"] for each in listed] == ["dispatcher", "standby", "standby"]
        assert [each["dispatching_since"] is None for each in listed] == [False, True, True]
        assert {each["version"] for each in listed} == {version("fairlane")}
        assert all(each["started_at"] <= each["last_seen_at"] for each in listed)
        async with made.all[0].client() as by_first:
            assert [each["name"] for each in await _listed(by_first)] == [each["name"] for each in listed]
        page = await by_third.get("/")
        assert f"{listed[0]['name']} at {listed[0]['address']} dispatches since" in page.text
        assert "2 replicas stand by" in page.text
        told = await asyncio.to_thread(Fairlane(made.all[1].url), "replicas")
        assert [row.split("  ")[0] for row in told.output.splitlines()[1:]] == [each["name"] for each in listed]

        names = [each["name"] for each in listed[1:]]
        async with _slow_request(made.all[0]):  # who ends politely is gone at once, though it still has something to do
            made.all[0].signal(signal.SIGTERM)
            await until(lambda: _is(by_third, names, "dispatcher"))
            seen = [each["last_seen_at"] for each in await _listed(by_third)]
            await until(lambda: _are_seen_after(by_third, max(seen)))
            assert await _is(by_third, names, "dispatcher")
            assert made.all[0].process.returncode is None
        assert await made.all[0].exited() == 0
        await made.all[1].kill()  # who does not, when nothing was heard of it for a minute
        await postgres.execute(
            f"UPDATE replicas SET last_seen_at = last_seen_at - interval '2 minutes' WHERE name = '{names[0]}'"
        )
        await until(lambda: _is(by_third, names[1:], "dispatcher"))


async def _is(client: httpx.AsyncClient, names: list[str], role: str) -> bool:
    """Whether these are listed, and one of them has that role."""
    listed = await _listed(client)
    return [each["name"] for each in listed] == names and role in [each["role"] for each in listed]


async def _are_seen_after(client: httpx.AsyncClient, moment: str) -> bool:
    return all(each["last_seen_at"] > moment for each in await _listed(client))


@asynccontextmanager
async def _slow_request(served: Served) -> AsyncIterator[None]:
    """A request that is on its way for as long as the block lasts."""
    where = urlsplit(served.url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"POST /jobs HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
    await writer.drain()
    async with served.client() as client:  # a whole request behind it, so that its head has arrived
        await client.get("/health/live")
    try:
        yield
    finally:
        writer.close()


async def test_replicas_that_come_back_together_after_a_long_silence_do_not_wait_for_each_other(
    postgres: Database,
) -> None:
    first, second = (Replica(name, "here:1", "1", datetime.now(UTC)) for name in ("a", "b"))
    async with open_engines(postgres.url) as engines, engines.writer.connect() as by_first:
        for replica in (first, second):
            await beat(by_first, replica, None)
        await by_first.commit()
        await postgres.execute("UPDATE replicas SET last_seen_at = last_seen_at - interval '2 minutes'")
        async with open_engines(postgres.url) as others, others.writer.begin() as by_second:
            await by_first.execute(text("UPDATE replicas SET last_seen_at = clock_timestamp() WHERE name = 'a'"))
            await beat(by_second, second, None)
            await beat(by_first, first, None)
            await by_first.commit()
        async with engines.reader.connect() as connection:
            assert {seen.name for seen in await every(connection)} == {"a", "b"}


async def test_who_stands_by_is_heard_of_while_another_reads_for_longer_than_its_claim_lasts(
    postgres: Database,
) -> None:
    """That one holds the row in a transaction, so nobody can take it."""
    async with replicas_on(postgres, 1, leader_ttl_sec=1) as made:
        reader = await asyncpg.connect(postgres.url)
        await reader.execute(
            "UPDATE dispatcher SET holder = 'reader', epoch = epoch + 1, expires_at = now() + interval '3 seconds'"
        )
        async with reader.transaction():
            await reader.execute("SELECT FROM dispatcher FOR UPDATE")
            heard = "SELECT bool_and(last_seen_at > expires_at + interval '1 second') FROM dispatcher, replicas"
            await until(lambda: postgres.value(heard))
            assert await made.epoch() == 2
        await reader.close()
        await made.all[0].logged("dispatch_begun", lambda event: event["epoch"] == 3)


async def test_a_server_on_a_file_is_the_only_one(sqlite_databases: Databases) -> None:
    database = await asyncio.to_thread(sqlite_databases.create)
    async with serving(database.url) as served, served.client() as client:
        [alone] = await _listed(client)
        assert (alone["role"], alone["lag_sec"]) == ("dispatcher", 0)
        assert alone["name"] in str(await database.value("SELECT holder FROM dispatcher"))


async def test_a_server_on_a_file_that_was_taken_from_it_ends(sqlite_databases: Databases) -> None:
    database = await asyncio.to_thread(sqlite_databases.create)
    async with serving(database.url) as served, served.client() as client:
        await database.execute("UPDATE dispatcher SET epoch = epoch + 1")
        refused = await client.post("/jobs", json={"tenant": "acme", "test_suite": "suite"})
        assert refused.status_code == 503
        assert await served.exited() == 1
        assert "another server has taken over this database" in served.text
        assert "Traceback" not in served.text


async def test_who_is_to_be_reached_where_another_one_dispatches_is_not_ready(postgres: Database) -> None:
    there = "127.0.0.1:1"
    async with (
        serving(postgres.url, leader_ttl_sec=TTL_SEC, advertise=there) as first,
        serving(postgres.url, leader_ttl_sec=TTL_SEC, advertise=there) as second,
        second.client() as by_second,
    ):
        await first.logged("dispatch_begun")
        await second.logged("standing_by")
        told = await by_second.get("/health/ready")
        assert (told.status_code, "must be different on each" in told.text) == (503, True)
        assert (await by_second.get("/health/live")).status_code == 200
        assert await first.stop() == 0
        await second.logged("dispatch_begun")
        assert (await by_second.get("/health/ready")).status_code == 200
