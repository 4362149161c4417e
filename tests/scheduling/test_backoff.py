"""The backoff's size and bounds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.backoff import backoff
from tests.scheduling.workload import thorough


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 2), (2, 4), (10, 1024), (11, 2048), (12, 3600), (13, 3600), (10**9, 3600)]
)
def test_it_doubles_up_to_an_hour(attempt: int, seconds: int) -> None:
    assert backoff(attempt, 0.0) == timedelta(seconds=seconds)


def test_half_the_jitter_is_five_percent() -> None:
    assert backoff(1, 0.5) == timedelta(seconds=2.1)


@thorough(100)
@given(st.integers(1, 10**12), st.floats(0, 1, exclude_max=True))
def test_jitter_adds_at_most_a_tenth(attempt: int, jitter: float) -> None:
    least = backoff(attempt, 0.0)
    assert least <= backoff(attempt, jitter) <= least * 1.1
