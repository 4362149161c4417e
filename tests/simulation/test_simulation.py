"""Seeds, each a short life of the service in a hostile world, played in this thread without time, threads or chance."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Final

import pytest

from tests.effort import EFFORT, chance_of
from tests.simulation import planted
from tests.simulation.planted import Fault
from tests.simulation.simulation import Ended, Stage, play, shortest, stage

SEEDS: Final = 300
ALIKE: Final = 15
TOLD: Final = 150
"""Most lines of a trace that are shown."""


@pytest.fixture(scope="module")
def here() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.mark.torture
def test_whatever_a_seed_does_the_service_does_what_the_model_says(here: Stage) -> None:
    chance, come_past = chance_of("simulation"), set[str]()
    began = time.process_time()
    for _ in range(SEEDS * EFFORT):
        ended = play(here, f"{chance.getrandbits(64):x}")
        come_past |= ended.counted.keys()
        assert ended.wrong is None, _told(shortest(here, ended))
    took_sec = time.process_time() - began
    seeds = SEEDS * EFFORT
    print(f"simulation: {seeds} seeds in {took_sec:.1f} s of CPU, {60 * seeds / took_sec:.0f} a minute")  # noqa: T201 - as `make torture` shows
    assert come_past >= {
        "killed",
        "twins",
        "type a cancel",
        "COMMIT fail",
        "COMMIT unknown",
        "statement cut",
        "goodbye",
    }


def test_a_seed_is_the_same_every_time_and_in_every_process(here: Stage) -> None:
    once = _digest(here)
    assert _digest(here) == once
    # Another process orders sets of names otherwise.
    code = "from tests.simulation.test_simulation import print_digest; print_digest()"
    environ = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    elsewhere = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert elsewhere.stdout.strip() == once


SOON_FOUND: Final[dict[Fault, int]] = {
    planted.an_answer_before_the_commit: 10,
    planted.a_doubt_that_is_forgotten: 60,
    planted.an_end_that_forgets_the_running_count: 100,
    planted.a_report_under_any_token: 80,
    planted.an_order_that_keeps_what_was_rolled_back: 60,
}


@pytest.mark.parametrize("fault", SOON_FOUND, ids=lambda fault: fault.__name__)
def test_it_sees_a_planted_fault(here: Stage, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    fault(monkeypatch)
    assert any(play(here, str(number)).wrong is not None for number in range(SOON_FOUND[fault]))


def print_digest() -> None:
    with stage() as made:
        print(_digest(made))  # noqa: T201 - it is read by the process that asks


def _digest(here: Stage) -> str:
    digest = hashlib.sha256()
    for number in range(ALIKE):
        digest.update("\n".join(play(here, str(number)).trace).encode())
    return digest.hexdigest()


def _told(ended: Ended) -> str:
    assert ended.wrong is not None
    head = f"seed {ended.seed} goes wrong within {ended.length} steps: {ended.wrong}"
    how = "".join(traceback.format_exception(ended.wrong))
    return "\n".join([head, ended.trace[0], "...", *ended.trace[-TOLD:], how])
