"""The end of the service: it answers while it drains, waits for requests and not for connections, and exits with 0."""

from __future__ import annotations

import asyncio
import signal
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.databases import Database
from tests.history.attacked import do_not_wait_for
from tests.served import PATIENCE_SEC, Served, serving


@asynccontextmanager
async def _connected(served: Served) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    where = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _send_head(writer: StreamWriter, path: str, length: int) -> None:
    """The head of a POST, after which its body may take its time."""
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()


async def _status(reader: StreamReader) -> int:
    async with asyncio.timeout(PATIENCE_SEC):
        line = await reader.readline()
    return int(line.split()[1])


async def _claimed(served: Served) -> dict[str, Any]:
    """A job that a worker runs."""
    async with served.client() as client:
        await client.post("/jobs", json={"tenant": "acme", "test_suite": "suite"})
        answer = await client.post("/jobs/claim", json={"worker": "w", "start": True})
    [job] = answer.json()["jobs"]
    return dict(job)


@asynccontextmanager
async def _slow_completion(served: Served, job: dict[str, Any]) -> AsyncIterator[tuple[StreamReader, Any]]:
    """A completion whose body is still on its way; the second value sends the rest of it."""
    body = f'{{"token": "{job["lease"]["token"]}"}}'.encode()
    async with _connected(served) as (reader, writer):
        await _send_head(writer, f"/jobs/{job['id']}/complete", len(body))
        writer.write(body[:5])
        await writer.drain()
        async with served.client() as client:  # a whole request behind it, so that its head has arrived
            await client.get("/health/live")

        async def finish() -> None:
            writer.write(body[5:])
            await writer.drain()

        yield reader, finish


async def test_a_drain_answers_what_it_must_waits_for_a_slow_request_and_exits_with_0(database: Database) -> None:
    async with serving(database.url, shutdown_grace_sec=PATIENCE_SEC) as served:
        running, done = await _claimed(served), await _claimed(served)
        async with _connected(served) as (_, idle), _slow_completion(served, done) as (reader, finish):
            served.signal(signal.SIGTERM)
            await served.logged("server_draining")
            async with served.client() as client:
                path, token = f"/jobs/{running['id']}", {"token": running["lease"]["token"]}
                assert (await client.get("/health/live")).status_code == 200
                ready = await client.get("/health/ready")
                submit = await client.post("/jobs", json={"tenant": "acme", "test_suite": "suite"})
                claim = await client.post("/jobs/claim", json={"worker": "w"})
                for refused in (ready, submit, claim):
                    assert refused.status_code == 503
                    assert refused.headers["connection"] == "close"  # so its client goes elsewhere in time
                assert int(submit.headers["retry-after"]) >= 1
                assert (await client.post(path + "/heartbeat", json=token)).status_code == 200
                assert (await client.post(path + "/complete", json=token)).status_code == 200
                assert (await client.get(path)).json()["state"] == "completed"
            await finish()
            assert await _status(reader) == 200
            assert await served.exited() == 0
            assert not idle.is_closing()
        assert [event["event"] for event in served.events][-1] == "server_stopped"
        assert "scheduler_stopped" in [event["event"] for event in served.events]
    async with serving(database.url) as served, served.client() as client:
        assert (await client.get(f"/jobs/{done['id']}")).json()["state"] == "completed"


async def test_idle_connections_and_leased_jobs_hold_no_drain(database: Database) -> None:
    async with serving(database.url, shutdown_grace_sec=3600) as served:
        await _claimed(served)
        async with served.client() as client, _connected(served):
            assert (await client.get("/stats")).status_code == 200  # its connection is kept alive from here on
            assert await served.stop() == 0


async def test_a_request_that_never_ends_is_cut_off_after_the_grace(database: Database) -> None:
    async with (
        serving(database.url, shutdown_grace_sec=0.5) as served,
        _slow_completion(served, await _claimed(served)),
    ):
        assert await served.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_the_process_on_the_spot(database: Database, number: signal.Signals) -> None:
    async with serving(database.url, shutdown_grace_sec=3600) as served:
        job = await _claimed(served)
        async with _slow_completion(served, job):
            served.signal(number)
            await served.logged("server_draining")
            served.signal(number)
            assert await served.exited() == 128 + number
    await do_not_wait_for(database)
    async with serving(database.url) as served, served.client() as client:
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "running"


async def test_claims_in_progress_at_the_signal_lease_each_job_to_one_worker_or_none(database: Database) -> None:
    async with serving(database.url) as served, served.client() as client:
        jobs = [{"tenant": "acme", "test_suite": "suite"}] * 50
        assert (await client.post("/jobs/batch", json={"jobs": jobs})).status_code == 201
        claims = [asyncio.create_task(client.post("/jobs/claim", json={"worker": "w"})) for _ in range(20)]
        await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        assert await served.stop() == 0
        answers = await asyncio.gather(*claims, return_exceptions=True)
    given = [
        job["id"] for a in answers if not isinstance(a, BaseException) and a.is_success for job in a.json()["jobs"]
    ]
    assert given
    assert len(given) == len(set(given))
    rows = await database.fetch("SELECT id FROM jobs WHERE state = 'scheduled'")
    assert {str(job_id).replace("-", "") for (job_id,) in rows} >= set(given)
