"""beanstalkd, for whom it is only a yardstick: a queue in memory, in C, with a journal. Its own protocol over kept
connections, one command at a time on each; it has no command for many jobs. It syncs each write (`-f0`) before it
answers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from bench.payload import PAYLOAD
from bench.peers.program import Peer, serve

_CONNECTIONS: Final = 32
_WORKERS: Final = 8
_BODY: Final = json.dumps(PAYLOAD).encode()
_PUT: Final = b"put 0 0 3600 %d\r\n%s\r\n" % (len(_BODY), _BODY)
_RESERVE: Final = b"reserve\r\n"
_RESERVE_AT_ONCE: Final = b"reserve-with-timeout 0\r\n"


class Connection:
    """One kept connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def to(where: str) -> Connection:
        host, _, port = where.rpartition(":")
        return Connection(*await asyncio.open_connection(host, int(port)))

    async def ask(self, command: bytes) -> list[bytes]:
        """The words of the answer's first line."""
        self._writer.write(command)
        return (await self._reader.readline()).split()

    async def body(self, length: int) -> bytes:
        """What follows the first line."""
        return (await self._reader.readexactly(length + 2))[:-2]

    def close(self) -> None:
        self._writer.close()


class Beanstalkd(Peer):
    """The default tube."""

    takes_many = False

    def __init__(self, where: str, connections: list[Connection]) -> None:
        super().__init__()
        self._where = where
        self._all = connections
        self._free = asyncio.Queue[Connection]()
        for connection in connections:
            self._free.put_nowait(connection)

    async def submit(self) -> None:
        connection = await self._free.get()
        answer = await connection.ask(_PUT)
        self._free.put_nowait(connection)
        if answer[:1] != [b"INSERTED"]:
            raise RuntimeError(f"put: {answer}")

    async def drain(self, size: int) -> float:  # noqa: ARG002 - it takes one at a time
        await asyncio.gather(*(self._work(connection, _RESERVE_AT_ONCE) for connection in self._all[:_WORKERS]))
        return time.perf_counter()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        connection = await Connection.to(self._where)
        working = asyncio.create_task(self._work(connection, _RESERVE))
        yield
        working.cancel()
        await asyncio.wait([working])
        connection.close()  # what it has asked for would take the next job

    async def _work(self, connection: Connection, reserve: bytes) -> None:
        while (answer := await connection.ask(reserve))[:1] == [b"RESERVED"]:
            await connection.body(int(answer[2]))
            self.worked()
            if await connection.ask(b"delete %s\r\n" % answer[1]) != [b"DELETED"]:
                raise RuntimeError("a job that was reserved cannot be deleted")


async def main(where: str) -> None:
    """Serve commands on the server at host:port."""
    await serve(Beanstalkd(where, [await Connection.to(where) for _ in range(_CONNECTIONS)]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
