"""SIGTERM under load, with requests in flight, claims that wait and streams that are open; and a second one, which ends
the process on the spot. Nothing acknowledged is lost either way."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import pytest

from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.history.attacked import Attacked, attacked, do_not_wait_for, sessions_end
from tests.history.record import Call
from tests.history.table import Tell
from tests.history.terms import Terms

_WAITING: Final = 10


async def _wait_for_work(service: Attacked, number: int) -> Call:
    """A claim on a queue into which nothing ever comes."""
    async with service.site.voice(f"waiting {number}") as voice:
        return await voice.claim(queues=["nothing"], wait_sec=30)


async def _end_politely(service: Attacked) -> None:
    """Every request in flight is answered, waiting claims come back empty, streams end, and the exit code is 0."""
    waiting = [asyncio.create_task(_wait_for_work(service, number)) for number in range(_WAITING)]
    async with service.site.voice("prober") as voice:
        await voice.look("/stats")  # sent behind the claims, so those are in line
        in_flight = asyncio.create_task(voice.submit({"tenant": "red", "test_suite": "in flight"}))
        await asyncio.sleep(0)
        service.served.signal(signal.SIGTERM)
        await service.served.logged("server_draining")
        assert (await in_flight).status in (201, 503)
    assert await service.served.exited() == 0
    for call in await asyncio.gather(*waiting):
        assert call.status == 503 or call.answer == {"jobs": []}


async def _end_at_once(service: Attacked) -> None:
    """A slow request would hold the drain for an hour; the second signal does not wait."""
    where = service.site.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(where[0], int(where[1]))
    writer.write(b"POST /jobs HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
    await writer.drain()
    async with service.site.voice("prober") as voice:
        await voice.look("/stats")
        service.served.signal(signal.SIGTERM)
        await service.served.logged("server_draining")
        service.served.signal(signal.SIGTERM)
        assert await service.served.exited() == 128 + signal.SIGTERM
    writer.close()
    await sessions_end(service.database)
    await do_not_wait_for(service.database)


@pytest.mark.torture
async def test_an_end_under_load_loses_nothing_be_it_asked_for_once_or_twice(database: Database, tell: Tell) -> None:
    chance = chance_of(f"SIGTERM under load, {database.kind}")
    async with attacked(database, chance, shutdown_grace_sec=3600) as service:
        async with service.site.at_work():
            for end in (_end_politely, _end_at_once) * EFFORT:
                await asyncio.sleep(chance.uniform(0.4, 0.8))
                with service.history.fault("SIGTERM"):
                    await end(service)
                    service.site.up.clear()
                    await service.start()
            await asyncio.sleep(0.5)
        await service.verdict(Terms(), tell, "SIGTERM, once and twice")
