"""What a shell offers after Tab."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.shell_completion import ShellComplete

from app.cli import main
from tests.cli.running import PROGRAM, Fairlane, environ
from tests.served import PATIENCE_SEC

Offered: TypeAlias = Callable[[Fairlane, str], list[str]]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What is offered at the end of a line."""

    def offered(fairlane: Fairlane, line: str) -> list[str]:
        monkeypatch.setenv("FAIRLANE_URL", fairlane.url)
        *words, last = (shlex.split(line) + ([""] if line.endswith(" ") else []))[1:]
        found = ShellComplete(main, {}, "fairlane", "_FAIRLANE_COMPLETE").get_completions(words, last)
        return [item.value for item in found]

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(away: Fairlane, shell: str) -> None:
    script = away("completion", shell).output
    assert f"_FAIRLANE_COMPLETE={shell}_complete" in script
    assert "fairlane" in script


def test_another_shell_is_refused(away: Fairlane) -> None:
    assert "tcsh" in away("completion", "tcsh", code=2).output


async def test_the_script_works_in_a_real_bash(fairlane: Fairlane, tmp_path: Path) -> None:
    program = tmp_path / "fairlane"
    await asyncio.to_thread(program.write_text, f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    await asyncio.to_thread(program.chmod, 0o755)
    script = """
        eval "$(fairlane completion bash)"
        COMP_WORDS=(fairlane ten) COMP_CWORD=1
        _fairlane_completion fairlane
        echo "${COMPREPLY[@]}"
    """
    variables = environ(fairlane.url)
    variables["PATH"] = f"{tmp_path}:{variables['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script, env=variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_SEC):
        out, told = await process.communicate()
    assert (out, told) == (b"tenants tenant\n", b"")


def test_commands_and_options_are_offered(away: Fairlane, at: Offered) -> None:
    assert at(away, "fairlane ") == main.list_commands(None)  # type: ignore[arg-type] # it looks at none
    assert at(away, "fairlane jobs --oldest") == ["--oldest-first"]
    assert "running" in at(away, "fairlane jobs --state ")


def test_tenants_queues_and_ids_are_those_of_the_service(fairlane: Fairlane, name: str, at: Offered) -> None:
    job_id = fairlane.submit(name, "a", "-q", name + "-queue")
    assert at(fairlane, f"fairlane jobs --tenant {name}") == [name]
    assert at(fairlane, f"fairlane pause {name}") == [name + "-queue"]
    assert job_id in at(fairlane, "fairlane job ")


def test_names_that_a_shell_would_not_take_as_names_are_not_offered(fairlane: Fairlane, name: str, at: Offered) -> None:
    bad = ["$(reboot)", "`id`", "a b", ";id", "'", '"', "\\", "*", "~", "&", "|", ">x", "!", "#", "\u202e"]
    for each in bad:
        fairlane("tenant", "set", name + each)
    fairlane("tenant", "set", "-" + name, "--weight", "2", code=2)
    assert at(fairlane, f"fairlane tenants {name}") == []


def test_without_a_service_nothing_is_offered_and_nothing_said(away: Fairlane, at: Offered) -> None:
    assert at(away, "fairlane jobs --tenant ") == []
