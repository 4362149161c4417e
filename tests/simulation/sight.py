"""How soon the simulation sees each planted fault: `python -m tests.simulation.sight`, half an hour long. What makes it
faster must not make it blind, and only this tells."""

from __future__ import annotations

import random
import statistics
import time
from typing import Final

import pytest

from tests.simulation.planted import FAULTS, Fault
from tests.simulation.simulation import Stage, play, stage

HITS: Final = 20
LONGEST_SEC: Final = 120.0
"""Of CPU time, for one fault."""


def main() -> None:
    with stage() as here:
        for fault in FAULTS:
            print(_seen(here, fault), flush=True)  # noqa: T201 - it is what was asked for


def _seen(here: Stage, fault: Fault) -> str:
    chance, seeds, gaps = random.Random(fault.__name__), 0, list[float]()
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        began = last = now = time.process_time()
        while len(gaps) < HITS and now - began < LONGEST_SEC:
            seeds += 1
            wrong = play(here, f"{chance.getrandbits(64):x}").wrong
            now = time.process_time()
            if wrong is not None:
                gaps.append(now - last)
                last = now
    median = f"{statistics.median(gaps):.2f}" if gaps else "?"
    return f"{fault.__name__:42} {len(gaps):3} times in {seeds:5} seeds, median {median:>6} s of CPU"


if __name__ == "__main__":
    main()
