"""Replicas in trouble, with clients at work through all of them: nothing acknowledged is lost or done twice, no two
workers hold one job, and work goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.effort import EFFORT
from tests.faults.postgres import OwnPostgres, own_server
from tests.history.table import Tell
from tests.replica import standing_still
from tests.replica.several import TTL_SEC, until
from tests.replica.site import Member, at_work
from tests.replica.standing_still import Stop

pytestmark = pytest.mark.torture


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_server() as made:
        yield made


@pytest.fixture
def own(server: OwnPostgres) -> OwnPostgres:
    server.renew()
    return server


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
