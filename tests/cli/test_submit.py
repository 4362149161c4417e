"""Jobs go in: one, or a file of them, and however often a file is sent, each of its lines is one job."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.cli import batches
from tests.cli.running import Fairlane
from tests.served import PATIENCE_SEC


def lines(tenant: str, suites: Iterable[object], **more: Any) -> str:
    """JSON lines, a job for each suite."""
    return "".join(json.dumps({"tenant": tenant, "test_suite": str(suite), **more}) + "\n" for suite in suites)


def suites_of(fairlane: Fairlane, tenant: str) -> list[str]:
    """What is stored for a tenant, oldest first."""
    return [job["test_suite"] for job in fairlane.json("jobs", "--tenant", tenant, "--all", "--oldest-first")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


# --- one job


def test_one_job_with_all_that_can_be_said_of_it(fairlane: Fairlane, name: str) -> None:
    [job] = fairlane.json(
        *("submit", "-t", name, "-s", "tests/login", "-p", "2", "-q", "linux", "--at", "2100-01-31T10:30:00+01:00"),
        *("--payload", '{"n": 12345678901234567890123}', "--cost", "7", "--max-attempts", "9", "--timeout", "60"),
    )
    assert (
        job
        | {
            "tenant": name,
            "test_suite": "tests/login",
            "priority": 2,
            "queue": "linux",
            "state": "pending",
            "run_at": "2100-01-31T09:30:00.000000Z",
            "cost": 7,
            "max_attempts": 9,
            "timeout_sec": 60,
        }
        == job
    )


def test_its_id_is_printed_alone(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "suite", "--delay", "3600")
    assert len(job_id) == 32
    assert fairlane.state(job_id) == "pending"


def test_the_same_key_submits_once(fairlane: Fairlane, name: str) -> None:
    assert fairlane.submit(name, "a", "--key", "k") == fairlane.submit(name, "a", "--key", "k")
    assert "was used before" in fairlane("submit", "-t", name, "-s", "b", "--key", "k", code=4).output


def test_a_payload_comes_from_a_file_or_from_stdin_too(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('["from a file"]')
    [job] = fairlane.json("submit", "-t", name, "-s", "a", "--payload", f"@{tmp_path}/p.json")
    assert job["payload"] == ["from a file"]
    [job] = fairlane.json("submit", "-t", name, "-s", "a", "--payload", "@-", stdin='"from stdin"')
    assert job["payload"] == "from stdin"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give --tenant and --suite"),
        (("-t", "acme"), "give --tenant and --suite"),
        (("-t", "acme", "-s", "x", "-p", "11"), "priority must be 0-10"),
        (("-t", "acme", "-s", "x", "-p", "11", "--cost", "0"), "cost must be 1-1000"),
        (("-t", "acme", "-s", "x", "-p", "high"), "'high' is not a valid integer"),
        (("-t", "acme", "-s", "x", "--at", "tomorrow"), "--at: 'tomorrow' is no time"),
        (("-t", "acme", "-s", "x", "--at", "2030-01-01T00:00:00"), "run_at must be a time with its offset"),
        (("-t", "acme", "-s", "x", "--payload", "{"), "--payload is no JSON"),
        (("-t", "acme", "-s", "x", "--payload", "@/no/such"), "--payload: /no/such: No such file"),
        (("-t", "acme", "-s", "x", "--ids"), "are for a file"),
        (("-", "--key", "k"), "a file takes --key-prefix"),
        (("/no/such.jsonl",), "No such file"),
    ],
)
def test_what_is_wrong_is_said(fairlane: Fairlane, arguments: tuple[str, ...], why: str) -> None:
    assert why in fairlane("submit", *arguments, code=2).output


# --- a file


def test_each_line_is_a_job_in_the_files_order(fairlane: Fairlane, name: str, file: Path) -> None:
    file.write_text(lines(name, range(3)) + "\n" + lines(name, range(3, 5)))
    assert fairlane("submit", str(file)).output == "5 jobs submitted\n"
    assert suites_of(fairlane, name) == ["0", "1", "2", "3", "4"]


def test_sent_again_nothing_is_stored_twice(fairlane: Fairlane, name: str, file: Path) -> None:
    file.write_text(lines(name, range(3)))
    first = fairlane("submit", str(file), "--ids").output
    assert fairlane("submit", str(file), "--ids").output == first
    told = "0 jobs submitted, 3 were stored before; another --key-prefix submits them anew\n"
    assert fairlane("submit", str(file)).output == told


def test_lines_that_are_mended_moved_or_added_do_not_store_the_others_twice(
    fairlane: Fairlane, name: str, file: Path
) -> None:
    file.write_text(lines(name, ["a", "b", "c"]))
    fairlane("submit", str(file))
    file.write_text(lines(name, ["c", "new", "a", "b2"]))
    assert fairlane("submit", str(file)).output == "2 jobs submitted, 2 were stored before\n"
    assert sorted(suites_of(fairlane, name)) == ["a", "b", "b2", "c", "new"]


def test_two_lines_alike_are_two_jobs(fairlane: Fairlane, name: str, file: Path) -> None:
    file.write_text(lines(name, ["same"] * 3))
    assert fairlane("submit", str(file)).output == "3 jobs submitted\n"
    assert len(set(fairlane("submit", str(file), "--ids").output.split())) == 3
    assert suites_of(fairlane, name) == ["same"] * 3


def test_another_file_and_another_prefix_are_other_jobs(fairlane: Fairlane, name: str, file: Path) -> None:
    for path in (file, file.with_name("other.jsonl")):
        path.write_text(lines(name, ["a"]))
        assert fairlane("submit", str(path)).output == "1 job submitted\n"
    assert fairlane("submit", str(file), "--key-prefix", "nightly-1").output == "1 job submitted\n"
    assert fairlane("submit", str(file), "--key-prefix", "nightly-1").output.startswith("0 jobs submitted, 1 was")


def test_options_say_what_lines_leave_out(fairlane: Fairlane, name: str, file: Path) -> None:
    file.write_text('{"test_suite": "a"}\n{"test_suite": "b", "priority": 9, "payload": 1}\n')
    jobs = fairlane.json("submit", str(file), "-t", name, "-p", "4", "--payload", '{"x": 12345678901234567890123}')
    assert [(job["tenant"], job["priority"]) for job in jobs] == [(name, 4), (name, 9)]
    assert [job["payload"] for job in jobs] == [{"x": 12345678901234567890123}, 1]


def test_a_line_may_bring_a_key_of_its_own(fairlane: Fairlane, name: str, file: Path) -> None:
    job_id = fairlane.submit(name, "a", "--key", "mine")
    file.write_text(lines(name, ["a"], idempotency_key="mine"))
    assert fairlane("submit", str(file), "--ids").output == job_id + "\n"


def test_bad_lines_are_named_and_nothing_is_sent(fairlane: Fairlane, name: str, file: Path) -> None:
    file.write_text(lines(name, ["good"]) + "\nnope\n[1]\n" + lines(name, ["x"], priority=11, colour=1) + '{"a": "\n')
    told = fairlane("submit", str(file), code=2).output
    assert f"nothing is submitted, for {file} is wrong" in told
    assert "  line 3: not a JSON object" in told
    assert "  line 4: not a JSON object" in told
    assert "  line 5: priority must be 0-10; colour is not taken here\n" in told
    assert "  line 6: not a JSON object" in told
    assert suites_of(fairlane, name) == []


def test_of_many_bad_lines_some_are_named(fairlane: Fairlane, file: Path) -> None:
    file.write_text("nope\n" * 100)
    told = fairlane("submit", str(file), code=2).output
    assert told.count("not a JSON object") == 20
    assert "and 80 more lines" in told


def test_no_lines_are_no_jobs(fairlane: Fairlane) -> None:
    assert fairlane("submit", "-", stdin="\n\n").output == "0 jobs submitted\n"


def test_a_batch_that_a_tenants_burst_cannot_hold_is_sent_in_parts(fairlane: Fairlane, name: str, file: Path) -> None:
    fairlane("tenant", "set", name, "--rate", "1000", "--burst", "3")
    file.write_text(lines(name, range(20)))
    assert fairlane("submit", str(file)).stdout == "20 jobs submitted\n"
    assert suites_of(fairlane, name) == [str(n) for n in range(20)]


def test_a_tenant_that_has_too_many_waiting_stops_it_and_it_says_where(
    fairlane: Fairlane, name: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_LINES", 2)
    fairlane("tenant", "set", name, "--max-queued", "4")
    file.write_text(lines(name, range(6)))
    told = fairlane("submit", str(file), "--patience", "3", code=5).output
    assert "lines 1 to 4 are stored; send the same again to go on, nothing is stored twice" in told
    fairlane("tenant", "set", name, "--max-queued", "none")
    assert fairlane("submit", str(file)).output == "2 jobs submitted, 4 were stored before\n"


async def test_from_a_pipe_what_comes_before_a_bad_line_is_stored(fairlane: Fairlane, name: str) -> None:
    async with fairlane.process("submit", "-") as process, asyncio.timeout(PATIENCE_SEC):
        given = lines(name, range(2)) + "nope\n" + lines(name, [9])
        out, told = await process.communicate(given.encode())
    assert (process.returncode, out) == (2, b"")
    assert "line 3: not a JSON object" in told.decode()
    assert "lines 1 to 2 are stored; send the same again with --key-prefix " in told.decode()
    assert suites_of(fairlane, name) == ["0", "1"]


async def test_killed_in_the_midst_and_sent_again_each_line_is_one_job(fairlane: Fairlane, name: str) -> None:
    given = lines(name, range(batches.MOST_LINES + 500))
    async with fairlane.process("submit", "-", "--ids", "--key-prefix", name) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given.encode())  # and no end of it: the second batch stays half full
        async with asyncio.timeout(PATIENCE_SEC):
            first = (await process.stdout.readline()).decode().strip()
        process.kill()
    told = (await asyncio.to_thread(fairlane, "submit", "-", "--key-prefix", name, stdin=given)).output
    assert told == f"500 jobs submitted, {batches.MOST_LINES} were stored before\n"
    assert suites_of(fairlane, name) == [str(n) for n in range(batches.MOST_LINES + 500)]
    assert fairlane.state(first) == "queued"


async def test_interrupted_it_says_how_to_go_on(fairlane: Fairlane, name: str) -> None:
    async with fairlane.process("submit", "-", "--ids") as process, asyncio.timeout(PATIENCE_SEC):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(name, range(batches.MOST_LINES + 1)).encode())
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
    assert process.returncode == 130
    assert f"interrupted\nlines 1 to {batches.MOST_LINES} are stored; send the same again with" in told.decode()


async def test_on_a_terminal_a_bar_grows(fairlane: Fairlane, name: str, file: Path) -> None:
    await asyncio.to_thread(file.write_text, lines(name, range(3)))
    async with fairlane.terminal("submit", str(file)) as terminal:
        assert await terminal.exited() == 0
    assert "submitting" in terminal.text
    assert "3/3" in terminal.text
    assert "3 jobs submitted" in terminal.text
