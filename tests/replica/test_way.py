"""Where the one that dispatches is looked for, who is taken for one that is not reached, and who is cut off from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from app.replica.way import LOOK_EVERY_SEC, Way
from app.store.dispatcher import Holder
from tests.databases import Database
from tests.faults.proxy import Proxy, at_each_in_turn
from tests.flow.harness import FakeClock
from tests.replica.several import TTL_SEC, until
from tests.replica.site import free_port
from tests.served import serving

_OURS: Final = "here:1"
_PATIENCE_SEC: Final = 3.0


def _holder(epoch: int, address: str = "there:1", renewals: int = 0) -> Holder:
    lapses = datetime.now(UTC) + timedelta(hours=renewals)
    return Holder("somebody", address, epoch, lapses, is_free=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def way(clock: FakeClock) -> Way:
    return Way(clock, _OURS, _PATIENCE_SEC)


def test_one_that_is_not_reached_is_tried_by_one_call_at_a_time(way: Way, clock: FakeClock) -> None:
    way.see(first := _holder(1))
    assert way.place_to_try() == first
    way.not_reached(first)
    assert way.place_to_try() is None
    clock.flow(LOOK_EVERY_SEC)
    assert way.place_to_try() == first
    assert way.place_to_try() is None
    way.reached(first)
    assert way.place_to_try() == first


def test_who_follows_one_that_is_not_reached_is_not_blamed_for_it(way: Way) -> None:
    way.see(first := _holder(1))
    way.see(second := _holder(2))
    way.not_reached(first)  # a call was on its way to it for so long
    assert way.place_to_try() == second


def test_an_answer_of_one_that_was_followed_says_nothing_of_the_next(way: Way) -> None:
    first = _holder(1)
    way.see(second := _holder(2))
    way.not_reached(second)
    way.reached(first)
    assert way.place_to_try() is None


def test_one_that_drains_is_not_missed_and_those_whom_it_refuses_come_one_at_a_time(way: Way, clock: FakeClock) -> None:
    way.see(_holder(1))
    way.see(first := _holder(1, renewals=1))
    for _ in range(3):
        way.refused(first)
        clock.flow(_PATIENCE_SEC)
        assert way.place_to_try(again=True) == first
        assert way.place_to_try(again=True) is None
        assert way.place_to_try() == first  # a result, perhaps
        assert way.cut_off_from() is None
    way.see(second := _holder(2))
    assert way.place_to_try(again=True) == second


def test_one_that_refuses_before_it_has_renewed_its_claim_is_tried_by_one_call_at_a_time(way: Way) -> None:
    way.see(first := _holder(1))
    way.refused(first)
    assert way.place_to_try() is None


def test_a_probe_does_not_wait_until_no_call_tries(way: Way) -> None:
    way.see(first := _holder(1))
    way.not_reached(first)
    assert way.place_to_try() is None
    assert way.place_to_probe(1.0) == first


def test_there_is_no_way_to_oneself(way: Way) -> None:
    way.see(_holder(1, _OURS))
    assert way.place_to_try() is None


def test_who_misses_one_that_is_at_work_for_too_long_is_cut_off_from_it(way: Way, clock: FakeClock) -> None:
    way.see(_holder(1))
    way.see(first := _holder(1, renewals=1))
    way.not_reached(first)
    clock.flow(_PATIENCE_SEC / 2)
    way.not_reached(first)
    assert way.cut_off_from() is None
    clock.flow(_PATIENCE_SEC / 2)
    assert way.cut_off_from() == first.address
    way.see(replace(first, is_free=True))  # it has lapsed: we may take over
    assert way.cut_off_from() is None
    way.see(first)
    way.reached(first)
    assert way.cut_off_from() is None
    way.not_reached(first)
    assert way.cut_off_from() is None


def test_nobody_is_cut_off_from_one_that_has_not_renewed_its_claim_yet(way: Way, clock: FakeClock) -> None:
    way.see(first := _holder(1))
    way.not_reached(first)
    clock.flow(2 * _PATIENCE_SEC)
    assert way.cut_off_from() is None
    way.see(first := _holder(1, renewals=1))
    assert way.cut_off_from() is None
    way.not_reached(first)
    way.see(second := _holder(2))
    clock.flow(2 * _PATIENCE_SEC)
    way.not_reached(second)
    assert way.cut_off_from() is None


def test_one_that_was_reached_of_late_is_not_probed(way: Way, clock: FakeClock) -> None:
    way.see(first := _holder(1))
    assert way.place_to_probe(1.0) == first
    way.reached(first)
    assert way.place_to_probe(1.0) is None
    clock.flow(1.0)
    assert way.place_to_probe(1.0) == first
    way.reached(first)
    way.see(second := _holder(2))
    assert way.place_to_probe(1.0) == second


async def test_a_replica_that_does_not_reach_the_one_that_dispatches_is_not_ready(postgres: Database) -> None:
    port = free_port()
    proxy = Proxy(at_each_in_turn([port]))
    async with proxy.run():
        there = f"127.0.0.1:{proxy.port}"
        async with (
            serving(postgres.url, leader_ttl_sec=TTL_SEC, port=port, advertise=there) as first,
            serving(postgres.url, leader_ttl_sec=TTL_SEC) as second,
            first.client() as by_first,
            second.client() as by_second,
        ):
            await first.logged("dispatch_begun")

            async def is_told(code: int, of_it: str, cut_off: int) -> bool:
                told, measured = await by_second.get("/health/ready"), await by_second.get("/metrics")
                is_measured = f"\nfairlane_cut_off {cut_off}.0\n" in measured.text
                return told.status_code == code and of_it in told.text and is_measured

            await until(lambda: is_told(200, "standby", 0))
            proxy.stall()
            await until(lambda: is_told(503, f"dispatches, at {there}, is not reached from here", 1))
            assert (await by_second.get("/health/live")).status_code == 200
            assert (await by_second.get("/jobs")).status_code == 200
            assert (await by_first.get("/health/ready")).status_code == 200
            proxy.heal(strand=True)
            await until(lambda: is_told(200, "standby", 0))
            assert await postgres.value("SELECT epoch FROM dispatcher") == 1
