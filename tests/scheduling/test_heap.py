"""The heap against a sorted list, and its cost in comparisons."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.heap import IndexedHeap, Key
from tests.scheduling.counting import CountedKey, comparisons
from tests.scheduling.workload import thorough

items = st.integers(0, 20)
keys = st.tuples(st.integers(-3, 3), st.integers(0, 100))


def filled(entries: dict[int, tuple[int, ...]]) -> IndexedHeap[int]:
    heap: IndexedHeap[int] = IndexedHeap()
    heap.heapify(entries.items())
    return heap


def drained(heap: IndexedHeap[int]) -> list[int]:
    return [heap.pop() for _ in range(len(heap))]


@thorough(300)
@given(
    st.dictionaries(items, keys, max_size=20),
    st.lists(st.tuples(st.sampled_from(("push", "remove", "rekey", "pop")), items, keys), max_size=60),
)
def test_it_answers_like_a_sorted_list(
    start: dict[int, tuple[int, int]], steps: list[tuple[str, int, tuple[int, int]]]
) -> None:
    def unique(item: int, key: tuple[int, int]) -> tuple[int, ...]:
        return (*key, item)

    model = {item: unique(item, key) for item, key in start.items()}
    heap = filled(model)
    for step, item, key in steps:
        if step == "push" and item not in model:
            heap.push(item, unique(item, key))
            model[item] = unique(item, key)
        elif step == "remove" and item in model:
            assert heap.remove(item) == model.pop(item)
        elif step == "rekey" and item in model:
            assert heap.rekey(item, unique(item, key)) == model[item]
            model[item] = unique(item, key)
        elif step == "pop" and model:
            first = min(model, key=lambda each: model[each])
            assert heap.pop() == first
            del model[first]
        assert len(heap) == len(model)
        assert set(heap) == set(model)
        assert all(item in heap and heap.key(item) == key for item, key in model.items())
        if model:
            assert heap.peek() == min(model, key=lambda each: model[each])
    assert drained(heap) == sorted(model, key=lambda each: model[each])


def test_pushing_what_is_there_is_refused() -> None:
    heap = filled({1: (5,)})
    with pytest.raises(ValueError, match="already in the heap"):
        heap.push(1, (2,))
    assert heap.key(1) == (5,)


def test_heapify_refuses_twins_and_keeps_what_was_there() -> None:
    heap = filled({7: (1,)})
    with pytest.raises(ValueError, match="twice"):
        heap.heapify([(1, (1,)), (1, (2,))])
    assert drained(heap) == [7]


def test_what_is_not_there_cannot_be_taken() -> None:
    heap = filled({1: (5,)})
    with pytest.raises(KeyError):
        heap.remove(2)
    with pytest.raises(KeyError):
        heap.rekey(2, (1,))
    with pytest.raises(KeyError):
        heap.key(2)
    assert 2 not in heap


def test_an_empty_heap_has_no_first() -> None:
    with pytest.raises(IndexError):
        filled({}).peek()
    with pytest.raises(IndexError):
        filled({}).pop()


def test_items_are_never_compared() -> None:
    heap: IndexedHeap[object] = IndexedHeap()
    for _ in range(10):
        heap.push(object(), (1,))
    assert len([heap.pop() for _ in range(10)]) == 10


@pytest.mark.parametrize("size", [100, 10_000])
def test_each_change_costs_a_logarithm_at_worst(size: int) -> None:
    heap: IndexedHeap[int] = IndexedHeap()
    with comparisons() as building:
        heap.heapify((item, CountedKey((size - item,))) for item in range(size))
    assert building.count <= 4 * size

    per_change = 2 * log2(size) + 3
    with comparisons() as cost:
        heap.push(-1, CountedKey((-1,)))  # rises from the bottom to the top
    assert cost.count <= per_change
    with comparisons() as cost:
        heap.rekey(-1, CountedKey((size + 1,)))  # sinks from the top to the bottom
    assert cost.count <= per_change
    with comparisons() as cost:
        heap.pop()
    assert cost.count <= per_change
    with comparisons() as cost:
        heap.remove(size // 2)
    assert cost.count <= per_change


@thorough(150)
@given(st.dictionaries(items, keys, max_size=20), keys)
def test_it_is_read_by_key_without_a_change(start: dict[int, tuple[int, int]], limit: Key) -> None:
    entries: dict[int, Key] = {item: (*key, item) for item, key in start.items()}
    ordered = sorted(entries, key=lambda item: entries[item])
    heap = filled(entries)
    assert sorted(heap.below(limit)) == sorted(item for item, key in entries.items() if key < limit)
    for item in range(21):
        assert heap.least_but(item) == min((entries[other] for other in ordered if other != item), default=None)
    assert drained(heap) == ordered
