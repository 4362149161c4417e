"""What stands between a service and its Postgres, or its clients: it passes bytes on until a test lets it stall or
cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

Ends: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Reach: TypeAlias = Callable[[], Awaitable[Ends]]
"""Makes a connection to what stands behind."""


def _at_socket(path: Path) -> Reach:
    return lambda: asyncio.open_unix_connection(str(path))


Wanted: TypeAlias = Callable[[int], Awaitable[bool]]


async def anybody(_port: int) -> bool:
    """Whoever listens is wanted."""
    return True


def at_each_in_turn(ports: Sequence[int], is_wanted: Wanted = anybody) -> Reach:
    """Behind ports of the loopback address: each connection is one to the next of them that is wanted and takes it."""
    turns = count()

    async def reach() -> Ends:
        first = next(turns) % len(ports)
        for port in [*ports[first:], *ports[:first]]:  # each asks all: some connect at the same time
            if not await is_wanted(port):
                continue
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError

    return reach


class Relay:
    """One connection. Once `is_stranded`, what has not come through never will."""

    def __init__(self, passes: asyncio.Event, reach: Reach) -> None:
        self._passes = passes
        self._reach = reach
        self.is_stranded = False

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until both of its ends have said all, one has gone, or it is cut."""
        ends = [writer]
        try:
            await self._pass()
            far_reader, far_writer = await self._reach()
            ends.append(far_writer)
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
            for end in ends:  # what is still on its way arrives
                end.close()
                await end.wait_closed()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
                with suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._pass()
            writer.write(data)
            await writer.drain()
        await self._pass()
        writer.write_eof()

    async def _pass(self) -> None:
        await self._passes.wait()
        if self.is_stranded:
            await asyncio.Event().wait()


class Proxy:
    """Listens on the loopback address and passes each connection on to what stands behind, a socket's file for one."""

    def __init__(self, behind: Path | Reach) -> None:
        self._reach = _at_socket(behind) if isinstance(behind, Path) else behind
        self._refuses = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._relays: dict[Relay, asyncio.Task[None]] = {}
        self._server: asyncio.Server

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stall(self) -> None:
        """Connections are taken, and so is what is sent; nothing comes out at the other end."""
        self._passes.clear()

    def heal(self, *, strand: bool) -> None:
        """New connections are served again. What has stalled flows on; or it does not, and the server does not learn
        that nobody is at the other end any more."""
        for relay in self._relays:
            relay.is_stranded = strand
        self._refuses = False
        self._passes.set()

    async def cut(self) -> None:
        """Every connection is reset, at both ends."""
        for task in self._relays.values():
            task.cancel()
        await asyncio.gather(*self._relays.values(), return_exceptions=True)

    async def refuse(self) -> None:
        """Every connection is reset, and so is each new one."""
        self._refuses = True
        await self.cut()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """It listens while the block lasts."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield
        finally:
            self._server.close()
            await self.cut()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        relay = Relay(self._passes, self._reach)
        task = asyncio.create_task(relay.run(reader, writer))
        self._relays[relay] = task

        def ended(_: asyncio.Task[None]) -> None:
            self._relays.pop(relay)
            writer.transport.abort()  # one that is cut before it begins does nothing itself

        task.add_done_callback(ended)
