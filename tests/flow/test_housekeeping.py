"""Slow regular work: in its time, again at once while more waits, and never ended by an error."""

from __future__ import annotations

import asyncio

import pytest

from app.errors import Unavailable
from app.events import LoopFailed
from app.flow import housekeeping
from app.flow.core import Core
from app.flow.housekeeping import Housekeeper, Round
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, service


async def test_a_round_is_done_again_at_once_while_more_waits_and_goes_on_after_errors(database: Database) -> None:
    ended = asyncio.Event()
    left: list[bool | Exception] = [True, True, RuntimeError("a fault"), Unavailable("the database is away"), True]

    async def work(_: Core) -> bool:
        if not left:
            ended.set()
            return False
        if isinstance(outcome := left.pop(0), Exception):
            raise outcome
        return outcome

    async with service(database) as running:
        housekeeper = Housekeeper(running.core, [Round("sweep", 0.01, work)])
        housekeeper.start()
        async with asyncio.timeout(PATIENCE_SEC):
            await ended.wait()
            await housekeeper.stop()

        failed = running.heard.all(LoopFailed)
        assert [(event.loop, event.retry_sec) for event in failed] == [("sweep", 1.0), ("sweep", 1.0)]
        assert "RuntimeError: a fault" in failed[0].error
        assert failed[1].error == "the database is away"


async def test_a_slow_round_keeps_no_other_waiting_and_the_end_waits_for_it(database: Database) -> None:
    may_end, other_done, seen = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow(_: Core) -> bool:
        seen.append("begun")
        await may_end.wait()
        seen.append("done")
        return True

    async def other(_: Core) -> bool:
        other_done.set()
        return False

    async with service(database) as running:
        housekeeper = Housekeeper(running.core, [Round("slow", 0, slow), Round("other", 0.01, other)])
        housekeeper.start()
        async with asyncio.timeout(PATIENCE_SEC):
            await other_done.wait()
            stopping = asyncio.create_task(housekeeper.stop())
            await asyncio.sleep(0)
            assert (stopping.done(), seen) == (False, ["begun"])
            may_end.set()
            await stopping
        assert seen == ["begun", "done"]


async def test_a_round_that_takes_long_is_cut_at_the_end(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "END_SEC", 0.01)
    begun, cut = asyncio.Event(), asyncio.Event()

    async def endless(core: Core) -> bool:
        try:
            async with core.reading():
                begun.set()
                await asyncio.Event().wait()
        finally:
            cut.set()
        return False

    async with service(database) as running:
        housekeeper = Housekeeper(running.core, [Round("endless", 0, endless)])
        housekeeper.start()
        async with asyncio.timeout(PATIENCE_SEC):
            await begun.wait()
            await housekeeper.stop()
        assert cut.is_set()
        assert running.heard.all(LoopFailed) == []
        await running.submit()
