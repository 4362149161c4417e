"""Postgres in trouble under load: every request is answered in time, nothing acknowledged is lost or done twice, and
once the trouble is over everything is as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.disks import clear, fill, small_disk
from tests.effort import EFFORT
from tests.faults.clients import Clients, at_work
from tests.faults.postgres import MODES, OwnPostgres
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.torture


@asynccontextmanager
async def at_work_behind(proxy: Proxy, own: OwnPostgres, name: str) -> AsyncIterator[Clients]:
    """Clients of a service that reaches its database through a proxy."""
    async with proxy.run(), at_work(own.database, name, url=own.through(proxy)) as clients:
        yield clients


async def test_it_is_restarted(own: OwnPostgres) -> None:
    async with at_work(own.database, "restarts") as clients:
        for _ in range(EFFORT):
            for mode in clients.chance.sample(MODES, 2):
                async with clients.trouble(f"{mode} restart"):
                    await own.restart(mode)


async def test_its_backends_are_ended_at_random(own: OwnPostgres) -> None:
    async with at_work(own.database, "ended backends") as clients:
        for _ in range(EFFORT):
            async with clients.trouble("ended backends"):
                for _ in range(6):
                    await own.end_some_backends(clients.chance)
                    await asyncio.sleep(clients.chance.random() / 10)


async def test_it_is_read_only_for_a_while(own: OwnPostgres) -> None:
    async with at_work(own.database, "read-only") as clients:
        for _ in range(EFFORT):
            async with clients.trouble("read-only"):
                await own.set_read_only(on=True)
                await clients.refused(5)
                await own.set_read_only(on=False)


async def test_its_disk_is_full(own: OwnPostgres) -> None:
    with small_disk(32) as disk:
        async with own.on(disk), at_work(own.database, "full disk of Postgres") as clients:
            for _ in range(EFFORT):
                async with clients.trouble("full disk"):
                    fill(disk)
                    await clients.refused(30)
                    await clients.see_ready(200)  # whoever reads is served
                    clear(disk)
            refused = [call for call in clients.history.of("submit") if call.status == 503]
        assert refused


@pytest.mark.skipif(EFFORT == 1, reason="it takes long: make torture")
async def test_the_disk_of_its_log_is_full(own: OwnPostgres) -> None:
    """It goes down, and comes up again only when there is space."""
    with small_disk(256) as disk:
        async with own.logging_on(disk), at_work(own.database, "full disk of the log") as clients:
            for _ in range(EFFORT):
                async with clients.trouble("full disk of the log"):
                    fill(disk)
                    await own.switch_log_until_down()
                    await clients.see_ready(503)
                    await clients.refused(30)
                    clear(disk)
                    await own.restart("immediate")


async def test_its_connections_are_reset(own: OwnPostgres) -> None:
    proxy = Proxy(own.socket)
    async with at_work_behind(proxy, own, "resets") as clients:
        for _ in range(EFFORT):
            async with clients.trouble("resets"):
                for _ in range(6):
                    await proxy.cut()
                    await asyncio.sleep(clients.chance.random() / 10)


@pytest.mark.parametrize("strand", [False, True], ids=["and what stalled flows on", "and what stalled is lost"])
async def test_its_connections_stall(own: OwnPostgres, *, strand: bool) -> None:
    proxy = Proxy(own.socket)
    async with at_work_behind(proxy, own, f"stalls, strand={strand}") as clients:
        for _ in range(EFFORT):
            async with clients.trouble("stall"):
                proxy.stall()
                await clients.see_ready(503)
                await clients.refused(20)
                proxy.heal(strand=strand)
