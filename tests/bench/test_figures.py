"""Medians, spreads and ratios, and the page that shows them."""

from __future__ import annotations

import pytest

from bench import page, table
from bench.contenders import compared
from bench.figures import RATE, Figure, best, percentile, ratio
from bench.parts import PARTS
from bench.stage import NO_OP_SERVER, PYTHON_PEERS, SHOWN_AS


def figure(who: str, *samples: float, measure: str = RATE) -> Figure:
    return Figure("submit", "one by one", who, measure, samples)


def test_a_figure_is_a_median_and_how_far_the_runs_lie_apart() -> None:
    assert figure("a", 3, 1, 2).median == 2
    assert figure("a", 3, 1, 2).spread == (1, 3)
    low, high = figure("a", *range(100), 100_000).spread
    assert 20 < low < high < 80


def test_a_ratio_is_of_runs_that_stood_side_by_side() -> None:
    quotient = ratio(figure("a", 10, 1), figure("b", 5, 2))
    assert quotient.samples == (2, 0.5)
    assert quotient.who == "a / b"
    with pytest.raises(ValueError, match="shorter"):
        ratio(figure("a", 1, 2), figure("b", 1))


def test_the_best_is_the_best_in_the_middle_not_in_one_run() -> None:
    assert best([figure("a", 1, 1, 9), figure("b", 2, 2, 2)]).who == "b"


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 50), (99, 99), (100, 100)])
def test_percentiles_are_by_nearest_rank(percent: float, value: float) -> None:
    assert percentile([*range(100, 0, -1)], percent) == value


def test_fairlane_is_compared_with_the_best_peer_and_with_no_database() -> None:
    ours = SHOWN_AS["sqlite"]
    slow, fast, *_ = PYTHON_PEERS
    figures = [figure(ours, 8), figure(NO_OP_SERVER, 10), figure(slow.who, 1), figure(fast.who, 2), figure("floor", 4)]
    ratios = {each.who: each.median for each in compared(figures, {ours: ["floor", "not there"]})}
    assert ratios == {
        f"{ours} / {NO_OP_SERVER}": 0.8,
        f"{ours} / {fast.who}": 4,
        f"{ours} / floor": 2,
    }


def test_all_who_do_a_job_stand_side_by_side() -> None:
    figures = [
        figure("a", 1234.5),
        figure("a", 7, measure="p50 ms"),
        Figure("drain", "claim 100", "b", RATE, (3,)),
        Figure("alone", "one client", "c", "submit p50 ms", (3,)),
    ]
    assert table.side_by_side(figures).splitlines() == [
        "|  | one by one, jobs/s | claim 100, jobs/s |",
        "| --- | --- | --- |",
        "| a | 1,234 |  |",
        "| b |  | 3.00 |",
    ]


def test_the_page_takes_the_figures_and_takes_them_again() -> None:
    shown = page.PAGE.read_text()
    once = page.with_figures(shown, "| of a run |")
    assert "| of a run |" in once
    assert page.with_figures(once, "| of a run |") == once
    assert page.with_figures(once, "| of another |") == page.with_figures(shown, "| of another |")
    with pytest.raises(ValueError, match="must have"):
        page.with_figures("no marks", "figures")


def test_the_page_explains_every_part() -> None:
    explained, _, _ = page.PAGE.read_text().partition(page.BEGIN)
    for part in PARTS:
        assert f"\n## {part.title}\n" in explained
        assert f"ROWS={part.name.replace(' ', '-')}" in explained
