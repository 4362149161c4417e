"""`fairlane worker`, a process of its own with commands of its own: that it does jobs, and that nothing of them runs on
when it must not, however the worker or the job ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.runner import FIELDS, variable_of
from app.settings import read_settings
from tests.cli.running import Fairlane, are_gone, until
from tests.databases import Database
from tests.served import PATIENCE_SEC, serving

CLAIMS = "claims from"


@asynccontextmanager
async def working(fairlane: Fairlane, *arguments: str, **variables: str) -> AsyncIterator[Process]:
    """A worker that has begun to claim."""
    async with fairlane.process("worker", *arguments, **variables) as process:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_SEC):
            line = (await process.stderr.readline()).decode()
        assert CLAIMS in line, line
        yield process


async def says(process: Process, words: str) -> None:
    """Wait until it has these words on its standard error, from here on."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_SEC):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, f"it has ended and never said {words!r}"


async def ended(process: Process) -> int:
    async with asyncio.timeout(PATIENCE_SEC):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


class Command:
    """A command that runs until it is ended. Its id and its child's are in a file once both are there."""

    def __init__(self, folder: Path, before: str = "", after: str = "wait") -> None:
        self._pids = folder / "pids"
        self.text = f'{before} sleep 600 & echo "$$ $!" > {folder}/new; mv {folder}/new {self._pids}; {after}'

    async def has_begun(self) -> None:
        await until(self._pids.exists)

    @property
    def is_gone(self) -> bool:
        return are_gone(int(pid) for pid in self._pids.read_text().split())

    async def goes(self) -> None:
        await until(lambda: self.is_gone)

    def again(self) -> None:
        """Look for the next one that begins."""
        self._pids.unlink()


async def state_is(fairlane: Fairlane, job_id: str, state: str) -> None:
    await until(lambda: fairlane.state(job_id) == state, lambda: f"{state}, but {fairlane('job', job_id).output}")


async def test_from_the_submit_to_the_result_on_both_databases(database: Database, tmp_path: Path) -> None:
    suite = "a suite; $(touch broken) {id}"
    xml = "<testsuite><testcase/><testcase><skipped/></testcase></testsuite>"
    write = f"import sys, pathlib; pathlib.Path(sys.argv[1]).write_text({xml!r}); print(sys.argv[2:], sys.stdin.read())"
    command = ("python3", "-c", write, f"{tmp_path}/{{id}}.xml", "{tenant}", "{test_suite}")
    async with serving(database.url) as served:
        fairlane = Fairlane(served.url)
        good = fairlane.submit("acme", suite, "-q", "linux", "--payload", '{"n": [1]}')
        bad = fairlane.submit("acme", "-x", "-q", "linux")
        async with working(
            fairlane, "-q", "linux", "-c", "2", "--junit", f"{tmp_path}/{{id}}.xml", "--", *command
        ) as worker:
            assert (await asyncio.to_thread(fairlane, "wait", good)).output == f"{good} completed\n"
            assert (await asyncio.to_thread(fairlane, "wait", bad, code=1)).output == f"{bad} failed\n"
            worker.send_signal(signal.SIGTERM)
            assert await ended(worker) == 0
        [job] = fairlane.json("job", good)
        assert job["result"].pop("duration_sec") > 0
        assert job["result"] == {
            "exit_code": 0,
            "output": f"['acme', {suite!r}] {{\"n\":[1]}}\n",
            "tests": {"tests": 2, "failures": 0, "errors": 0, "skipped": 1},
        }
        [job] = fairlane.json("job", bad)
        assert (job["attempt"], job["max_attempts"]) == (1, 3)
        assert job["error"] == "test_suite begins with - and would be taken for an option: '-x'"


async def test_a_failure_is_tried_again_and_a_chosen_code_is_not(fairlane: Fairlane, name: str) -> None:
    again = fairlane.submit(name, "1", "-q", name, "--max-attempts", "50")
    never = fairlane.submit(name, "7", "-q", name)
    async with working(fairlane, "-q", name, "--no-retry-code", "7", "--shell", "--", 'exit "$FAIRLANE_TEST_SUITE"'):
        await state_is(fairlane, never, "failed")
        await until(lambda: "failed" in _outcomes(fairlane, again))
    [job] = fairlane.json("job", again)
    assert job["state"] != "failed"
    assert re.match(r"exit code 1 after \d+\.\d s$", job["error"])


def _outcomes(fairlane: Fairlane, job_id: str) -> list[str | None]:
    [job] = fairlane.json("job", job_id)
    return [attempt["outcome"] for attempt in job["attempts"]]


async def test_in_a_shell_a_field_is_a_variable_and_no_part_of_the_text(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "$(echo x); `id`", "-q", name)
    option = fairlane.submit(name, "-rf", "-q", name)
    text = """awk 'BEGIN { print "awk" }'; printf '%s' "$FAIRLANE_TEST_SUITE" | cat"""
    async with working(fairlane, "-q", name, "--shell", "--", text):
        await state_is(fairlane, job_id, "completed")
        await state_is(fairlane, option, "failed")
    assert fairlane.json("job", job_id)[0]["result"]["output"] == "awk\n$(echo x); `id`"


