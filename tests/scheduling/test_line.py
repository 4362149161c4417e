"""The line against a sorted list, and its cost in comparisons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling import line as module
from app.scheduling.line import Line
from tests.scheduling.counting import CountedBytes, comparisons
from tests.scheduling.workload import thorough

numbers = st.integers(0, 60)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)


def filled(items: list[int]) -> Line[int]:
    line: Line[int] = Line()
    line.fill(items)
    return line


@thorough(300)
@given(st.sets(numbers, max_size=40), st.lists(st.tuples(st.sampled_from("+-<"), numbers), max_size=60))
def test_it_answers_like_a_sorted_list(start: set[int], steps: list[tuple[str, int]]) -> None:
    line, model = filled(list(start)), set(start)
    for step, item in steps:
        if step == "+" and item not in model:
            line.add(item)
            model.add(item)
        elif step == "-" and item in model:
            line.remove(item)
            model.remove(item)
        ordered = sorted(model)
        assert list(line) == ordered
        assert len(line) == len(ordered)
        assert list(line.below(item)) == [other for other in ordered if other < item]
        assert line.least_but(item) == next((other for other in ordered if other != item), None)
        if ordered:
            assert line.first == ordered[0]
        assert all(0 < len(block) < 2 * module.BLOCK for block in line.lend())


def test_what_is_there_cannot_come_and_what_is_not_cannot_go() -> None:
    line = filled([1, 5, 7])
    with pytest.raises(ValueError, match="already in the line"):
        line.add(5)
    for missing in (0, 6, 9):
        with pytest.raises(ValueError, match="not in the line"):
            line.remove(missing)
    with pytest.raises(ValueError, match="not in the line"):
        filled([]).remove(1)
    assert list(line) == [1, 5, 7]


def test_filling_refuses_twins_and_keeps_what_was_there() -> None:
    line = filled([7])
    with pytest.raises(ValueError, match="twice"):
        line.fill([1, 2, 1])
    assert list(line) == [7]


def test_an_empty_line_has_no_first() -> None:
    with pytest.raises(IndexError):
        _ = filled([]).first


@pytest.mark.parametrize("size", [100, 10_000])
def test_each_change_costs_a_logarithm(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    items = [CountedBytes(number.to_bytes(4, "big")) for number in range(0, 2 * size, 2)]
    line: Line[CountedBytes] = Line()
    line.fill(items[::-1])
    for number in (-1, 0, size // 2, 2 * size):
        item = CountedBytes((2 * max(number, 0) + 1).to_bytes(4, "big"))
        for change in (line.add, line.remove):
            with comparisons() as cost:
                change(item)
            assert 0 < cost.count <= 2 * log2(size) + 4


def test_what_is_lent_stays_as_it_was_and_is_copied_once() -> None:
    line = filled(list(range(9)))
    first, second = line.lend(), line.lend()
    assert first is second is line._blocks
    line.take_back(second)
    line.remove(0)
    line.add(20)
    parted = line._blocks
    assert list(chain.from_iterable(first)) == list(range(9))
    line.take_back(first)
    line.remove(1)
    assert line._blocks is parted, "copied though nobody reads it"
    assert list(line) == [2, 3, 4, 5, 6, 7, 8, 20]


@pytest.mark.parametrize(
    "change",
    [lambda line: line.add(20), lambda line: line.remove(3), lambda line: line.fill([])],
    ids=["add", "remove", "fill"],
)
def test_every_change_leaves_what_is_lent_alone(change: Callable[[Line[int]], object]) -> None:
    line = filled(list(range(9)))
    lent = line.lend()
    change(line)
    assert list(chain.from_iterable(lent)) == list(range(9))


def test_what_is_taken_back_is_not_copied() -> None:
    line = filled(list(range(9)))
    lent = line.lend()
    line.take_back(lent)
    line.remove(0)
    assert line._blocks is lent
