"""The examples of docs/command-line.md are run, one after the other, and print what the page says."""

from __future__ import annotations

import asyncio
import re
import shlex
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.running import PROGRAM, environ
from tests.databases import Database
from tests.served import PATIENCE_SEC, serving

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
EXAMPLE = re.compile(r"```sh\n(.*?)```\n```text\n(.*?)```\n", re.DOTALL)
DIFFERS = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"given up after \d+ tries"), "given up after <some> tries"),
    (re.compile(r"\[Errno \d+\]"), "[Errno <number>]"),
    (re.compile(r"\d+ s ago"), "<some> s ago"),
    (re.compile(r"^\[WORKER\].*\n", re.MULTILINE), ""),
    (re.compile(r"\(byte \d+\)|invalid character|expected 'null'"), "<malformed>"),
    (re.compile(r"\d+\.\d MB"), "<size> MB"),
    (re.compile(r"digest [0-9a-f]{16}"), "digest <digest>"),
    (re.compile(r"sqlite:///\S+/(\w+\.db)"), r"sqlite:///<folder>/\1"),
    (re.compile(r" +"), " "),
)


class Example(NamedTuple):
    """A script and what it prints."""

    script: str
    printed: str


def examples() -> Iterator[Example]:
    """Those of the page, in its order."""
    return (Example(*found) for found in EXAMPLE.findall(PAGE.read_text()))


def alike(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in DIFFERS:
        text = pattern.sub(instead, text)
    return text


async def test_the_examples_print_what_the_page_says(sqlite_database: Database, tmp_path: Path) -> None:
    await asyncio.to_thread(make_program, tmp_path)
    async with serving(sqlite_database.url) as served:
        variables = environ(served.url)
        variables["FAIRLANE_DATABASE_URL"] = sqlite_database.url
        variables["PATH"] = f"{tmp_path}/bin:{variables['PATH']}"
        for script, printed in await asyncio.to_thread(list, examples()):
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", script, cwd=tmp_path, env=variables, stdout=PIPE, stderr=STDOUT
            )
            async with asyncio.timeout(4 * PATIENCE_SEC):  # each of its lines starts a process
                out, _ = await process.communicate()
            assert alike(out.decode()) == alike(printed)


def make_program(folder: Path) -> None:
    """`fairlane`, as it is when it is installed."""
    program = folder / "bin" / "fairlane"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)


def test_there_are_examples() -> None:
    assert len(list(examples())) >= 8


def test_the_page_has_every_command() -> None:
    from app.cli import main

    page = PAGE.read_text()
    for command in main.commands:
        if command not in ("serve", "migrate", "config"):  # they are the operator's, and have a page of their own
            assert f"fairlane {command}" in page or f"`{command}" in page, command
