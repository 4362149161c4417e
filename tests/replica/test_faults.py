"""Replicas in trouble, with clients at work through all of them: nothing acknowledged is lost or done twice, no two
workers hold one job, and work goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.effort import EFFORT
from tests.faults.pooler import PROGRAM as PGBOUNCER
from tests.faults.pooler import Pooler
from tests.faults.postgres import MODES, OwnPostgres
from tests.faults.proxy import Proxy, at_each_in_turn
from tests.history import wrong_clock
from tests.history.table import Tell
from tests.history.wrong_clock import WrongClock
from tests.replica import standing_still
from tests.replica.several import TTL_SEC, until
from tests.replica.site import Member, Replicas, assert_all_answered, at_work, free_port
from tests.replica.standing_still import Stop

pytestmark = pytest.mark.torture

_HOUR: Final = 3600
_CUTS: Final = ("stalled, and is lost", "stalled, and flows on", "refused")
_HANDS: Final = 2 if EFFORT == 1 else 10 * EFFORT


def _members(url: str, count: int = 2, **settings: Any) -> list[Member]:
    return [Member(url, leader_ttl_sec=TTL_SEC, **settings) for _ in range(count)]


async def test_the_dispatcher_stands_still_in_the_middle_of_a_commit(
    own: OwnPostgres, tell: Tell, tmp_path: Path
) -> None:
    stop = Stop(tmp_path)
    members = _members(own.database.url, program=standing_still.PROGRAM, environment=stop.environment)
    async with at_work(own.database, members, "a dispatcher that stands still", tell) as replicas:
        for _ in range(EFFORT):
            first, epoch = await replicas.dispatcher(), await replicas.epoch()
            async with replicas.trouble("it stands still"):
                stop.ask()
                await until(stop.is_done)
                standing = asyncio.create_task(asyncio.sleep(3 * TTL_SEC))
                await replicas.taken_over(epoch)
                await replicas.progress()
                await standing
                first.served.signal(signal.SIGCONT)
                await first.is_ready_as("standby")


async def test_postgres_is_restarted_and_read_only_for_a_while(own: OwnPostgres, tell: Tell) -> None:
    """Read-only for longer than a claim lasts: then nobody can dispatch, and nobody can take over either."""
    async with at_work(own.database, _members(own.database.url), "Postgres in trouble", tell) as replicas:
        for _ in range(EFFORT):
            for mode in replicas.chance.sample(MODES, 2):
                async with replicas.trouble(f"{mode} restart"):
                    await own.restart(mode)
            async with replicas.trouble("read-only"), own.read_only():
                await replicas.refused(5)
                await until(lambda: own.database.value("SELECT expires_at < clock_timestamp() FROM dispatcher"))
    assert_all_answered(replicas.history)


async def _cut(proxy: Proxy, way: str) -> None:
    if way == "refused":
        await proxy.refuse()
    else:
        proxy.stall()


def _heal(proxy: Proxy, way: str) -> None:
    proxy.heal(strand=way != "stalled, and flows on")


async def test_the_dispatcher_is_cut_from_postgres_and_not_from_its_clients(own: OwnPostgres, tell: Tell) -> None:
    proxies = [Proxy(own.socket) for _ in range(2)]
    async with _running(proxies):
        members = [Member(own.through(proxy), leader_ttl_sec=TTL_SEC) for proxy in proxies]
        async with at_work(own.database, members, "a dispatcher without Postgres", tell) as replicas:
            for way in _CUTS * EFFORT if EFFORT > 1 else _CUTS[:1]:
                first, epoch = await replicas.dispatcher(), await replicas.epoch()
                proxy = proxies[members.index(first)]
                async with replicas.trouble(f"its way to Postgres is {way}"):
                    await _cut(proxy, way)
                    await replicas.taken_over(epoch)
                    await replicas.progress()
                    _heal(proxy, way)
                    await first.is_ready_as("standby")
    assert_all_answered(replicas.history)


async def test_the_dispatcher_is_cut_from_everybody_but_postgres(own: OwnPostgres, tell: Tell) -> None:
    """It goes on renewing its claim, so nobody else may dispatch; who only reads is served by the others."""
    ports = [free_port() for _ in range(2)]
    proxies = [Proxy(at_each_in_turn([port])) for port in ports]
    async with _running(proxies):
        members = [
            Member(own.database.url, port, leader_ttl_sec=TTL_SEC, advertise=f"127.0.0.1:{proxy.port}")
            for port, proxy in zip(ports, proxies, strict=True)
        ]
        async with at_work(own.database, members, "a dispatcher that only reaches Postgres", tell) as replicas:
            epoch = await replicas.epoch()
            for way in _CUTS * EFFORT if EFFORT > 1 else _CUTS[-1:]:
                first = await replicas.dispatcher()
                proxy, [second] = proxies[members.index(first)], [each for each in members if each is not first]
                async with replicas.trouble(f"the way to it is {way}"), second.served.client() as client:
                    await _cut(proxy, way)
                    if way == "refused":
                        await replicas.refused(5)
                    else:
                        await asyncio.sleep(1.5 * TTL_SEC)
                    assert (await client.get("/jobs?limit=1")).status_code == 200
                    _heal(proxy, way)
            assert await replicas.epoch() == epoch


@asynccontextmanager
async def _running(proxies: list[Proxy]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for proxy in proxies:
            await stack.enter_async_context(proxy.run())
        yield


async def test_the_clocks_of_two_replicas_are_an_hour_apart(own: OwnPostgres, tell: Tell, tmp_path: Path) -> None:
    """Neither lapses the other's claim, nor a lease; and no time that one gave out is given out again by the other."""
    members = []
    for off_by in (0, _HOUR):
        (folder := tmp_path / str(off_by)).mkdir()
        clock = WrongClock(folder)
        clock.off_by(off_by)
        members += _members(
            own.database.url, 1, program=wrong_clock.PROGRAM, environment=clock.host("UTC", with_database=False)
        )
    async with at_work(own.database, members, "clocks an hour apart", tell) as replicas:
        epoch = await replicas.epoch()
        await asyncio.sleep(1.5 * TTL_SEC)
        assert await replicas.epoch() == epoch
        async with replicas.site.voice("patient") as voice:
            await voice.submit({"tenant": "patient", "test_suite": "held", "queue": "held"})
            [held] = (await voice.claim(queues=["held"], start=True, lease_sec=_HOUR)).answer["jobs"]
            for _ in range(2 * EFFORT):
                await _change_hands(replicas, signal.SIGTERM)
                assert (await voice.report("heartbeat", held["id"], held["lease"]["token"])).is_ok
    submitted = [moment for (moment,) in await own.database.fetch("SELECT submitted_at FROM jobs ORDER BY seq")]
    assert all(before < after for before, after in pairwise(submitted))


