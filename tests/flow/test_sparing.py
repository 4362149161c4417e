"""Work that can wait takes a tenth of the time, and one turn after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.flow.watch import sparing
from app.flow.watch.sparing import Sparing
from tests.flow.harness import FakeClock, until


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it rested each time, in seconds; no time passes."""
    rests: list[float] = []
    yield_once = asyncio.sleep

    async def sleep(seconds: float, *_: Any) -> None:
        rests.append(round(seconds, 4))
        await yield_once(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return rests


async def test_it_rests_nine_times_as_long_as_it_works(slept: list[float]) -> None:
    clock = FakeClock()
    turns = Sparing(clock)
    async with turns:
        clock.flow(0.001)
        await turns.pause()
        clock.flow(0.002)
        await turns.pause()
        clock.flow(60)  # the machine was busy with something else
        await turns.pause()
    assert slept == [0.0, 0.009, 0.018, 0.05]


async def test_the_next_one_rests_for_the_one_before(slept: list[float]) -> None:
    clock = FakeClock()
    turns = Sparing(clock)
    async with turns:
        clock.flow(0.003)
    async with turns:
        pass
    clock.flow(1)
    async with turns:
        pass
    assert slept == [0.0, 0.027, 0.0]


async def test_turns_are_taken_one_after_the_other_and_given_back_by_who_leaves() -> None:
    turns = Sparing(FakeClock())
    entered: list[str] = []

    async def work(name: str, leave: asyncio.Event) -> None:
        async with turns:
            entered.append(name)
            await leave.wait()

    first, second = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(work("first", first)), asyncio.create_task(work("second", second))]
    await until(lambda: entered)
    assert (entered, turns.is_taken) == (["first"], True)
    tasks[0].cancel()
    await until(lambda: len(entered) == 2)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not turns.is_taken


async def test_who_leaves_while_it_rests_keeps_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    turns = Sparing(clock)
    async with turns:
        clock.flow(60)
    monkeypatch.setattr(sparing, "_LONGEST_REST_SEC", 60.0)
    async with turns:
        clock.flow(60)
    waiting = asyncio.create_task(turns.__aenter__())
    await until(lambda: turns.is_taken)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not turns.is_taken
