"""Runs in turn."""

from __future__ import annotations

import pytest

from bench.rounds import Contender, GaveUp, Sample, in_turn


async def test_each_round_begins_with_another_and_who_gives_up_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    ran = list[str]()

    def contender(who: str, runs: int) -> Contender:
        async def run() -> Sample:
            ran.append(who)
            if ran.count(who) > runs:
                raise GaveUp
            return {"jobs/s": len(ran)}

        return Contender(who, run)

    figures = await in_turn("drain", "a row", [contender("a", 3), contender("b", 1), contender("c", 3)], 3)
    assert ran == ["a", "b", "c", "b", "c", "a", "c", "a"]
    assert [(figure.who, figure.samples) for figure in figures] == [("a", (1, 6, 8)), ("c", (3, 5, 7))]
    assert "b came to no end" in capsys.readouterr().err
