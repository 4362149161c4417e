"""How figures and a job's life read on the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from app.api.page import charts
from app.api.page.timeline import timeline
from app.api.page.words import duration, moment, number, percent, pretty, sentence
from app.flow.watch.last_hour import Minute
from app.scheduling.job import Attempt, Job, Outcome, State

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "\N{EN DASH}"),
        (-1, "0 s"),
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.0006, "1 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (86_400 * 400, "400 d"),
        (86_400 * 2 + 7200, "2 d 2 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_shares_numbers_and_times() -> None:
    assert [percent(part) for part in (None, 0, 0.004, 0.126, 1)] == ["\N{EN DASH}", "0%", "<1%", "13%", "100%"]
    assert number(1234567) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    assert moment(at(1.2345)) == "2026-01-31 12:00:01.234"


def test_json_is_shown_as_far_as_people_read() -> None:
    assert pretty({"a": [1, None, "ä"]}) == '{\n  "a": [\n    1,\n    null,\n    "ä"\n  ]\n}'
    long = pretty(["x"] * 10_000)
    assert len(long) == 20_001
    assert long.endswith("\N{HORIZONTAL ELLIPSIS}")


def test_a_sentence_keeps_its_names() -> None:
    assert [sentence(text) for text in ("job not found", "tenant ACME waits.", "")] == [
        "Job not found.",
        "Tenant ACME waits.",
        ".",
    ]


def _job(**fields: Any) -> Job:
    nothing = dict.fromkeys(Job.__struct_fields__)
    given = {"submitted_at": NOON, "due_at": NOON, "run_at": NOON, "state": State.PENDING}
    return Job(**{**nothing, **given, **fields})


def _attempt(queued: float, scheduled: float, started: float | None, ended: float) -> Attempt:
    started_at = None if started is None else at(started)
    times = (at(queued), at(scheduled), started_at, at(ended))
    return Attempt("id", 1, "token", "w", *times, Outcome.LAPSED, None, 1, 1)


def _told(job: Job, attempts: list[Attempt], now: float) -> list[tuple[str, float, float, bool]]:
    stretches = timeline(job, attempts, at(now))
    return [(s.doing, (s.start - NOON).total_seconds(), (s.end - NOON).total_seconds(), s.is_open) for s in stretches]


class TestTimeline:
    def test_a_new_job_has_only_waited(self) -> None:
        assert _told(_job(), [], 5) == [("delayed", 0, 5, True)]
        assert _told(_job(queued_at=NOON), [], 5) == [("queued", 0, 5, True)]
        assert _told(_job(queued_at=NOON), [], 0) == []

    def test_each_attempt_is_told_and_what_is_open_goes_on(self) -> None:
        job = _job(queued_at=at(30), scheduled_at=at(31), started_at=at(33))
        assert _told(job, [_attempt(2, 4, 5, 10)], 40) == [
            ("delayed", 0, 2, False),
            ("queued", 2, 4, False),
            ("scheduled", 4, 5, False),
            ("running", 5, 10, False),
            ("delayed", 10, 30, False),
            ("queued", 30, 31, False),
            ("scheduled", 31, 33, False),
            ("running", 33, 40, True),
        ]

    def test_the_last_attempt_of_a_final_job_is_told_once(self) -> None:
        job = _job(state=State.COMPLETED, queued_at=NOON, scheduled_at=at(1), started_at=at(1), completed_at=at(3))
        assert _told(job, [_attempt(0, 1, 1, 3)], 99) == [("queued", 0, 1, False), ("running", 1, 3, False)]

    def test_a_job_cancelled_while_it_waits_again_has_waited_to_the_end(self) -> None:
        job = _job(state=State.CANCELLED, queued_at=at(3), completed_at=at(9))
        assert _told(job, [_attempt(0, 1, None, 3)], 99)[-1] == ("queued", 3, 9, False)
        assert _told(replace(job, queued_at=None), [_attempt(0, 1, None, 3)], 99)[-1] == ("delayed", 3, 9, False)

    def test_they_fill_the_whole_width(self) -> None:
        stretches = timeline(_job(queued_at=at(1)), [], at(4))
        assert [(s.left, s.width) for s in stretches] == [(0, 25), (25, 75)]


MINUTES = [Minute(NOON + timedelta(minutes=n), submitted=n, completed=2 * n) for n in range(60)]


class TestCharts:
    def drawn(self, svg: str) -> ET.Element:
        """The picture, once it is sure to hold nothing that a strict policy refuses."""
        root = ET.fromstring(svg)  # noqa: S314 - our own
        for element in root.iter():
            assert element.tag.rpartition("}")[2] in ("svg", "g", "path", "rect", "circle", "text")
            assert not element.attrib.keys() & {"style", "onclick", "href"}
        assert root.get("aria-hidden") == "true"
        return root

    def test_they_are_drawn_without_styles_and_scripts(self) -> None:
        root = self.drawn(charts.throughput(MINUTES, NOON))
        assert [text for text in root.itertext() if text in ("12:00", "12:15", "12:30", "12:45")]
        lines = [path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path")]
        assert max(line.count(" ") for line in lines) == 2 * 59 - 1  # the minute that is not over is left out

    def test_nothing_is_drawn_where_nothing_is_known(self) -> None:
        root = self.drawn(charts.throughput(MINUTES, NOON + timedelta(minutes=59)))
        assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3
        self.drawn(charts.waiting(MINUTES, NOON))

    def test_of_few_jobs_the_scale_is_in_whole_ones(self) -> None:
        for count in (0, 1, 2, 7):
            minutes = [Minute(NOON + timedelta(minutes=n), submitted=count) for n in range(60)]
            words = list(self.drawn(charts.throughput(minutes, NOON)).itertext())
            scale = [int(text) for text in words if text.isdigit()]
            assert len(scale) == len(set(scale)) > 2
