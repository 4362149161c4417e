"""The service as its users run it: a process of its own, spoken to over TCP, ended by signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx

from tests.forked import Forked, fork

PROGRAM: Final = "from app.cli import main; main()"

PATIENCE_SEC = 30.0
"""Longer than anything here takes on a slow machine; a test that waits so long has failed."""


class Served:
    """A running `fairlane serve`. `events` are what it has logged so far, oldest first."""

    def __init__(self, process: Process | Forked) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self.text = ""
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    @property
    def url(self) -> str:
        """Where it listens."""
        [listening] = [event for event in self.events if event["event"] == "server_listening"]
        return f"http://{listening['host']}:{listening['port']}"

    def client(self, **options: Any) -> httpx.AsyncClient:
        """A client of its own connections."""
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SEC, **options)

    async def logged(self, name: str, matches: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """The first event of that name, waited for; fails if the process ends without it."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event["event"] == name and matches(event)]

        await self._until(lambda: bool(found()), name)
        return found()[0]

    async def printed(self, words: str) -> None:
        """Wait until its output has these words; fails if the process ends without them."""
        await self._until(lambda: words in self.text, words)

    async def _until(self, happened: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(PATIENCE_SEC), self._news:
            await self._news.wait_for(lambda: happened() or self._reader.done())
        assert happened(), f"the service ended without {what}:\n{self.text}"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def exited(self) -> int:
        """Its exit code, once it has ended and all its output is read."""
        async with asyncio.timeout(PATIENCE_SEC):
            code = await self.process.wait()
            await asyncio.wait({self._reader})  # who is cancelled here does not end it: it is waited for once more
        self._reader.result()
        return code

    async def kill(self) -> None:
        """End it the hard way, as a power cut or the kernel would."""
        self.signal(signal.SIGKILL)
        await self.exited()

    async def stop(self) -> int:
        """End it the polite way; its exit code."""
        self.signal(signal.SIGTERM)
        return await self.exited()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.text += line.decode()
            with suppress(ValueError):
                self.events.append(json.loads(line))
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


async def start(
    url: str, *, program: str | None = None, environment: Mapping[str, str] | None = None, **settings: object
) -> Served:
    """Start `fairlane serve` on a database and a free port, and wait for nothing. `program` is what Python runs in its
    place, from the beginning, and `environment` what it finds beside its settings."""
    variables = {"database_url": url, "port": 0, "log_format": "json", **settings}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    environ |= {"FAIRLANE_" + name.upper(): str(value) for name, value in variables.items()}
    if program is None and environment is None:
        return Served(await fork(environ, "serve"))
    environ |= environment or {}
    command = (sys.executable, "-c", program or PROGRAM, "serve")
    return Served(await asyncio.create_subprocess_exec(*command, env=environ, stdout=PIPE, stderr=STDOUT))


@asynccontextmanager
async def serving(url: str, **settings: Any) -> AsyncIterator[Served]:
    """A service that listens; whatever happens, it is gone in the end."""
    served = await start(url, **settings)
    try:
        if settings.get("log_format") == "console":
            await served.printed("[SERVER] listening on ")
        else:
            await served.logged("server_listening")
        yield served
    finally:
        await served.kill()


class Restarting:
    """A service on one address that is started again whenever it was killed, and requests that outlive that."""

    def __init__(self, database_url: str, **settings: object) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._database_url = database_url
        self._settings: dict[str, Any] = settings
        self._up = asyncio.Event()
        self.served: Served

    @property
    def url(self) -> str:
        """Where it listens, whenever it does."""
        return f"http://127.0.0.1:{self._port}"

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """The service for the duration of the block."""
        async with asyncio.TaskGroup() as group:  # a service that does not start ends the test
            turning = group.create_task(self._turn())
            await self._up.wait()
            yield
            turning.cancel()

    async def kill(self) -> None:
        """End the process that runs now; it is gone when this returns, and another one on its way."""
        self._up.clear()
        self.served.process.kill()
        await self.served.process.wait()

    async def post(self, client: httpx.AsyncClient, path: str, body: Any, **headers: str) -> Any:
        """The answer of a 2xx, asked for until the service gives it."""
        while True:
            await self._up.wait()
            try:
                answer = await client.post(self.url + path, json=body, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.05)  # between the kill and the moment in which it is noticed
                continue
            assert answer.is_success, (path, answer.status_code, answer.text)
            return answer.json()

    async def _turn(self) -> None:
        while True:
            async with serving(self._database_url, port=self._port, **self._settings) as self.served:
                self._up.set()
                await self.served.process.wait()
                self._up.clear()
