"""How many jobs are sent, with a service that is made up: what it would take long to bring a real one to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from app.cli import batches
from app.cli.batches import send_all
from app.cli.lines import Keys, Line, read_lines
from app.client import Client, FieldError, InvalidRequest, Job, NewJob, RateLimited
from tests.cli.jobs import a_job


class Service:
    """Answers as it is told, and remembers what it was sent."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.sent: list[list[str]] = []

    def submit_batch(self, jobs: Sequence[NewJob]) -> list[Job]:
        self.sent.append([job.test_suite for job in jobs])
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer
        return [a_job(test_suite=job.test_suite) for job in jobs]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would have slept."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


def a_file(suites: str) -> list[Line]:
    raw = (f'{{"tenant": "acme", "test_suite": "{suite}"}}'.encode() for suite in suites)
    return list(read_lines(raw, {}, Keys("x")))


def send(service: Service, suites: str, told: Callable[[str], Any] = lambda _: None) -> list[str]:
    stored = send_all(cast("Client", service), a_file(suites), told)
    return ["".join(job.test_suite for job in each.jobs) for each in stored]


def test_a_rate_that_is_used_up_is_waited_for_and_said(naps: list[float]) -> None:
    told: list[str] = []
    service = Service(RateLimited("acme is too fast", 429, 7))
    assert send(service, "abc", told.append) == ["abc"]
    assert service.sent == [["a", "b", "c"]] * 2
    assert naps == [7]
    assert told == ["acme is too fast; goes on in 7 s"]


def test_a_limit_without_a_date_is_not_waited_for(naps: list[float]) -> None:
    with pytest.raises(RateLimited):
        send(Service(RateLimited("too many wait", 429, None)), "abc")
    assert naps == []


def test_what_is_more_than_a_burst_is_sent_in_halves_in_order() -> None:
    too_many = InvalidRequest("could never be admitted", 400)
    service = Service(too_many, None, too_many, None, None)
    assert send(service, "abcde") == ["ab", "c", "de"]
    assert [len(each) for each in service.sent] == [5, 2, 3, 1, 2]


def test_a_fault_that_only_the_service_finds_is_told_by_its_line() -> None:
    fault = InvalidRequest("jobs[1]: colour is unknown", 400, [FieldError("jobs[1].colour", "is unknown")])
    with pytest.raises(InvalidRequest, match=r"^line 2: colour is unknown$"):
        send(Service(fault), "abc")


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_LINES", 2)
    assert send(Service(), "abcde") == ["ab", "cd", "e"]
    monkeypatch.setattr(batches, "MOST_BYTES", 80)
    assert send(Service(), "abc") == ["a", "b", "c"]
