"""`GET /events` as clients hear it: over a socket, from a process of its own."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from tests.databases import Database, Databases
from tests.served import PATIENCE_SEC, Served, serving

JOB = {"tenant": "acme", "test_suite": "unit"}
FIELDS = """
    id seq tenant queue test_suite old_state new_state submitted_at run_at queued_at scheduled_at started_at
    completed_at
"""


class Stream:
    """An event stream, event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def event(self) -> tuple[str, Any]:
        """The next event's name and data; a comment has the name ''."""
        name, data = "", None
        async with asyncio.timeout(PATIENCE_SEC):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = msgspec.json.decode(line.removeprefix("data: "))
                elif not line:
                    return name, data
        raise EOFError

    async def moves(self, count: int) -> list[dict[str, Any]]:
        """The next so many moves."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            name, data = await self.event()
            assert name in ("move", "")
            found += [data] if name else []
        return found

    async def ended(self) -> None:
        """Wait until the service ends it."""
        with suppress(EOFError):
            while True:
                await self.event()


@asynccontextmanager
async def watching(client: httpx.AsyncClient, query: str = "") -> AsyncIterator[Stream]:
    """A stream that is heard already."""
    async with client.stream("GET", "/events" + query) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        stream = Stream(response)
        assert await stream.event() == ("", None)
        yield stream


async def _nobody_watches(served: Served, times: int) -> None:
    """So many streams have come to their end."""
    seen: list[Any] = []

    def is_another(event: dict[str, Any]) -> bool:
        if event["path"] == "/events" and event not in seen:
            seen.append(event)
        return len(seen) >= times

    await served.logged("request_served", is_another)


async def _submit_many(client: httpx.AsyncClient) -> int:
    """More moves than a socket and the service keep for a client that does not read; how many."""
    jobs = [JOB | {"test_suite": "x" * 512}] * 10_000
    for _ in range(3):
        answer = await client.post("/jobs/batch", json={"jobs": jobs}, headers={"prefer": "return=minimal"})
        assert answer.status_code == 201
    return 3 * len(jobs)


async def test_moves_are_told_to_all_who_want_them(database: Database) -> None:
    async with serving(database.url) as served, served.client() as client:
        async with (
            watching(client) as everything,
            watching(client, "?tenant=acme&state=completed&queue=default&test_suite=unit") as completed,
        ):
            await client.post("/jobs", json=JOB | {"tenant": "other"})
            job = (await client.post("/jobs", json=JOB)).json()
            claim = await client.post("/jobs/claim", json={"worker": "w", "limit": 2, "start": True})
            for each in claim.json()["jobs"]:
                await client.post(f"/jobs/{each['id']}/complete", json={"token": each["lease"]["token"]})

            told = [move for move in await everything.moves(8) if move["id"] == job["id"]]
            assert [(move["old_state"], move["new_state"]) for move in told] == [
                (None, "queued"),
                ("queued", "scheduled"),
                ("scheduled", "running"),
                ("running", "completed"),
            ]
            assert await completed.moves(1) == told[-1:]
            now = (await client.get(f"/jobs/{job['id']}")).json()
            assert {name: told[-1][name] for name in told[-1] if name in now} == {
                name: now[name] for name in now if name in told[-1]
            }
            assert sorted(told[-1]) == sorted(FIELDS.split())
        await _nobody_watches(served, 2)


async def test_a_drain_ends_every_stream_at_once(database: Database) -> None:
    async with serving(database.url, shutdown_grace_sec=3600) as served, served.client() as client:
        async with watching(client) as first, watching(client) as second:
            served.signal(signal.SIGTERM)
            await first.ended()
            await second.ended()
        assert await served.exited() == 0


async def test_what_no_stream_takes_is_refused(sqlite_databases: Databases) -> None:
    async with serving(sqlite_databases.create().url) as served, served.client() as client:
        for query in ("?limit=1", "?order=asc", "?cursor=x", "?state=done", "?tenant=", "?tenant=a&tenant=b"):
            assert (await client.get("/events" + query)).status_code == 400
        assert (await client.post("/events")).status_code == 405


@asynccontextmanager
async def _not_reading(served: Served) -> AsyncIterator[asyncio.StreamReader]:
    """A stream that is heard already, of a client that takes no more than its socket does."""
    where = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1024)
    writer.write(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readuntil(b":\n\n\r\n")
    try:
        yield reader
    finally:
        writer.close()


async def test_clients_that_do_not_keep_up_are_told_what_they_missed_and_hold_no_drain(
    sqlite_databases: Databases,
) -> None:
    async with (
        serving(sqlite_databases.create().url, shutdown_grace_sec=3600) as served,
        served.client() as client,
        _not_reading(served),
        _not_reading(served) as late,
    ):
        jobs = await _submit_many(client)
        told, missed, rest = 0, 0, b""
        while told + missed < jobs:
            async with asyncio.timeout(PATIENCE_SEC):
                read = await late.read(1_000_000)
            assert read, "the stream has ended"
            heard = rest + read
            whole, end, rest = heard.rpartition(b"\n\n")
            told += (whole + end).count(b"event: move\n")
            missed += sum(int(n) for n in re.findall(rb'"missed":([0-9]+)', whole))
        assert missed > 0
        assert told + missed == jobs
        assert await served.stop() == 0
