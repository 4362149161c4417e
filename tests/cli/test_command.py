"""A job becomes a command, and its end a result or a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.client import Context, GiveUp
from app.runner import Command, CommandFailed, Guard, Result, Template, fields_of, guarding, inherited_environ
from app.runner.junit import Counts
from tests.cli.jobs import a_job
from tests.cli.test_junit import OF_PYTEST


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with guarding(0.1) as made:
        yield made


class Commands:
    """Makes commands that share a guard, and runs them for made-up jobs."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def run(self, *arguments: str, job: dict[str, Any] | None = None, **options: Any) -> Result:
        templates = tuple(map(Template.parse, arguments))
        usual = {"fields": fields_of(templates), "environ": dict(os.environ)}
        command = Command(arguments=templates, guard=self._guard, **usual | options)
        return await command(Context(a_job(**job or {}), lambda _: None))

    async def python(self, code: str, *arguments: str, **options: Any) -> Result:
        return await self.run(sys.executable, "-c", code.replace("{", "{{").replace("}", "}}"), *arguments, **options)


@pytest.fixture
def commands(guard: Guard) -> Commands:
    return Commands(guard)


async def test_exit_code_0_is_a_result_with_what_was_printed(commands: Commands) -> None:
    result = await commands.run("echo", "{tenant}", "runs {test_suite}")
    assert (result.exit_code, result.output, result.tests) == (0, "acme runs tests/login\n", None)
    assert 0 <= result.duration_sec < 30


@pytest.mark.parametrize("value", ["a b", "", "*", "$(id)", "`id`", "; id", "'\"", "{tenant}", "-", "ä€😀", "--x=y"])
async def test_whatever_a_field_holds_it_is_one_argument(commands: Commands, value: str) -> None:
    show = "import sys; print(ascii(sys.argv[1:]))"
    result = await commands.python(show, "{test_suite}", "x", job={"test_suite": value}, allows_dash=True)
    assert result.output.strip() == ascii([value, "x"])


async def test_the_job_is_in_the_environment_and_its_payload_on_the_input(commands: Commands) -> None:
    code = "import os, sys; print({n: v for n, v in os.environ.items() if n.startswith('FAIRLANE')}, sys.stdin.read())"
    result = await commands.python(code, job={"payload": {"branch": "main"}, "attempt": 2}, environ={"PATH": "/bin"})
    expected = {
        "FAIRLANE_JOB_ID": "0" * 32,
        "FAIRLANE_TENANT": "acme",
        "FAIRLANE_TEST_SUITE": "tests/login",
        "FAIRLANE_QUEUE": "default",
        "FAIRLANE_PRIORITY": "2",
        "FAIRLANE_COST": "1",
        "FAIRLANE_ATTEMPT": "2",
        "FAIRLANE_MAX_ATTEMPTS": "3",
    }
    assert result.output.strip() == f'{expected} {{"branch":"main"}}'


def test_nothing_of_the_workers_own_settings_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("FAIRLANE_KEY", "FAIRLANE_DATABASE_URL"):
        monkeypatch.setenv(secret, "secret")
    assert "secret" not in inherited_environ().values()
    assert inherited_environ()["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("value", ["-k", "--co", "-", " -k"])
@pytest.mark.parametrize("place", ["{test_suite}", "--suite={test_suite}"])
async def test_a_field_that_looks_like_an_option_fails_the_job_for_good(
    commands: Commands, value: str, place: str
) -> None:
    with pytest.raises(GiveUp, match="test_suite begins with - and would be taken for an option"):
        await commands.run("echo", place, job={"test_suite": value})


async def test_a_field_that_is_not_used_may_look_like_anything(commands: Commands) -> None:
    assert (await commands.run("echo", "{tenant}", job={"test_suite": "-k"})).output == "acme\n"


@pytest.mark.parametrize(
    ("job", "why"),
    [({"test_suite": "a\0b"}, "test_suite holds NUL"), ({"test_suite": "x" * 3_000_000}, "too long")],
)
async def test_what_no_command_can_be_made_of_fails_for_good(commands: Commands, job: dict[str, Any], why: str) -> None:
    with pytest.raises(GiveUp, match=why):
        await commands.run("echo", "{test_suite}", job=job)


async def test_a_program_that_is_not_there_fails_for_now(commands: Commands) -> None:
    with pytest.raises(CommandFailed, match=r"cannot be run: .*No such file"):
        await commands.run("/no/such/program")


async def test_another_exit_code_fails_and_says_how_it_ended(commands: Commands) -> None:
    with pytest.raises(CommandFailed, match=r"(?s)^exit code 3 after \d+\.\d s\nlast words$"):
        await commands.run("sh", "-c", "echo last words; exit 3")


async def test_a_signal_fails_it_too(commands: Commands) -> None:
    with pytest.raises(CommandFailed, match=r"^ended by SIGKILL after"):
        await commands.run("sh", "-c", "kill -9 $$")


async def test_a_chosen_exit_code_says_not_to_try_again(commands: Commands) -> None:
    with pytest.raises(GiveUp, match="exit code 4"):
        await commands.run("sh", "-c", "exit 4", no_retry_codes=frozenset({4, 5}))
    with pytest.raises(CommandFailed, match="exit code 3"):
        await commands.run("sh", "-c", "exit 3", no_retry_codes=frozenset({4, 5}))


async def test_a_timeout_fails_it_whatever_it_exits_with(commands: Commands) -> None:
    ends_well = "trap 'echo bye; exit 0' TERM; sleep 600 & wait"
    with pytest.raises(CommandFailed, match=r"(?s)^timed out after 1 s\nbye$"):
        await commands.run("sh", "-c", ends_well, job={"timeout_sec": 1}, no_retry_codes=frozenset({0}))


async def test_an_error_keeps_the_end_of_the_output_and_fits_what_the_service_keeps(commands: Commands) -> None:
    with pytest.raises(CommandFailed) as failed:
        await commands.python("print('€' * 5000 + 'the end'); raise SystemExit(1)")
    text = str(failed.value)
    assert text.endswith("€the end")
    assert 4000 < len(text.encode()) <= 4096


async def test_the_counts_of_a_report_are_in_the_result(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "made.xml").write_text(OF_PYTEST)
    junit = Template.parse(f"{tmp_path}/{{id}}.xml")
    copy = f"cp {tmp_path}/made.xml {tmp_path}/$FAIRLANE_JOB_ID.xml"
    result = await commands.run("sh", "-c", copy, junit=junit)
    assert result.tests == Counts(tests=5, failures=1, errors=2, skipped=1)
    with pytest.raises(CommandFailed, match=r"^exit code 1 after .*; tests 5, failures 1, errors 2, skipped 1$"):
        await commands.run("sh", "-c", copy + "; exit 1", junit=junit)


async def test_an_old_report_is_not_taken_for_a_new_one(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "old.xml").write_text(OF_PYTEST)
    assert (await commands.run("true", junit=Template.of_literal(f"{tmp_path}/old.xml"))).tests is None
    assert not (tmp_path / "old.xml").exists()


async def test_a_report_that_cannot_be_read_harms_nothing(commands: Commands, tmp_path: Path) -> None:
    write = f"echo '<!DOCTYPE x><x/>' > {tmp_path}/x.xml"
    assert (await commands.run("sh", "-c", write, junit=Template.of_literal(f"{tmp_path}/x.xml"))).tests is None


async def test_an_old_report_that_cannot_be_removed_fails_the_job(commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="the old report cannot be removed"):
        await commands.run("true", junit=Template.of_literal(str(tmp_path)))
