"""What each tenant was due, looking back. The order decides pick by pick; this says what a fair division of the same
work would have been, so that people can compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """How much work a tenant had to be done, in cost, and its weight."""

    weight: int
    wanted: float


def fair_shares(given: float, demands: Mapping[str, Demand]) -> dict[str, float]:
    """Divide `given` by weight, nobody getting more than it wanted: what one does not want goes to the others, by
    weight again (weighted max-min fairness, found by filling up the smallest wish per weight first).

    The shares add up to `given`, or to all that was wanted if that is less.
    """
    shares: dict[str, float] = {}
    left = given
    weight_left = sum(demand.weight for demand in demands.values())
    for name, demand in sorted(demands.items(), key=lambda item: item[1].wanted / item[1].weight):
        shares[name] = min(demand.wanted, left * demand.weight / weight_left)
        left -= shares[name]
        weight_left -= demand.weight
    return shares
