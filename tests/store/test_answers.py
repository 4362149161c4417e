"""A silent database is found silent, a busy one is not, and nothing else that is cancelled is taken for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import pytest

from app.errors import Unavailable
from app.store import session
from app.store.answers import Answers
from app.store.engine import Engines, open_engines
from app.store.session import reading
from tests.databases import Database

SOON_SEC: Final = 0.05


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_block_ends_when_nothing_is_answered() -> None:
    with pytest.raises(TimeoutError):
        async with Answers().required(SOON_SEC):
            await never()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_block_lasts_while_others_are_answered() -> None:
    answers, told = Answers(), list[None]()

    with answers.missed(0.5, lambda: told.append(None)):
        for _ in range(20):
            await asyncio.sleep(SOON_SEC)
            answers.came()

    assert told == []


async def test_a_cancellation_that_is_swallowed_comes_again() -> None:
    async def deaf() -> None:
        async with Answers().required(SOON_SEC):
            with suppress(asyncio.CancelledError):
                await never()
            await never()

    with pytest.raises(TimeoutError):
        await deaf()


async def test_a_block_that_ends_by_itself_at_last_leaves_nothing_behind() -> None:
    async with Answers().required(SOON_SEC):
        with suppress(asyncio.CancelledError):
            await never()
    await asyncio.sleep(2 * SOON_SEC)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_whoever_hangs_up_is_not_told_of_the_database() -> None:
    async def waiting() -> None:
        async with Answers().required(60):
            await never()

    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_SEC", SOON_SEC)


async def look_for_long(engines: Engines, *, patient: bool = False, seconds: float = 60) -> None:
    async with reading(engines, patient=patient) as connection:
        await connection.exec_driver_sql(f"SELECT pg_sleep({seconds})")


@pytest.mark.usefixtures("impatient")
async def test_who_reads_from_a_silent_database_is_told_and_the_pool_is_whole_after_it(postgres: Database) -> None:
    async with open_engines(postgres.url) as engines:
        answers = await asyncio.gather(*(look_for_long(engines) for _ in range(20)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {Unavailable}

        async with asyncio.timeout(30):
            await asyncio.gather(*(look_for_long(engines, patient=True, seconds=0) for _ in range(20)))


@pytest.mark.usefixtures("impatient")
async def test_who_is_patient_may_look_for_longer(postgres: Database) -> None:
    async with open_engines(postgres.url) as engines:
        await look_for_long(engines, patient=True, seconds=1)
