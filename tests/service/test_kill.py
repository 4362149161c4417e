"""`kill -9` under load from 50 clients, again and again, also while it starts: nothing acknowledged is lost, nothing is
there twice, and what comes out is what a service that never died would have given."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from app.scheduling.scheduler import Policy
from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.history.attacked import Attacked, attacked, count_by_state, do_not_wait_for
from tests.history.lives import changed_between
from tests.history.table import Tell
from tests.history.tables import read_tables
from tests.history.terms import Terms
from tests.served import PATIENCE_SEC

KILLS: Final = {Policy.VIRTUAL_TIME: 20 * EFFORT, Policy.PENALTY: 2 * EFFORT}
_WAITED_OUT: Final = 10
"""Each so many kills the next server waits on Postgres until it may take over; otherwise it is let in by hand."""

_COMPARED: Final = 5
"""Each so many kills all that had ended is compared with what had ended before."""


async def _kill_and_start(service: Attacked, kill: int) -> None:
    """Kill it, perhaps also the next one in the middle of its start, and see that what comes up has found all."""
    with service.history.fault("kill -9"):
        await service.kill()
        while service.chance.random() < 0.15:
            await service.begin()
            await asyncio.sleep(service.chance.random())
            await service.kill()
        if kill % _WAITED_OUT:
            await do_not_wait_for(service.database)
        counted = await count_by_state(service.database)
        await service.start()
    recovered = await service.served.logged("recovered")
    assert recovered["queued"] == counted["queued"]
    assert recovered["pending"] == counted["pending"]
    assert recovered["leased"] == counted["scheduled"] + counted["running"]


@pytest.mark.torture
@pytest.mark.parametrize("policy", list(Policy))
async def test_kills_under_load_lose_nothing_and_leave_no_trace_in_the_order(
    database: Database, policy: Policy, tell: Tell
) -> None:
    chance = chance_of(f"kills of {database.kind}, {policy}")
    async with attacked(database, chance, policy=policy) as service:
        async with service.site.at_work():
            before = await read_tables(database)
            for kill in range(KILLS[policy]):
                await asyncio.sleep(chance.uniform(0.1, 0.6))
                await _kill_and_start(service, kill)
                if kill % _COMPARED == 0:
                    after = await read_tables(database)
                    assert list(changed_between(before, after)) == []
                    before = after
            await asyncio.sleep(0.5)
        tables = await service.verdict(Terms(policy), tell, f"kill -9, {policy}")
    assert list(changed_between(before, tables)) == []
    assert len(tables.jobs) > KILLS[policy]  # there was work in between, as much as the machine could do


async def test_what_fell_due_while_nobody_served_is_queued_soon_after_the_start(database: Database, tell: Tell) -> None:
    chance = chance_of(f"due meanwhile, {database.kind}")
    async with attacked(database, chance) as service, service.site.voice("patient") as voice:
        jobs = [{"tenant": "red", "test_suite": f"{n}", "delay_sec": 1, "idempotency_key": f"{n}"} for n in range(50)]
        assert (await voice.submit_batch(jobs)).is_ok
        with service.history.fault("kill -9"):
            await service.kill()
            await asyncio.sleep(1.2)  # now they are due
            await do_not_wait_for(database)
            await service.start()
        async with asyncio.timeout(PATIENCE_SEC):
            while (await count_by_state(database))["queued"] < len(jobs):  # noqa: ASYNC110 - a row sets no event
                await asyncio.sleep(0.1)
        await service.verdict(Terms(), tell, "due while nobody served")
