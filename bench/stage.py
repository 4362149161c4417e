"""What a part of the benchmarks plays on: fresh databases on one Postgres and one disk, services and peers on them,
and how long it may take."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.beanstalkd import PROGRAM as BEANSTALKD_PROGRAM
from bench.beanstalkd import beanstalkd
from bench.peers.process import PeerProcess, peer_process
from bench.served import NO_OP, Served, serving
from tests.databases import Database, Databases, PostgresDatabases, SqliteDatabases, own_postgres

SHOWN_AS: Final = {"postgres": "Fairlane on Postgres", "sqlite": "Fairlane on SQLite"}
NO_OP_SERVER: Final = "the same server, no database"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything: runs of `sec` seconds, each `rounds` times; jobs in batches of each of the `sizes`."""

    rounds: int = 3
    sec: float = 1.0
    clients: int = 32
    sizes: tuple[int, ...] = (100, 1000)
    drained: int = 15_000
    pickups: int = 200
    deep: int = 100_000
    blocks: int = 21
    block: int = 128
    idle: int = 10_000


@dataclass(frozen=True, slots=True)
class Known:
    """A peer that there is a program for; `drained` is how many jobs it works off in a second or two. `batches`: its
    workers can be told how many jobs to take at a time. `server`: it has one of its own, and uses no Postgres."""

    who: str
    module: str
    drained: int
    batches: bool = False
    server: Callable[[], AbstractAsyncContextManager[str]] | None = None


PYTHON_PEERS: Final = (
    Known("procrastinate", "procrastinate", 1_000),
    Known("pgqueuer", "pgqueuer", 10_000, batches=True),
    Known("SAQ", "saq", 1_000),
)
BEANSTALKD: Final = Known("beanstalkd, a sync each", "beanstalkd", 3_000, server=beanstalkd)
PEERS: Final = (*PYTHON_PEERS, *((BEANSTALKD,) if BEANSTALKD_PROGRAM else ()))


@dataclass(frozen=True, slots=True)
class Stage:
    """Databases of each kind, and the plan. `peers` are those that take part."""

    databases: dict[str, Databases]
    plan: Plan = field(default_factory=Plan)
    peers: tuple[Known, ...] = PEERS

    @asynccontextmanager
    async def database(self, kind: str, *, migrated: bool = True) -> AsyncIterator[Database]:
        """A database that nobody has used."""
        made = self.databases[kind]
        database = await asyncio.to_thread(made.create, migrated=migrated)
        try:
            yield database
        finally:
            await asyncio.to_thread(made.drop, database)

    @asynccontextmanager
    async def fairlane(self, kind: str) -> AsyncIterator[Served]:
        """The service, on a fresh database."""
        async with self.database(kind) as database, serving(database.url) as served:
            yield served

    @asynccontextmanager
    async def no_op(self) -> AsyncIterator[Served]:
        """The service that stores nothing."""
        async with self.database("sqlite") as database, serving(database.url, NO_OP) as served:
            yield served

    @asynccontextmanager
    async def peer(self, known: Known, processes: int = 1) -> AsyncIterator[list[PeerProcess]]:
        """So many processes of a peer on one fresh database, or one fresh server."""
        async with AsyncExitStack() as stack:
            if known.server:
                where = await stack.enter_async_context(known.server())
            else:
                where = (await stack.enter_async_context(self.database("postgres", migrated=False))).url
            yield [
                await stack.enter_async_context(peer_process(known.module, where, *arguments))
                for arguments in [["install"], *[[]] * (processes - 1)]
            ]


@contextmanager
def own_databases() -> Iterator[tuple[dict[str, Databases], Database]]:
    """Databases of each kind, and one on the Postgres that was started for them, whatever else the machine has."""
    with tempfile.TemporaryDirectory() as folder, own_postgres() as server:
        postgres = PostgresDatabases(server.get_uri())
        yield {"sqlite": SqliteDatabases(Path(folder)), "postgres": postgres}, postgres.create(migrated=False)
