"""Postgres in trouble under load: every request is answered in time, nothing acknowledged is lost or done twice, and
once the trouble is over everything is as before."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.errors import Unavailable
from tests.disks import clear, fill, small_disk
from tests.effort import EFFORT
from tests.faults.clients import Clients, at_work
from tests.faults.postgres import MODES, OwnPostgres
from tests.faults.proxy import Proxy
from tests.flow.harness import PATIENCE_SEC, service
from tests.flow.views import assert_memory_equals_sql

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
            async with clients.trouble("read-only"), own.read_only():
                await clients.refused(5)


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
                await clients.look_at_once(503)  # one that is first used when others answer again is waited for longer
                proxy.heal(strand=strand)


async def test_what_comes_late_is_not_committed_once_memory_was_read_again(own: OwnPostgres) -> None:
    """The server's process stands still before it has read what it was sent."""
    async with service(own.database) as running:
        core = running.core
        for _ in range(3):  # by then what will be late is prepared
            await running.submit()
        process = await own.database.value(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'fairlane writer'"
        )
        os.kill(int(process), signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable):
                await running.submit(name="late")
            async with asyncio.timeout(PATIENCE_SEC):
                while core.writer.busy_sec:  # noqa: ASYNC110 - nothing tells when a connection is given up
                    await asyncio.sleep(0.1)
            assert core.writer.is_in_doubt
            await running.submit(name="after")
        finally:
            os.kill(int(process), signal.SIGCONT)
        ended = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fairlane writer'"
        async with asyncio.timeout(PATIENCE_SEC):
            while await own.database.value(ended) > 1:  # noqa: ASYNC110 - nor when its server has noticed
                await asyncio.sleep(0.1)
        await assert_memory_equals_sql(core)
        assert [job.test_suite for job in await running.claim(9)] == [*["unit"] * 3, "after"]
