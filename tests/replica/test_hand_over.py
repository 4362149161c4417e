"""A dispatcher that is asked to end: what it can no longer do, the next one does, and nobody is refused for it."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from tests.databases import Database
from tests.replica.several import claimed, replicas_on, submitted, until
from tests.served import PATIENCE_SEC, Served

_JOB: Final = {"tenant": "acme", "test_suite": "suite"}


class Slow:
    """A request of which all but the end of its body has arrived."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, rest: bytes) -> None:
        self._reader, self._writer, self._rest = reader, writer, rest

    async def finish(self) -> tuple[int, Any]:
        """Send the rest; the status, and the body of the answer."""
        self._writer.write(self._rest)
        await self._writer.drain()
        async with asyncio.timeout(PATIENCE_SEC):
            head, _, body = (await self._reader.read()).partition(b"\r\n\r\n")  # it is the last on its connection
        return int(head.split()[1]), json.loads(body)


@asynccontextmanager
async def _slow(served: Served, path: str, body: dict[str, Any]) -> AsyncIterator[Slow]:
    where, sent = urlsplit(served.url), json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    kind = "Content-Type: application/json"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: here\r\n{kind}\r\nContent-Length: {len(sent)}\r\n\r\n".encode())
    writer.write(sent[:-1])
    await writer.drain()
    async with served.client() as client:  # a whole request behind it, so that its head has arrived
        await client.get("/health/live")
    try:
        yield Slow(reader, writer, sent[-1:])
    finally:
        writer.close()


async def test_what_comes_too_late_for_who_hands_over_is_done_by_the_next(postgres: Database) -> None:
    patient: dict[str, Any] = {"leader_ttl_sec": PATIENCE_SEC, "shutdown_grace_sec": PATIENCE_SEC}
    async with replicas_on(postgres, 2, **patient) as made, made.all[1].client() as by_second:
        first = made.all[0]
        for n in range(2):
            await submitted(by_second, f"before-{n}")
        [running] = await claimed(by_second, start=True)
        report = {"token": running["lease"]["token"]}
        async with (
            _slow(first, "/jobs", _JOB) as submit,
            _slow(first, "/jobs/claim", {"worker": "w"}) as claim,
            _slow(first, f"/jobs/{running['id']}/complete", report) as complete,
            _slow(first, "/jobs/cancel", {"tenant": "acme", "queue": "other"}) as cancel,
        ):
            first.signal(signal.SIGTERM)
            await first.logged("dispatch_handed_over")
            told = [await slow.finish() for slow in (submit, claim, complete, cancel)]
        assert [status for status, _ in told] == [201, 200, 200, 200], told
        assert len(told[1][1]["jobs"]) == 1
        assert await first.exited() == 0
        rows = await postgres.fetch("SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state")
        assert rows == [("completed", 1), ("queued", 1), ("scheduled", 1)]


@asynccontextmanager
async def _asked_to_end_while_it_takes_over(postgres: Database, locked: str) -> AsyncIterator[None]:
    """A replica that waits for a table, `locked` for the duration of the block. In the end it has never dispatched, and
    the row is free."""
    async with replicas_on(postgres, 2, leader_ttl_sec=1) as made:
        first, second = made.all
        locking = await asyncpg.connect(postgres.url)
        async with locking.transaction():
            await locking.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
            await first.kill()
            await until(lambda: postgres.value("SELECT epoch = 2 FROM dispatcher"))
            await until(lambda: _are_waiting(postgres, 1))
            second.signal(signal.SIGTERM)
            yield
        await locking.close()
        assert await second.exited() == 0
        assert [event["event"] for event in second.events if event["event"].startswith("dispatch")] == []
        assert await postgres.value("SELECT expires_at IS NULL FROM dispatcher")


async def test_who_is_asked_to_end_while_it_reads_what_is_queued_gives_the_row_back(postgres: Database) -> None:
    async with _asked_to_end_while_it_takes_over(postgres, "lanes"):
        await until(lambda: _are_waiting(postgres, 2))  # to give it back, once the session is gone that reads


async def test_who_is_asked_to_end_in_the_moment_in_which_it_takes_the_row_gives_it_back(postgres: Database) -> None:
    """It waits to say that it dispatches."""
    async with _asked_to_end_while_it_takes_over(postgres, "replicas"):
        await until(lambda: postgres.value("SELECT expires_at IS NULL FROM dispatcher"))


async def _are_waiting(postgres: Database, count: int) -> bool:
    """Whether so many sessions of writers wait for a lock."""
    waits = "application_name = 'fairlane writer' AND datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await postgres.value(f"SELECT count(*) = {count} FROM pg_stat_activity WHERE {waits}"))


def _named(served: Served, name: str) -> list[dict[str, Any]]:
    return [event for event in served.events if event["event"] == name]


async def test_who_has_nobody_to_hand_over_to_any_more_goes_on_and_drains(postgres: Database) -> None:
    async with replicas_on(postgres, 2, leader_ttl_sec=PATIENCE_SEC, shutdown_grace_sec=PATIENCE_SEC) as made:
        first, second = made.all
        async with first.client() as client, _slow(first, "/jobs", _JOB) as holding:
            await submitted(client, "before")
            [running] = await claimed(client, start=True)
            await second.kill()
            first.signal(signal.SIGTERM)
            await first.logged("dispatch_begun", lambda event: event["epoch"] == 2)
            await first.logged("scheduler_stopped")
            path, token = f"/jobs/{running['id']}", {"token": running["lease"]["token"]}
            assert (await client.get("/health/ready")).status_code == 503
            assert (await client.post("/jobs", json=_JOB)).status_code == 503
            assert (await client.post(path + "/heartbeat", json=token)).status_code == 200
            assert (await client.post(path + "/complete", json=token)).status_code == 200
            assert (await holding.finish())[0] == 503  # its job would be new
        assert await first.exited() == 0
        assert _named(first, "dispatch_handed_over") == []


async def test_what_who_drains_alone_refuses_waits_for_the_next_at_a_replica_that_has_come_since(
    postgres: Database,
) -> None:
    async with replicas_on(postgres, 1, leader_ttl_sec=PATIENCE_SEC, shutdown_grace_sec=PATIENCE_SEC) as made:
        first = made.all[0]
        async with _slow(first, "/jobs", _JOB) as holding:
            first.signal(signal.SIGTERM)
            await first.logged("scheduler_stopped")
            second = await made.start(log_level="debug")
            await second.logged("standing_by")
            async with second.client() as by_second:
                waiting = asyncio.create_task(submitted(by_second, "waits"))
                await second.logged("forward_failed", lambda event: "does not dispatch" in event["error"])
                await holding.finish()
                assert (await waiting)["state"] == "queued"
        assert await first.exited() == 0
