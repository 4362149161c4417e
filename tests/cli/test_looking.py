"""Jobs are looked at: lists that a script and a terminal can take, and one job with all its attempts."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.cli.running import Fairlane

HOSTILE = "[red]x[b] \u202e\u00a0:boom: ${x} %s {y} 漢字"
ESCAPED = "[red]x[b] \\u202e\\xa0:boom: ${x} %s {y} 漢字"


def claim(fairlane: Fairlane, queue: str, worker: str = "w1") -> dict[str, Any]:
    """A job in a worker's hands."""
    body = {"worker": worker, "queues": [queue], "start": True}
    [job] = httpx.post(f"{fairlane.url}/jobs/claim", json=body).json()["jobs"]
    return dict(job)


def report(fairlane: Fairlane, job: dict[str, Any], call: str, **body: Any) -> None:
    """What a worker says of it."""
    token = {"token": job["lease"]["token"]}
    assert httpx.post(f"{fairlane.url}/jobs/{job['id']}/{call}", json=token | body).status_code == 200


# --- a list


def test_a_list_in_no_terminal_is_plain_whole_and_aligned(fairlane: Fairlane, name: str) -> None:
    long = "tests/" + "x" * 200
    first = fairlane.submit(name, long, "-q", name)
    second = fairlane.submit(name, "short", "-q", name, "-p", "10")
    head, *rows = fairlane("jobs", "-t", name).output.splitlines()
    assert [row.split()[0] for row in rows] == [second, first]
    assert head.split() == ["ID", "STATE", "TENANT", "SUITE", "PRIO", "QUEUE", "TRY", "WORKER", "SUBMITTED"]
    assert {row.index("queued") for row in rows} == {head.index("STATE")}
    assert long in rows[1]
    assert re.search(r"  10  n\w+  0/3  -       \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$", rows[0])


def test_a_list_of_none_has_its_head_alone(fairlane: Fairlane, name: str) -> None:
    assert len(fairlane("jobs", "-t", name).output.splitlines()) == 1
    assert fairlane("jobs", "-t", name, "--json").output == ""


def test_filters_and_limits(fairlane: Fairlane, name: str) -> None:
    a = fairlane.submit(name, "a", "-q", "linux")
    b = fairlane.submit(name, "b", "--delay", "3600")
    c = fairlane.submit(name, "a")

    def ids(*options: str) -> list[str]:
        return fairlane("jobs", "-t", name, "--ids", *options).output.split()

    assert ids() == [c, b, a]
    assert ids("--oldest-first") == [a, b, c]
    assert ids("-n", "2") == [c, b]
    assert ids("--state", "pending") == [b]
    assert ids("--queue", "linux") == [a]
    assert ids("--suite", "a") == [c, a]
    assert ids("--all") == [c, b, a]


def test_json_is_an_object_a_line_as_the_service_gives_it(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "a", "--payload", '{"a": [1, null]}')
    fairlane.submit(name, "b")
    found = fairlane.json("jobs", "-t", name, "--oldest-first")
    assert [job["test_suite"] for job in found] == ["a", "b"]
    assert found[0] == httpx.get(f"{fairlane.url}/jobs/{job_id}").json()


async def test_on_a_terminal_a_list_fits_it(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "tests/" + "x" * 200, "-q", name)
    async with fairlane.terminal("jobs", "-t", name, width=80) as terminal:
        assert await terminal.exited() == 0
    head, row = (re.sub(r"\x1b\[[0-9;]*m", "", line) for line in terminal.text.strip().splitlines())
    assert head.split() == ["ID", "STATE", "TENANT", "SUITE", "PRIO", "AGE"]
    assert row.startswith(job_id)
    assert "…" in row
    assert max(len(head), len(row)) <= 80


async def test_on_a_wide_terminal_there_is_more(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "tests/login", "-q", name)
    async with fairlane.terminal("jobs", "-t", name, width=140) as terminal:
        assert await terminal.exited() == 0
    assert "WORKER" in terminal.text
    assert "…" not in terminal.text


