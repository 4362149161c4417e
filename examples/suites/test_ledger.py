"""A ledger whose accounts always sum to zero."""

from collections import Counter

import pytest


class Ledger:
    """Double-entry bookkeeping in whole cents."""

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()

    def transfer(self, source: str, target: str, cents: int) -> None:
        """Move money; an account named `bank` may go below zero, no other."""
        if cents <= 0:
            raise ValueError("only positive amounts move")
        if source != "bank" and self.balances[source] < cents:
            raise ValueError(f"{source} has too little")
        self.balances[source] -= cents
        self.balances[target] += cents


@pytest.fixture
def ledger() -> Ledger:
    opened = Ledger()
    opened.transfer("bank", "ada", 10_000)
    return opened


def test_money_moves(ledger: Ledger) -> None:
    ledger.transfer("ada", "bob", 2_500)
    assert ledger.balances == {"bank": -10_000, "ada": 7_500, "bob": 2_500}


def test_nobody_spends_what_they_do_not_have(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="too little"):
        ledger.transfer("bob", "ada", 1)
    assert ledger.balances["bob"] == 0


def test_the_sum_is_always_zero(ledger: Ledger) -> None:
    for cents in range(1, 100):
        ledger.transfer("ada", f"friend {cents % 7}", cents)
        assert sum(ledger.balances.values()) == 0
