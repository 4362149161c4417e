"""What is remembered of how queues are served and asked for, and that it does not pile up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.flow.moves import Moved
from app.flow.watch import asking, pace
from app.flow.watch.asking import Asking
from app.flow.watch.pace import DISPATCHES, FEWEST, Pace
from app.scheduling.job import State
from tests.scheduling.workload import thorough


def dispatched(queue: str, times: int = 1) -> list[Moved]:
    return [Moved("1", queue, "acme", State.QUEUED, State.SCHEDULED, None)] * times


def served(*pauses: float, waiting: int = 9) -> tuple[Pace, float]:
    """A queue in which jobs wait all along, dispatched from after each of these pauses; and what time it is."""
    followed, now = Pace(), 100.0
    followed.follow([Moved("1", "q", "acme", None, State.QUEUED, None)], {"q": waiting}, now)
    for seconds in pauses:
        now += seconds
        followed.follow(dispatched("q"), {"q": waiting}, now)
    return followed, now


def test_a_steady_pace_is_foretold_exactly() -> None:
    followed, now = served(*[3.0] * 20)
    for number in (1, 4, 5, 1000):
        forecast = followed.forecast("q", number, now)
        assert forecast is not None
        assert (forecast.earliest, forecast.likely, forecast.latest) == pytest.approx((3.0 * number,) * 3)


def test_too_little_is_no_pace() -> None:
    followed, now = served(*[3.0] * (FEWEST - 1))
    assert followed.forecast("q", 1, now) is None
    assert followed.forecast("other", 1, now) is None


@thorough(100)
@given(
    st.lists(st.floats(0, 1000), min_size=FEWEST, max_size=2 * DISPATCHES), st.integers(1, 20_000), st.floats(0, 1e6)
)
def test_a_forecast_is_in_order_and_never_in_the_past(pauses: list[float], number: int, idle: float) -> None:
    followed, now = served(*pauses)
    forecast = followed.forecast("q", number, now + idle)
    assert forecast is not None
    assert 0 <= forecast.earliest <= forecast.likely <= forecast.latest


def test_what_was_waited_since_the_last_one_counts() -> None:
    followed, now = served(*[10.0] * 20)
    forecast = followed.forecast("q", 1, now + 4)
    assert forecast is not None
    assert (forecast.earliest, forecast.likely, forecast.latest) == pytest.approx((6.0, 6.0, 10.0))
    late = followed.forecast("q", 1, now + 60)
    assert late is not None
    assert (late.earliest, late.likely, late.latest) == pytest.approx((0.0, 0.0, 60.0))


def test_several_at_once_are_several() -> None:
    followed, now = Pace(), 0.0
    for _ in range(10):
        now += 8
        followed.follow(dispatched("q", 4), {"q": 9}, now)
    forecast = followed.forecast("q", 8, now)
    assert forecast is not None
    assert forecast.likely == pytest.approx(16.0)


def test_only_the_latest_count_and_only_so_many_queues_are_known() -> None:
    followed, now = served(*[100.0] * 50, *[1.0] * (DISPATCHES + 1))
    forecast = followed.forecast("q", 1, now)
    assert forecast is not None
    assert forecast.latest == pytest.approx(1.0)
    for number in range(pace.QUEUES):
        followed.follow(dispatched(f"q{number}"), {f"q{number}": 0}, now)
    assert followed.forecast("q", 1, now) is None
    assert len(followed._queues) == pace.QUEUES


def test_who_asks_for_queues_that_are_not_there_fills_no_memory() -> None:
    asked = Asking(0.0)
    asked.note(["here"], 1.0)
    asked.note((f"q{number}" for number in range(asking.QUEUES - 1)), 2.0)
    assert asked.last("here") == 1.0
    asked.note(["here"], 3.0)
    asked.note(["one more"], 4.0)
    assert (asked.last("here"), asked.last("q0"), asked.last("one more")) == (3.0, None, 4.0)
    assert len(asked._asked) == asking.QUEUES
