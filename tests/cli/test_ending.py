"""Jobs end: waited for, cancelled, tried again."""

from __future__ import annotations

import asyncio

from tests.cli.running import Fairlane
from tests.cli.test_looking import claim, report


def test_wait_says_how_each_job_ended_and_its_code_whether_all_is_well(fairlane: Fairlane, name: str) -> None:
    good = fairlane.submit(name, "a", "-q", name)
    report(fairlane, claim(fairlane, name), "complete")
    bad = fairlane.submit(name, "b", "-q", name)
    report(fairlane, claim(fairlane, name), "fail", error="no", retry=False)
    gone = fairlane.submit(name, "c", "-q", name)
    fairlane("cancel", gone)
    assert fairlane("wait", good).output == f"{good} completed\n"
    assert fairlane("wait", bad, code=1).output == f"{bad} failed\n"
    assert fairlane("wait", gone, good, code=1).output == f"{gone} cancelled\n{good} completed\n"
    assert fairlane.json("wait", good)[0]["state"] == "completed"


async def test_wait_waits(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "a", "-q", name)
    waiting = asyncio.create_task(asyncio.to_thread(fairlane, "wait", job_id))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    report(fairlane, claim(fairlane, name), "complete")
    assert (await waiting).output == f"{job_id} completed\n"


def test_wait_ends_when_its_time_is_up(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name)
    assert f"job {job_id} is still queued after 0.1 s" in fairlane("wait", job_id, "--timeout", "0.1", code=5).output


async def test_wait_on_a_terminal_shows_that_it_does(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name)
    async with fairlane.terminal("wait", job_id) as terminal:
        await terminal.shows(f"waiting for {job_id}")
        fairlane("cancel", job_id)
        assert await terminal.exited() == 1
    assert f"{job_id} cancelled" in terminal.text


def test_of_several_ids_those_that_can_be_cancelled_are(fairlane: Fairlane, name: str) -> None:
    done = fairlane.submit(name, "a", "-q", name)
    report(fairlane, claim(fairlane, name), "complete")
    waiting = fairlane.submit(name)
    result = fairlane("cancel", done, "0" * 32, waiting, waiting, code=4)
    assert result.stdout == f"{waiting} cancelled\n{waiting} cancelled\n"
    assert result.stderr == f"{done}: the job is completed already\n{'0' * 32}: job not found\n"


def test_all_jobs_of_a_tenant_are_cancelled_or_some(fairlane: Fairlane, name: str) -> None:
    for suite in ("a", "b"):
        fairlane.submit(name, suite, "-q", "linux")
        fairlane.submit(name, suite, "--delay", "3600")
    assert fairlane("cancel", "-t", name, "--suite", "a", "-q", "linux", "--yes").output == "1 cancelled\n"
    assert fairlane("cancel", "-t", name, "--state", "pending", "--yes").output == "2 cancelled\n"
    told = fairlane("cancel", "-t", name, stdin="y\n").output
    assert told == f"Cancel all unfinished jobs of {name}? [y/N]: y\n1 cancelled\n"
    assert "Aborted!" in fairlane("cancel", "-t", name, stdin="n\n", code=1).output
    assert "tenant not found" in fairlane("cancel", "-t", name + "x", "--yes", code=3).output


def test_ids_and_a_tenant_at_once_are_refused(fairlane: Fairlane, name: str) -> None:
    assert "either ids or --tenant" in fairlane("cancel", code=2).output
    assert "either ids or --tenant" in fairlane("cancel", "0" * 32, "-t", name, code=2).output
    assert "go with --tenant" in fairlane("cancel", "0" * 32, "--suite", "a", code=2).output


def test_retry_prints_the_new_jobs_ids(fairlane: Fairlane, name: str) -> None:
    old, waiting = fairlane.submit(name), fairlane.submit(name)
    fairlane("cancel", old)
    result = fairlane("retry", old, waiting, code=4)
    [new] = result.stdout.split()
    assert f"retry_of          {old}" in fairlane("job", new).output
    assert result.stderr.startswith(f"{waiting}: the job is queued")
