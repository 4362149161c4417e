"""What a seed makes of the world it plays in. Each seed leaves much out and does the rest the more: what is done a
little of everywhere seldom meets. Most lives are short, for what can go wrong seldom takes many steps, and those that
are have as many mishaps in fewer steps."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

TENANTS: Final = ("ada", "bob", "cyd")
QUEUES: Final = ("default", "other")

_ALWAYS: Final = {"submit": 9, "claim": 10, "report": 16, "again": 3, "pass time": 4}
_SOMETIMES: Final = {
    "submit twice": 4,
    "report many": 4,
    "hang up": 4,
    "cancel": 4,
    "cancel many": 2,
    "prioritize": 3,
    "retry": 3,
    "look": 3,
    "set tenant": 4,
    "set queue": 2,
}
_MISHAPS: Final = {"kill": 2, "goodbye": 1, "stall": 4, "move the wall clock": 2}
_LENGTHS: Final = (*((3, 8),) * 6, *((8, 14),) * 2, (14, 36))
_LONG: Final = 24
_BY_HAND: Final = {"type a job": 2, "type a cancel": 4, "type a setting": 2}


@dataclass(frozen=True)
class Nature:
    """`steps` are the things done, by how often; rates are for each call of the database. A `slow` one keeps its
    answers back while time passes; one that `drains` works off at the end whatever is left."""

    length: int
    steps: dict[str, float]
    policy: str
    priority_step: str
    tick_ms: int
    fails: float
    is_cut: float
    kills: float
    slow: float
    limits: bool
    drains: bool

    @property
    def is_typed(self) -> bool:
        """Whether anybody types SQL."""
        return any(name in self.steps for name in _BY_HAND)


def nature_of(chance: random.Random) -> Nature:
    """A world, by chance."""
    length = chance.randint(*chance.choice(_LENGTHS))
    dense = max(1.0, math.sqrt(_LONG / length))
    some = {name: weight for name, weight in _SOMETIMES.items() if chance.random() < 0.45}
    mishaps = {name: weight * dense for name, weight in _MISHAPS.items() if chance.random() < 0.45}
    typed = {name: weight for name, weight in _BY_HAND.items() if chance.random() < 0.6} if _one_in(chance, 4) else {}
    return Nature(
        length=length,
        steps={**_ALWAYS, **some, **mishaps, **typed},
        policy=chance.choice(("virtual-time", "virtual-time", "penalty")),
        priority_step=chance.choice(("1", "1", "0.5", "0", "100")),
        tick_ms=chance.choice((500, 5000, 5000)),
        fails=chance.choice((0, 0, 0, 0.01, 0.03)) * dense,
        is_cut=chance.choice((0, 0, 0.01)) * dense,
        kills=chance.choice((0, 0, 0.005)) * dense,
        slow=chance.choice((0.02, 0.02, 0.15)),
        limits=_one_in(chance, 2),
        drains=_one_in(chance, 4),
    )


def _one_in(chance: random.Random, n: int) -> bool:
    return chance.randrange(n) == 0
