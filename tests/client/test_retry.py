"""When a call is sent again: numbers in, a decision out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.errors import (
    Conflict,
    DeadlineExceeded,
    FairlaneError,
    InvalidRequest,
    KeyReused,
    NotFound,
    RateLimited,
    Unavailable,
    UnexpectedAnswer,
)
from app.client.retry import Backoff, Terms, may_repeat

DICE = st.floats(0, 1, exclude_max=True)


@given(tries=st.integers(1, 10_000), dice=DICE)
def test_a_pause_lies_under_a_ceiling_that_doubles_up_to_its_limit(tries: int, dice: float) -> None:
    backoff = Backoff(first_sec=0.5, most_sec=8.0)
    ceiling = min(8.0, 0.5 * 2.0 ** min(tries - 1, 100))
    assert 0 <= backoff.pause(tries, dice) < ceiling


def test_the_jitter_is_full() -> None:
    backoff = Backoff(first_sec=1.0, most_sec=60.0)
    assert backoff.pause(4, 0.0) == 0.0
    assert backoff.pause(4, 0.5) == 4.0
    assert backoff.pause(4, 0.999) == pytest.approx(8.0, abs=0.01)


@given(tries=st.integers(1, 100), dice=DICE, retry_after=st.integers(0, 3600))
def test_the_service_is_never_asked_before_the_time_it_named(tries: int, dice: float, retry_after: int) -> None:
    assert Backoff().pause(tries, dice, retry_after) >= retry_after


def test_those_who_were_named_the_same_time_do_not_come_back_together() -> None:
    backoff = Backoff(first_sec=1.0)
    assert backoff.pause(1, 0.2, 5) != backoff.pause(1, 0.7, 5)


ALWAYS = [RateLimited("", 429, 1), Unavailable("", in_doubt=False)]
IF_REPEATABLE = [Unavailable("", in_doubt=True)]
NEVER = [
    UnexpectedAnswer("", 500),
    InvalidRequest("", 400),
    NotFound("", 404),
    Conflict("", 409),
    KeyReused("", 422),
    DeadlineExceeded("", in_doubt=False),
]


@pytest.mark.parametrize("failure", [*ALWAYS, *IF_REPEATABLE, *NEVER], ids=lambda failure: type(failure).__name__)
def test_only_what_can_do_no_harm_is_sent_again(failure: FairlaneError) -> None:
    assert may_repeat(failure, is_repeatable=True) is (failure not in NEVER)
    assert may_repeat(failure, is_repeatable=False) is (failure in ALWAYS)


def test_a_deadline_counts_from_the_beginning_and_beyond_what_the_service_was_asked_to_wait() -> None:
    assert Terms(deadline_sec=60, now=lambda: 100.0).ends_at(5) == 165.0
    assert Terms(deadline_sec=None).ends_at(5) == float("inf")


def test_tries_are_without_number_unless_told() -> None:
    assert Terms().may_try_again(10_000)
    assert not Terms(most_tries=1).may_try_again(1)
    assert Terms(most_tries=2).may_try_again(1)