async def _change_hands(replicas: Replicas, number: signal.Signals) -> None:
    """Whoever dispatches ends by this signal, and is started again once another dispatches."""
    first, epoch = await replicas.dispatcher(), await replicas.epoch()
    async with replicas.trouble(number.name):
        first.served.signal(number)
        assert await first.served.exited() == (0 if number == signal.SIGTERM else -number)
        await replicas.taken_over(epoch)
        await first.start()


async def test_hands_change_again_and_again(own: OwnPostgres, tell: Tell) -> None:
    """Ten times in a minute where torture is asked for."""
    async with at_work(own.database, _members(own.database.url), "changes of hands", tell) as replicas:
        began = time.monotonic()
        for _ in range(_HANDS):
            await _change_hands(replicas, replicas.chance.choice((signal.SIGTERM, signal.SIGKILL)))
        print(f"{_HANDS} changes of hands in {time.monotonic() - began:.0f} s")  # noqa: T201 - the figure


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian: the package pgbouncer)")
async def test_a_pooler_stands_between_them_and_postgres(own: OwnPostgres, tell: Tell) -> None:
    pooler = Pooler(own.socket.parent)
    async with pooler.run():
        members = _members(own.through(pooler))
        async with at_work(own.database, members, "changes of hands behind a pooler", tell) as replicas:
            for _ in range(EFFORT):
                for number in (signal.SIGTERM, signal.SIGKILL) if EFFORT > 1 else (signal.SIGTERM,):
                    await _change_hands(replicas, number)
                async with replicas.trouble("another pooler"):
                    await pooler.restart()
