"""A fair division: by weight, nobody more than it wanted, nothing left over that somebody wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduling.shares import Demand, fair_shares
from tests.scheduling.workload import thorough

DEMANDS = st.dictionaries(
    st.text(max_size=3), st.builds(Demand, st.integers(1, 1000), st.floats(0, 1e6)), min_size=1, max_size=20
)


def test_by_weight_where_all_want_more() -> None:
    assert fair_shares(80, {"a": Demand(3, 1000), "b": Demand(1, 1000)}) == {"a": 60, "b": 20}


def test_what_one_does_not_want_goes_to_the_others_by_weight() -> None:
    shares = fair_shares(100, {"a": Demand(1, 10), "b": Demand(2, 1000), "c": Demand(1, 1000)})
    assert shares == {"a": 10, "b": 60, "c": 30}


def test_nobody_there_is_nobody_due() -> None:
    assert fair_shares(0, {}) == {}


@thorough(200)
@given(st.floats(0, 1e6), DEMANDS)
def test_it_is_a_weighted_max_min_division(total: float, demands: dict[str, Demand]) -> None:
    shares = fair_shares(total, demands)
    wanted = sum(demand.wanted for demand in demands.values())
    assert sum(shares.values()) == pytest.approx(min(total, wanted), rel=1e-6, abs=1e-6)
    assert all(-1e-6 <= shares[name] <= demands[name].wanted for name in demands)
    # Who got less than it wanted is no worse off, for its weight, than anybody else.
    most = max(share / demands[name].weight for name, share in shares.items())
    for name, share in shares.items():
        if share < demands[name].wanted - 1e-6:
            assert share / demands[name].weight == pytest.approx(most, rel=1e-6, abs=1e-6)