# --- names that mean harm


def test_in_no_terminal_a_name_is_printed_escaped(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name + HOSTILE, HOSTILE, "-q", HOSTILE)
    for told in (fairlane("jobs", "-q", HOSTILE), fairlane("job", job_id), fairlane("queues"), fairlane("tenants")):
        assert ESCAPED in told.output
        assert "\u202e" not in told.output


async def test_on_a_terminal_too(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name + HOSTILE, HOSTILE)
    async with fairlane.terminal("jobs", "-t", name + HOSTILE, width=200) as terminal:
        assert await terminal.exited() == 0
    assert terminal.text.count(ESCAPED) == 2
    assert "\u202e" not in terminal.text


def test_json_is_escaped_as_json(fairlane: Fairlane, name: str) -> None:
    bad = "\u009b31m\u202e\x7f😀\ue000"
    fairlane.submit(name, "a", "--payload", json.dumps(bad))
    told = fairlane("jobs", "-t", name, "--json").output
    assert told.strip().isprintable()
    assert json.loads(told)["payload"] == bad


def test_what_a_worker_says_moves_no_cursor(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "a", "-q", name, "--max-attempts", "1")
    job = claim(fairlane, name, worker="w\u202e")
    report(fairlane, job, "fail", error="\x1b[2J\r\u0007first\nsecond\u202e")
    told = fairlane("job", job["id"]).output
    assert "error             \\x1b[2J\\r\\x07first\n                  second\\u202e\n" in told
    assert "worker            w\\u202e\n" in told


async def test_a_name_that_the_encoding_has_not_is_escaped(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "漢字 ä")
    async with fairlane.process("jobs", "-t", name, PYTHONIOENCODING="latin-1") as process:
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert "\\u6f22\\u5b57 ä" in out.decode("latin-1")


# --- one job


def test_a_job_is_shown_with_its_attempts(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "a", "-q", name, "--payload", '{"n": 1}', "--timeout", "60")
    report(fairlane, claim(fairlane, name), "release")
    report(fairlane, claim(fairlane, name), "complete", result={"passed": 3})
    told = fairlane("job", job_id).output
    for line in (
        f"id                {job_id}",
        "state             completed",
        f"tenant            {name}",
        "attempt           1 of 3",
        "timeout_sec       60 s",
        'payload           {"n":1}',
        'result            {"passed":3}',
    ):
        assert line + "\n" in told
    head, first, second = told.splitlines()[-3:]
    assert head.split() == ["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "ERROR"]
    assert first.split()[:2] == ["1", "released"]
    assert second.split()[:2] == ["2", "completed"]


def test_the_output_of_a_command_is_shown_as_it_was_printed(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "a", "-q", name)
    job = claim(fairlane, name)
    report(fairlane, job, "complete", result={"exit_code": 0, "output": "one\n  two\n"})
    assert (
        'result            {"exit_code":0}\noutput            one\n                    two\n'
        in fairlane("job", job["id"]).output
    )


def test_a_job_as_json_has_its_attempts(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "a", "-q", name)
    job = claim(fairlane, name)
    report(fairlane, job, "fail", error="no")
    [shown] = fairlane.json("job", job["id"])
    attempts = shown.pop("attempts")
    assert attempts == httpx.get(f"{fairlane.url}/jobs/{job['id']}/attempts").json()
    assert shown == httpx.get(f"{fairlane.url}/jobs/{job['id']}").json()


def test_an_id_may_be_written_as_postgres_shows_it(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name)
    assert job_id in fairlane("job", str(UUID(job_id)).upper()).output


def test_a_job_that_is_not_there(fairlane: Fairlane) -> None:
    assert "job not found" in fairlane("job", "0" * 32, code=3).output


@pytest.mark.parametrize("job_id", ["nonsense", "../stats", "", "0" * 31, "g" * 32])
def test_what_is_no_id(fairlane: Fairlane, job_id: str) -> None:
    assert "is no id of a job" in fairlane("job", job_id, code=2).output