async def test_a_command_finds_the_service_and_no_key(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name, "suite", "-q", name)
    async with working(
        fairlane,
        "-q",
        name,
        "--",
        "sh",
        "-c",
        "echo $FAIRLANE_URL $FAIRLANE_JOB_ID $FAIRLANE_KEY",
        FAIRLANE_KEY="secret",
    ):
        await state_is(fairlane, job_id, "completed")
    assert fairlane.json("job", job_id)[0]["result"]["output"] == f"{fairlane.url} {job_id}\n"


async def test_told_to_end_it_lets_a_command_finish_within_the_grace(
    fairlane: Fairlane, name: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = Command(tmp_path, after=f"read line < {pipe}; kill $!")
    job_id, other = fairlane.submit(name, "suite", "-q", name), fairlane.submit(name, "suite", "-q", name)
    async with working(fairlane, "-q", name, "--shell", "--", command.text) as worker:
        await command.has_begun()
        worker.send_signal(signal.SIGTERM)
        await says(worker, "is told to end")
        await asyncio.to_thread(pipe.write_text, "go on\n")
        assert await ended(worker) == 0
    assert fairlane.state(job_id) == "completed"
    assert fairlane.state(other) == "queued"


async def test_after_the_grace_its_jobs_are_released_and_their_commands_gone(
    fairlane: Fairlane, name: str, tmp_path: Path
) -> None:
    command = Command(tmp_path)
    job_id = fairlane.submit(name, "suite", "-q", name)
    async with working(fairlane, "-q", name, "--grace", "0", "--shell", "--", command.text) as worker:
        await command.has_begun()
        worker.send_signal(signal.SIGTERM)
        assert await ended(worker) == 0
        assert command.is_gone
    [job] = fairlane.json("job", job_id)
    assert (job["state"], job["attempt"]) == ("queued", 0)
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["released"]


async def test_killed_it_takes_its_commands_with_it(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    command = Command(tmp_path, before="trap '' TERM;")
    job_id = fairlane.submit(name, "suite", "-q", name)
    async with working(
        fairlane, "-q", name, "--lease", "3", "--kill-after", "0.1", "--shell", "--", command.text
    ) as worker:
        await command.has_begun()
        worker.kill()
        await command.goes()
    await until(lambda: fairlane.json("job", job_id)[0]["error"] == "lease expired")
    assert fairlane.state(job_id) in ("pending", "queued")


async def test_a_cancelled_job_is_ended(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    command = Command(tmp_path)
    job_id = fairlane.submit(name, "suite", "-q", name)
    async with working(fairlane, "-q", name, "--lease", "3", "--shell", "--", command.text):
        await command.has_begun()
        fairlane("cancel", job_id)
        await command.goes()
    assert fairlane.state(job_id) == "cancelled"


async def test_a_job_that_times_out_is_ended(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    command = Command(tmp_path)
    job_id = fairlane.submit(name, "suite", "-q", name, "--timeout", "1", "--max-attempts", "1")
    async with working(fairlane, "-q", name, "--shell", "--", command.text):
        await command.has_begun()
        await command.goes()
        await state_is(fairlane, job_id, "failed")
    assert fairlane.json("job", job_id)[0]["error"].splitlines()[0] in (
        "timed out",
        "timed out after 1 s",
    )


async def test_if_the_service_is_away_for_a_leases_length_the_command_is_ended(
    sqlite_database: Database, name: str, tmp_path: Path
) -> None:
    command = Command(tmp_path)
    async with serving(sqlite_database.url) as served:
        fairlane = Fairlane(served.url)
        fairlane.submit(name, "suite", "-q", name)
        async with working(fairlane, "-q", name, "--lease", "3", "--shell", "--", command.text) as worker:
            await command.has_begun()
            await served.kill()
            await command.goes()
            assert worker.returncode is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--", "echo", "{suite}"), "{suite} is no placeholder here"),
        (("--", "{test_suite}"), "the program itself cannot come from a job"),
        (("--", "no-such-program-here"), "there is no such program here"),
        (("--shell", "--", "echo", "x"), "one argument"),
        (("--shell", "--", "echo {tenant}"), 'write "$FAIRLANE_TENANT" for {tenant}'),
        (("--junit", "{test_suite}.xml", "--", "true"), "--junit: {test_suite} is no placeholder here"),
        (("--junit", "x.xml", "-c", "2", "--", "true"), "there must be {id} in the path"),
        (("--no-retry-code", "0", "--", "true"), "--no-retry-code"),
        (("--kill-after", "10", "--", "true"), "--kill-after"),
        (("--url", "localhost:8080", "--", "true"), "is no address"),
        ((), "COMMAND"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(away: Fairlane, arguments: tuple[str, ...], why: str) -> None:
    assert why in away("worker", *arguments, code=2).output.replace("\n", " ")


async def test_a_name_that_the_service_refuses_ends_it(fairlane: Fairlane) -> None:
    async with fairlane.process("worker", "-q", "a/b", "--", "true") as worker, asyncio.timeout(PATIENCE_SEC):
        _, told = await worker.communicate()
    assert worker.returncode == 2
    assert "Error: queues" in told.decode()
    assert "Traceback" not in told.decode()


def test_the_variables_of_a_job_are_no_settings_of_a_service_that_the_job_starts() -> None:
    given = {variable_of(field): "x" for field in FIELDS} | {"FAIRLANE_URL": "x", "FAIRLANE_KEY": "x"}
    assert read_settings(given) == read_settings({})
