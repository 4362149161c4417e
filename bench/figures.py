"""Figures: what was measured of somebody, run by run. Pure: it knows neither databases nor processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles
from typing import Final

RATE: Final = "jobs/s"
P50: Final = "p50 ms"
P99: Final = "p99 ms"
GENERATOR: Final = "generator CPU %"
SERVER: Final = "server CPU %"
SERVER_EACH: Final = "server CPU µs a job"
RATIO: Final = "ratio"

FEW: Final = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of one contender in one row: a value for each run, in the order of the runs."""

    part: str
    row: str
    who: str
    measure: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest of a few runs; of many, where the middle half of them lies."""
        if len(self.samples) <= FEW:
            return min(self.samples), max(self.samples)
        low, _, high = quantiles(self.samples, n=4)
        return low, high


def ratio(of: Figure, to: Figure) -> Figure:
    """How often `to` goes into `of`, run by run: the runs stood side by side, so what slowed one slowed the other."""
    quotients = tuple(a / b for a, b in zip(of.samples, to.samples, strict=True))
    return Figure(of.part, of.row, f"{of.who} / {to.who}", RATIO, quotients)


def best(figures: Iterable[Figure]) -> Figure:
    """The one with the largest median."""
    return max(figures, key=lambda figure: figure.median)


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: the smallest value that at least so many percent do not exceed. Raises `ValueError` for none."""
    if not values:
        raise ValueError("nothing was measured: the runs are too short")
    ranked = sorted(values)
    return ranked[max(0, ceil(len(ranked) * percent / 100) - 1)]
