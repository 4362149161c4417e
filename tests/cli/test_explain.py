"""`fairlane explain`: in words, and as the service says it."""

from __future__ import annotations

import httpx

from tests.cli.running import Fairlane
from tests.cli.test_looking import HOSTILE, claim, report


def test_a_waiting_job_is_explained_in_words(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(f"{name}-other", "a", "-q", name)
    fairlane.submit(f"{name}-other", "a", "-q", name)
    fairlane.submit(name, "a", "-q", name, "-p", "1")
    job_id = fairlane.submit(name, "b", "-q", name, "-p", "2")
    told = fairlane("explain", job_id).output
    for line in (
        f"id                {job_id}",
        "state             queued",
        f"ahead             3\n                  {name}-other 2\n                  {name} 1",
        f"why               3 jobs go first: {name}-other 2, {name} 1.",
        f"                  No worker has asked for jobs of queue {name} since the service started,",
        "to be next        Not even priority 0",
        "key               3 shares = 0 used + 1 of jobs of its tenant before it + 2 x 1 for its priority; the clock",
        f"bound             While {name} is neither paused nor at its cap",
    ):
        assert f"\n{line}" in f"\n{told}", line
    assert "[others_first]\n" in told
    assert "[no_worker]\n" in told


def test_one_that_does_not_wait(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "a", "-q", name)
    job = claim(fairlane, name, worker="w7")
    told = fairlane("explain", job_id).output
    assert "why               Worker w7 holds it since" in told
    assert "ahead" not in told
    report(fairlane, job, "complete")
    assert "[final]" in fairlane("explain", job_id).output


def test_as_json_it_is_what_the_service_says(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "a", "-q", name, "-p", "1")
    job_id = fairlane.submit(name, "b", "-q", name, "-p", "2")
    [told] = fairlane.json("explain", job_id)
    answered = httpx.get(f"{fairlane.url}/jobs/{job_id}/explain").json()
    told["reasons"][1]["text"] = answered["reasons"][1]["text"]  # it says how long the service has run
    assert told == answered
    assert told["to_be_next"]["changes"] == [{"change": "priority", "name": job_id, "value": 0}]
    assert list(told) == list(answered)


def test_a_pace_is_told_as_a_time(fairlane: Fairlane, name: str) -> None:
    for _ in range(12):
        fairlane.submit(name, "a", "-q", name)
    for _ in range(11):
        report(fairlane, claim(fairlane, name), "complete")
    job_id = fairlane("jobs", "-q", name, "--state", "queued", "--ids").output.strip()
    told = fairlane("explain", job_id).output
    assert "\nlikely            20" in told
    assert "\n                  earliest 20" in told
    assert "\nto be next        It is the next one." in told


def test_hostile_names_are_escaped(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name + HOSTILE, "a", "-q", HOSTILE, "-p", "10")
    job_id = fairlane.submit(name, "a", "-q", HOSTILE, "-p", "10")
    told = fairlane("explain", job_id).output
    assert "\u202e" not in told
    assert "\\u202e" in told


def test_a_job_that_is_not_there(fairlane: Fairlane) -> None:
    assert "job not found" in fairlane("explain", "0" * 32, code=3).output
    assert "is no id of a job" in fairlane("explain", "nonsense", code=2).output
