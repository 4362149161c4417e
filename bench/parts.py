"""The parts of the benchmarks by name, in the order in which they are played and shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bench.alone import alone
from bench.crowded import crowded
from bench.draining import drained
from bench.figures import Figure
from bench.half_rate import at_half_rate
from bench.inside import inside
from bench.picking_up import picked_up
from bench.stage import Stage
from bench.submitting import in_batches, one_by_one


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of the table. `with_peers`: others take part than Fairlane."""

    name: str
    title: str
    play: Callable[[Stage], Awaitable[list[Figure]]]
    with_peers: bool = False


PARTS: Final = (
    Part("submit", "Jobs submitted one by one", one_by_one, with_peers=True),
    Part("batch", "Jobs submitted in batches", in_batches, with_peers=True),
    Part("drain", "Jobs done", drained, with_peers=True),
    Part("pickup", "A job for an idle worker", picked_up, with_peers=True),
    Part("half rate", "At half of the top rate", at_half_rate),
    Part("alone", "One client alone", alone),
    Part("crowded", "Beside idle connections", crowded),
    Part("inside", "Inside the process", inside),
)
