"""What a shell offers after Tab."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import pytest
from click.shell_completion import ShellComplete

from app.cli import main
from app.keys import Key
from tests.cli.running import PROGRAM, Fairlane, environ
from tests.databases import Database
from tests.served import PATIENCE_SEC, serving

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


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has pressed Tab waits for a slow machine."""
    for module in ("names", "keys"):
        monkeypatch.setattr(import_module(f"app.cli.{module}"), "PATIENCE_SEC", PATIENCE_SEC)


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


@pytest.mark.usefixtures("patient")
def test_tenants_queues_and_ids_are_those_of_the_service(fairlane: Fairlane, name: str, at: Offered) -> None:
    job_id = fairlane.submit(name, "a", "-q", name + "-queue")
    assert at(fairlane, f"fairlane jobs --tenant {name}") == [name]
    assert at(fairlane, f"fairlane pause {name}") == [name + "-queue"]
    assert job_id in at(fairlane, "fairlane job ")


@pytest.mark.usefixtures("patient")
def test_keys_are_those_that_can_be_taken_back(
    database: Database, at: Offered, away: Fairlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the database, as the command itself; also where it is named on the line."""
    monkeypatch.setenv("FAIRLANE_DATABASE_URL", database.url)
    ids = [made_key(away, name, "--role", "reader") for name in ("one", "two")]
    assert at(away, "fairlane keys revoke ") == ids
    assert at(away, f"fairlane keys revoke {ids[1]}") == [ids[1]]
    away("keys", "revoke", ids[0], "--database-url", database.url)
    monkeypatch.delenv("FAIRLANE_DATABASE_URL")
    assert at(away, f"fairlane keys revoke --database-url {database.url} ") == [ids[1]]


@pytest.mark.usefixtures("patient")
async def test_keys_of_a_service_are_asked_for_with_an_admins(
    sqlite_database: Database, at: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(sqlite_database.url) as served:
        there = Fairlane(served.url)
        made = there("keys", "create", "boss", "--role", "admin", "--url", served.url).stdout.strip()
    key = Key.read(made)
    assert key is not None
    async with serving(sqlite_database.url, keys="required") as served:
        line = f"fairlane keys revoke --url {served.url} "
        assert at(Fairlane(served.url), line) == []
        monkeypatch.setenv("FAIRLANE_KEY", made)
        assert at(Fairlane(served.url), line) == [key.id]


@pytest.mark.parametrize("contents", [None, b"no database " * 1000])
def test_to_look_for_keys_makes_no_database_and_says_nothing(
    away: Fairlane, at: Offered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, contents: bytes | None
) -> None:
    file = tmp_path / "fairlane.db"
    if contents is not None:
        file.write_bytes(contents)
    monkeypatch.setenv("FAIRLANE_DATABASE_URL", f"sqlite:///{file}")
    assert at(away, "fairlane keys revoke ") == []
    assert (file.read_bytes() if file.exists() else None) == contents


def made_key(fairlane: Fairlane, *arguments: str) -> str:
    """The id of a new key."""
    key = Key.read(fairlane("keys", "create", *arguments).stdout.strip())
    assert key is not None
    return key.id


def test_names_that_a_shell_would_not_take_as_names_are_not_offered(fairlane: Fairlane, name: str, at: Offered) -> None:
    bad = ["$(reboot)", "`id`", "a b", ";id", "'", '"', "\\", "*", "~", "&", "|", ">x", "!", "#", "\u202e"]
    for each in bad:
        fairlane("tenant", "set", name + each)
    fairlane("tenant", "set", "-" + name, "--weight", "2", code=2)
    assert at(fairlane, f"fairlane tenants {name}") == []


def test_without_a_service_nothing_is_offered_and_nothing_said(away: Fairlane, at: Offered) -> None:
    assert at(away, "fairlane jobs --tenant ") == []
    assert at(away, f"fairlane keys revoke --url {away.url} ") == []
