"""Where the one that dispatches is looked for, and who is taken for one that is not reached."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from app.replica.way import LOOK_EVERY_SEC, Way
from app.store.dispatcher import Holder
from tests.flow.harness import FakeClock

_OURS: Final = "here:1"


def _holder(epoch: int, address: str = "there:1") -> Holder:
    return Holder("somebody", address, epoch, datetime.now(UTC), is_free=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def way(clock: FakeClock) -> Way:
    return Way(clock, _OURS)


def test_one_that_is_not_reached_is_tried_by_one_call_at_a_time(way: Way, clock: FakeClock) -> None:
    way.holder = first = _holder(1)
    assert way.place_to_try() == first
    way.not_reached(first)
    assert way.place_to_try() is None
    clock.flow(LOOK_EVERY_SEC)
    assert way.place_to_try() == first
    assert way.place_to_try() is None
    way.reached(first)
    assert way.place_to_try() == first


def test_who_follows_one_that_is_not_reached_is_not_blamed_for_it(way: Way) -> None:
    way.holder = first = _holder(1)
    way.holder = second = _holder(2)
    way.not_reached(first)  # a call was on its way to it for so long
    assert way.place_to_try() == second


def test_an_answer_of_one_that_was_followed_says_nothing_of_the_next(way: Way) -> None:
    first = _holder(1)
    way.holder = second = _holder(2)
    way.not_reached(second)
    way.reached(first)
    assert way.place_to_try() is None


def test_there_is_no_way_to_oneself(way: Way) -> None:
    way.holder = _holder(1, _OURS)
    assert way.place_to_try() is None
