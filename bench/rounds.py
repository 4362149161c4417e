"""Who is compared runs in turn, round after round, so that a noisy neighbour hits all of them alike."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Figure

Sample = Mapping[str, float]
"""What one run gave, by measure."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who can be measured again and again; each `run` gives the same measures."""

    who: str
    run: Callable[[], Awaitable[Sample]]


class GaveUp(Exception):
    """Who runs has not come to an end."""


async def in_turn(part: str, row: str, contenders: Sequence[Contender], rounds: int) -> list[Figure]:
    """Each contender once a round; each round begins with another one. Who gives up is not in the row."""
    samples: dict[str, list[Sample]] = {contender.who: [] for contender in contenders}
    for round_ in range(rounds):
        first = round_ % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            if contender.who not in samples:
                continue
            try:
                samples[contender.who].append(await contender.run())
            except GaveUp:
                del samples[contender.who]
                sys.stderr.write(f"{row}: {contender.who} came to no end, and is left out\n")
    return [
        Figure(part, row, who, measure, tuple(run[measure] for run in runs))
        for who, runs in samples.items()
        for measure in runs[0]
    ]
