"""The token bucket: exact sums, and waits that keep their promise."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.bucket import TokenBucket
from tests.scheduling.workload import thorough

SECOND = 1_000_000_000

rates = st.one_of(
    st.sampled_from((0.1, 1 / 3, 1e9, 1e-6, 0.7, 1.0, 100.0, 3600.5)),
    st.floats(1e-9, 1e12, allow_nan=False, allow_infinity=False),
)
bursts = st.one_of(st.none(), st.integers(1, 1000))
gaps = st.one_of(st.integers(0, 5 * SECOND), st.integers(0, 10**15), st.integers(-SECOND, 0))
takes = st.lists(st.tuples(gaps, st.integers(1, 1000)), min_size=1, max_size=25)


@thorough(500)
@given(rates, bursts, takes)
def test_a_wait_is_just_long_enough(rate: float, burst: int | None, steps: list[tuple[int, int]]) -> None:
    bucket, now = TokenBucket(rate, burst, now=0), 0
    for gap, wanted in steps:
        now += gap
        n = min(wanted, bucket.burst or wanted)
        wait = bucket.take(n, now)
        if wait == 0:
            continue
        early = TokenBucket.__new__(TokenBucket)
        for name in TokenBucket.__slots__:
            setattr(early, name, getattr(bucket, name))
        assert early.take(n, now + (wait - 1) * SECOND) == 1, "a second sooner is too soon"
        now += wait * SECOND
        assert bucket.take(n, now) == 0, "the promised moment admits"


@thorough(300)
@given(rates, bursts, st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 50)), max_size=25))
def test_it_admits_what_an_exact_sum_admits(rate: float, burst: int | None, steps: list[tuple[int, int]]) -> None:
    exact_rate = Fraction(str(rate))
    capacity = burst if burst is not None else ceil(exact_rate)
    level, now = Fraction(capacity), 0
    bucket = TokenBucket(rate, burst, now=0)
    assert bucket.burst == capacity
    for gap, wanted in steps:
        n = min(wanted, capacity)
        now += gap
        level = min(Fraction(capacity), level + exact_rate * gap / SECOND)
        admitted = level >= n
        assert (bucket.take(n, now) == 0) is admitted
        if admitted:
            level -= n


def test_it_starts_full_and_gains_at_its_rate() -> None:
    bucket = TokenBucket(0.1, 3, now=0)
    assert [bucket.take(1, 0) for _ in range(4)] == [0, 0, 0, 10]
    assert bucket.take(1, 10 * SECOND - 1) == 1
    assert bucket.take(1, 10 * SECOND) == 0


def test_without_a_rate_everything_is_admitted() -> None:
    bucket = TokenBucket(None, 5, now=0)
    assert bucket.burst is None
    assert bucket.take(10**9, 0) == 0
    bucket.give_back(1)
    assert bucket.take(10**9, 0) == 0


@pytest.mark.parametrize(("rate", "burst"), [(0.1, 1), (1 / 3, 1), (2.5, 3), (1e9, 10**9), (1e-6, 1)])
def test_the_burst_is_the_rate_rounded_up(rate: float, burst: int) -> None:
    assert TokenBucket(rate, None, now=0).burst == burst


def test_a_refusal_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 5, now=0)
    assert bucket.take(3, 0) == 0
    assert bucket.take(3, 0) == 1
    assert bucket.take(2, 0) == 0


def test_what_is_given_back_can_be_taken_but_not_hoarded() -> None:
    bucket = TokenBucket(1.0, 5, now=0)
    assert bucket.take(5, 0) == 0
    bucket.give_back(2)
    assert bucket.take(2, 0) == 0
    assert bucket.take(1, 0) == 1
    bucket.give_back(100)
    assert bucket.take(5, 0) == 0
    assert bucket.take(1, 0) == 1


def test_time_that_goes_back_adds_nothing() -> None:
    bucket = TokenBucket(1.0, 2, now=100 * SECOND)
    assert bucket.take(2, 100 * SECOND) == 0
    assert bucket.take(1, 90 * SECOND) == 11
    assert bucket.take(1, 100 * SECOND) == 1
    assert bucket.take(1, 101 * SECOND) == 0


def test_more_than_the_burst_is_an_error_not_a_wait() -> None:
    bucket = TokenBucket(1.0, 2, now=0)
    with pytest.raises(ValueError, match="burst"):
        bucket.take(3, 0)
    assert bucket.take(2, 0) == 0


def test_other_settings_keep_the_level_as_far_as_it_fits() -> None:
    bucket = TokenBucket(1.0, 10, now=0)
    assert bucket.take(4, 0) == 0
    bucket.reconfigure(0.5, 20, now=SECOND)
    assert bucket.take(7, SECOND) == 0  # 6 left, one gained at the old rate
    assert bucket.take(1, SECOND) == 2
    bucket.reconfigure(1.0, 20, now=101 * SECOND)
    bucket.reconfigure(1.0, 3, now=101 * SECOND)
    assert bucket.take(3, 101 * SECOND) == 0
    assert bucket.take(1, 101 * SECOND) == 1


def test_the_same_settings_again_change_nothing() -> None:
    bucket = TokenBucket(1 / 3, None, now=0)
    assert bucket.take(1, 0) == 0
    for moment in range(100):
        bucket.reconfigure(1 / 3, None, now=moment)
    assert bucket.take(1, 3 * SECOND) == 1  # 0.333...3 a second is less than a third
    assert bucket.take(1, 4 * SECOND) == 0


def test_a_limit_may_come_and_go() -> None:
    bucket = TokenBucket(None, None, now=0)
    bucket.reconfigure(1.0, 2, now=0)
    assert [bucket.take(1, 0) for _ in range(3)] == [0, 0, 1]
    bucket.reconfigure(None, None, now=0)
    assert bucket.take(1000, 0) == 0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(rate, 1, now=0)


def test_a_burst_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(1.0, 0, now=0)
