"""One run of a command, real processes throughout: what it is given, what is kept of it, and that nothing of its group
outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.runner.guard import Guard, guarding
from app.runner.process import Ended, run
from tests.cli.running import are_gone, until

DEAF = "trap '' TERM; "
"""A shell, and whatever it starts, that does not hear when it is asked to end."""


@pytest.fixture
def guard() -> Iterator[Guard]:
    with guarding(0.1) as made:
        yield made


async def _run(guard: Guard, *command: str, **options: Any) -> Ended:
    usual: dict[str, Any] = {"environ": dict(os.environ), "stdin": b"null", "timeout_sec": None, "kill_after_sec": 2.0}
    return await run(command, guard=guard, **usual | options)


def _python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


class Family:
    """A command with a child, and what became of them."""

    def __init__(self, folder: Path) -> None:
        self._pids = folder / "pids"

    def command(self, before: str = "", after: str = "wait") -> tuple[str, str, str]:
        """A shell that starts a child, writes down both ids, and goes on."""
        pids = str(self._pids)
        return "sh", "-c", f'{before} sleep 600 & echo "$$ $!" > {pids}.new; mv {pids}.new {pids}; {after}'

    async def is_there(self) -> None:
        await until(self._pids.exists)

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in self._pids.read_text().split()]


@pytest.fixture
async def family(tmp_path: Path) -> AsyncIterator[Family]:
    made = Family(tmp_path)
    yield made
    assert are_gone(made.pids)


async def test_it_is_given_its_arguments_its_environment_and_its_input(guard: Guard) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['X'], sys.stdin.read())"
    ended = await _run(guard, *_python(code), "a b", "", "$X", environ={"X": "{y}"}, stdin=b'{"n": 1}')
    assert ended.output == "['a b', '', '$X'] {y} {\"n\": 1}\n"
    assert (ended.code, ended.timed_out) == (0, False)
    assert 0 < ended.duration_sec < 30


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)])
async def test_its_exit_is_told(guard: Guard, code: str, expected: int) -> None:
    assert (await _run(guard, *_python(code))).code == expected


async def test_an_input_that_nobody_reads_is_no_trouble(guard: Guard) -> None:
    ended = await _run(guard, *_python("import os; os.close(0)"), stdin=b"x" * 1024 * 1024)
    assert ended.code == 0


async def test_of_much_output_the_end_is_kept_and_both_streams_in_their_order(guard: Guard) -> None:
    code = "import sys, os\nfor n in range(20_000): os.write(1 + n % 2, b'%d\\n' % n)"
    ended = await _run(guard, *_python(code))
    lines = ended.output.split()
    assert len(ended.output) == 4096
    assert lines[1:] == [str(n) for n in range(20_000 - len(lines) + 1, 20_000)]


async def test_a_program_that_is_not_there_is_an_error(guard: Guard) -> None:
    with pytest.raises(FileNotFoundError):
        await _run(guard, "/no/such/program")


async def test_a_timeout_ends_the_whole_group(guard: Guard, family: Family) -> None:
    ended = await _run(guard, *family.command(), timeout_sec=1.0)
    assert ended.timed_out
    assert ended.code == -signal.SIGTERM


async def test_whoever_does_not_hear_is_killed(guard: Guard, family: Family) -> None:
    ended = await _run(guard, *family.command(before=DEAF), timeout_sec=1.0, kill_after_sec=0.2)
    assert ended.code == -signal.SIGKILL


async def test_a_cancellation_ends_the_whole_group(guard: Guard, family: Family) -> None:
    running = asyncio.create_task(_run(guard, *family.command()))
    await family.is_there()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert are_gone(family.pids)


async def test_a_second_cancellation_kills_at_once(guard: Guard, family: Family) -> None:
    running = asyncio.create_task(_run(guard, *family.command(before=DEAF), kill_after_sec=3600.0))
    await family.is_there()
    running.cancel()
    await asyncio.wait({running}, timeout=0.1)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_is_left_behind_in_the_group_is_ended_with_it(guard: Guard, family: Family) -> None:
    ended = await _run(guard, *family.command(after="echo done"))
    assert (ended.code, ended.output) == (0, "done\n")
    assert are_gone(family.pids)


async def test_whoever_has_left_the_group_and_keeps_the_output_open_holds_nothing(guard: Guard) -> None:
    left = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    async with asyncio.timeout(20):
        ended = await _run(guard, *_python(left))
    pid = int(ended.output)
    assert not are_gone([pid])  # it asked for a session of its own, and is not ours any more
    os.kill(pid, signal.SIGKILL)


async def test_if_we_are_gone_the_guard_ends_what_we_left(family: Family) -> None:
    with guarding(0.2) as guard:
        process = await asyncio.create_subprocess_exec(*family.command(before=DEAF), start_new_session=True)
        guard.watch(process.pid)
        await family.is_there()
    await until(lambda: are_gone(family.pids))
    assert await process.wait() == -signal.SIGKILL


async def test_the_guard_leaves_alone_what_has_ended(family: Family) -> None:
    with guarding(0.2) as guard:
        process = await asyncio.create_subprocess_exec(*family.command(), start_new_session=True)
        guard.watch(process.pid)
        guard.forget(process.pid)
        await family.is_there()
    assert not are_gone(family.pids)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await until(lambda: are_gone(family.pids))
