"""What every peer's program is: it reads a command a line, does it with the peer it was given, and prints what came of
it as JSON. The peer does the work; this counts and takes the time."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

_SETTLE_SEC: Final = 1.0
_PAUSE_SEC: Final = 0.005
"""Between a job that was picked up and the next one, so that the worker is idle again."""

_PATIENCE_SEC: Final = 60.0
_FILLING_TASKS: Final = 32


class Peer(ABC):
    """One library on one database. `worked` is to be called by the work that its jobs are."""

    takes_many = True
    """Whether it has a call for many jobs at once."""

    def __init__(self) -> None:
        self.worked: Callable[[], None] = lambda: None

    @abstractmethod
    async def submit(self) -> None:
        """One job; it is committed when this returns."""

    async def submit_many(self, size: int) -> None:
        """So many jobs at once; they are committed when this returns."""
        raise NotImplementedError

    @abstractmethod
    async def drain(self, size: int) -> float:
        """Work until no job is left, taking up to `size` at a time where it can be told; when (`time.perf_counter`)
        the last one was committed as done."""

    @abstractmethod
    def worker(self) -> AbstractAsyncContextManager[None]:
        """A worker that waits for jobs, set up to begin soon."""


async def serve(peer: Peer) -> None:
    """Obey until there are no more commands."""
    _say({"takes_many": peer.takes_many})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        _say(await _COMMANDS[command.pop("do")](peer, **command))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def _submit(peer: Peer, size: int, tasks: int, sec: float) -> dict[str, Any]:
    """Jobs from so many tasks, each of which waits for its own; `size` at a time."""
    took: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()

    async def client() -> None:
        while (sent := time.perf_counter()) < began + sec:
            await (peer.submit() if size == 1 else peer.submit_many(size))
            took.append((time.perf_counter() - sent) * 1000)

    await asyncio.gather(*(client() for _ in range(tasks)))
    used = time.perf_counter() - began
    return {"jobs": size * len(took), "sec": used, "took_ms": took, "cpu_sec": time.process_time() - cpu}


async def _fill(peer: Peer, jobs: int) -> dict[str, Any]:
    """Have jobs wait."""
    if peer.takes_many:
        await peer.submit_many(jobs)
        return {}
    left = iter(range(jobs))

    async def client() -> None:
        for _ in left:
            await peer.submit()

    await asyncio.gather(*(client() for _ in range(_FILLING_TASKS)))
    return {}


async def _drain(peer: Peer, size: int) -> dict[str, Any]:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    peer.worked = count
    began, cpu = time.perf_counter(), time.process_time()
    ended = await peer.drain(size)
    return {"jobs": done, "began": began, "ended": ended, "cpu_sec": time.process_time() - cpu}


async def _pick_up(peer: Peer, times: int, sec: float) -> dict[str, Any]:
    """How long it takes from the call that submits until a worker that was idle begins."""
    took: list[float] = []
    news = asyncio.Event()
    peer.worked = news.set
    async with peer.worker():
        await asyncio.sleep(_SETTLE_SEC)
        until = time.perf_counter() + sec
        while len(took) < times and time.perf_counter() < until:
            await asyncio.sleep(_PAUSE_SEC)
            news.clear()
            sent = time.perf_counter()
            submitting = asyncio.ensure_future(peer.submit())
            async with asyncio.timeout(_PATIENCE_SEC):
                await news.wait()
            took.append((time.perf_counter() - sent) * 1000)
            await submitting
    return {"took_ms": took}


_COMMANDS: Final[dict[str, Callable[..., Awaitable[dict[str, Any]]]]] = {
    "submit": _submit,
    "fill": _fill,
    "drain": _drain,
    "pick_up": _pick_up,
}
