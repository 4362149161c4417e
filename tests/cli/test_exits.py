"""How commands end when something is wrong: in words, with a code that a script can tell apart, and never with a
traceback."""

from __future__ import annotations

import asyncio
import shlex
import signal
from pathlib import Path

import pytest

from app.cli import main
from app.cli.exits import sentence_of
from app.client import DeadlineExceeded, Unavailable
from app.keys import Key
from tests.cli.running import PROGRAM, Fairlane, environ
from tests.databases import Database
from tests.served import PATIENCE_SEC, serving

ID = "0" * 32
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("submit", "-t", "acme", "-s", "x"),
    ("submit", "-"),
    ("jobs",),
    ("jobs", "--json"),
    ("job", ID),
    ("wait", ID),
    ("cancel", ID),
    ("cancel", "-t", "acme", "--yes"),
    ("retry", ID),
    ("tenants",),
    ("tenant", "set", "acme"),
    ("tenant", "load", "-"),
    ("queues",),
    ("pause", "linux"),
    ("resume", "linux"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_service_that_is_away_is_said_in_a_sentence(away: Fairlane, command: tuple[str, ...]) -> None:
    result = away(*command, "--patience", "0.2", stdin="", code=5)
    assert result.stderr.startswith("Error: ")
    assert away.url in result.stderr
    assert "--url or FAIRLANE_URL" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_service_that_is_away_until_the_time_is_up_is_said_alike(*, in_doubt: bool) -> None:
    late = DeadlineExceeded("the deadline has passed: it cannot be reached", in_doubt=in_doubt)
    late.__cause__ = Unavailable("it cannot be reached", in_doubt=in_doubt)
    told = sentence_of(late)
    assert told.startswith("the deadline has passed: it cannot be reached\n--url or FAIRLANE_URL says")
    assert ("it may have been done" in told) is in_doubt
    waited_in_vain = DeadlineExceeded("job 1 is still queued after 5 s", in_doubt=False)
    assert sentence_of(waited_in_vain) == "job 1 is still queued after 5 s"


def test_top_without_a_terminal_does_not_wait_for_it(away: Fairlane) -> None:
    assert "cannot be reached" in away("top", code=5).stderr


async def test_a_service_that_restarts_is_waited_for(sqlite_database: Database) -> None:
    async with serving(sqlite_database.url) as served:
        fairlane = Fairlane(served.url)
    looking = asyncio.create_task(asyncio.to_thread(fairlane, "queues", "--patience", str(PATIENCE_SEC)))
    async with serving(sqlite_database.url, port=fairlane.url.rpartition(":")[2]):
        assert "QUEUE" in (await looking).output


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://x:port", ""])
def test_an_address_that_is_none(url: str) -> None:
    assert "Error: --url: " in Fairlane("http://x")("jobs", "--url", url, code=2).output


def test_an_address_where_something_else_answers(fairlane: Fairlane) -> None:
    result = Fairlane(fairlane.url + "/nowhere")("jobs", code=3)
    assert "nothing is served at this path" in result.output


@pytest.mark.parametrize("command", ["{}", "keys {}", "jobs {}", "jobs --limit {}", "jobs --url {}", "report {}"])
def test_what_is_out_of_place_is_repeated_without_what_is_secret(away: Fairlane, command: str) -> None:
    told = away(*command.format("postgresql://me:secret@host/x").split(), code=2).output
    assert "postgresql://me:***@host/x" in told
    key = Key.new()
    assert key.secret not in away(*command.format(key.text).split(), code=2).output


@pytest.mark.parametrize("command", [name for name in main.commands if name not in ("tenant", "migrate")])
def test_every_command_has_help(away: Fairlane, command: str) -> None:
    told = away(command, "--help").output
    assert told.startswith(f"Usage: fairlane {command} ")
    assert max(map(len, told.splitlines())) <= 100


def test_the_help_of_all_is_in_sections_and_tells_the_codes(away: Fairlane) -> None:
    told = away("--help").output
    for words in ("Jobs:", "Tenants and queues:", "At work:", "The service:", "Exit codes:", "  5  not now"):
        assert words in told
    assert "..." not in told.replace("[ARGS]...", "")
    assert away(code=2).output == told


async def test_interrupted_while_it_waits(fairlane: Fairlane, name: str) -> None:
    job_id = fairlane.submit(name)
    async with fairlane.terminal("wait", job_id) as terminal:
        await terminal.shows("waiting for")
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.exited() == 130
    assert "Traceback" not in terminal.text


async def test_nobody_reads_its_output(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    for _ in range(3):
        fairlane.submit(name)
    script = f"({shlex.join(PROGRAM)} jobs --json; echo $? > {tmp_path}/code) | true"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, env=environ(fairlane.url), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_SEC):
        _, told = await process.communicate()
    assert told == b""
    assert await asyncio.to_thread((tmp_path / "code").read_text) == "141\n"
