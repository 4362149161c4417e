"""The table of legal moves against the same table, typed here once more."""

from __future__ import annotations

from itertools import product

import pytest

from app.errors import IllegalMove
from app.scheduling.job import INITIAL_STATES, LEGAL_MOVES, Move, State

TYPED_AGAIN = {
    ("pending", "queued"),
    ("pending", "failed"),
    ("pending", "cancelled"),
    ("queued", "scheduled"),
    ("queued", "failed"),
    ("queued", "cancelled"),
    ("scheduled", "running"),
    ("scheduled", "queued"),
    ("scheduled", "failed"),
    ("scheduled", "cancelled"),
    ("running", "completed"),
    ("running", "pending"),
    ("running", "queued"),
    ("running", "failed"),
    ("running", "cancelled"),
}
ALL_PAIRS = list(product(State, State))


def test_there_are_seven_states() -> None:
    names = ["pending", "queued", "scheduled", "running", "completed", "failed", "cancelled"]
    assert [str(state) for state in State] == names
    assert set(LEGAL_MOVES) == set(State)


def test_a_new_job_is_pending_or_queued() -> None:
    assert {"pending", "queued"} == INITIAL_STATES


@pytest.mark.parametrize(("old", "new"), ALL_PAIRS)
def test_every_pair_of_states(old: State, new: State) -> None:
    if (old, new) in TYPED_AGAIN:
        assert Move(old, new) == Move(old, new)
    else:
        with pytest.raises(IllegalMove, match=f"from {old} to {new}") as refusal:
            Move(old, new)
        assert (refusal.value.old, refusal.value.new) == (old, new)


def test_final_states_are_those_nothing_leaves() -> None:
    assert {state for state in State if state.is_final} == {"completed", "failed", "cancelled"}


def test_leased_states() -> None:
    assert {state for state in State if state.is_leased} == {"scheduled", "running"}
