"""Passes for the driver aiosqlite, without its threads: every call is handed to the world outside, which runs it on a
real SQLite file when it likes, or lets it fail. SQLAlchemy and all above it are the real ones."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from app.store.engine import Engines
from app.store.sqlite_driver import Gathered

Kind = Literal["connect", "BEGIN", "statement", "COMMIT", "ROLLBACK"]


@dataclass(eq=False)
class Call:
    """Something asked of a database and not answered yet."""

    connection: Connection
    kind: Kind
    sql: str
    run: Callable[[], Any]
    at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class World(Protocol):
    """Who decides what becomes of a call."""

    def ask(self, call: Call) -> None:
        """It will be answered."""


@dataclass(eq=False)
class Handle:
    """The file, open, and what this handle was told that stays so: its settings and functions."""

    raw: sqlite3.Connection
    told: set[object] = field(default_factory=set)


class Handles:
    """Those that nobody uses wait for whoever connects next, for to open the file is to read the schema anew and to
    prepare every statement again, which costs more than the statements do."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: dict[bool, list[Handle]] = {True: [], False: []}

    def take(self, *, is_reader: bool) -> Handle:
        """As good as new: a reader's cannot write, so each gets one of its own kind."""
        idle = self._idle[is_reader]
        return idle.pop() if idle else Handle(opened(self._path))

    def put_back(self, handle: Handle, *, is_reader: bool) -> None:
        """Whatever was not committed is lost."""
        handle.raw.rollback()
        self._idle[is_reader].append(handle)

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().raw.close()


def opened(path: Path) -> sqlite3.Connection:
    """Without a patience: nobody could let go while we waited."""
    return sqlite3.connect(path, isolation_level=None, timeout=0, cached_statements=512)


class Connection:
    """What SQLAlchemy takes for a connection of aiosqlite."""

    def __init__(self, world: World, handles: Handles, *, is_reader: bool) -> None:
        self._world = world
        self._handles = handles
        self.is_reader = is_reader
        self._handle: Handle | None = None
        self.cursors: list[sqlite3.Cursor] = []
        self.gathered: Gathered | None = None
        self._thread = SimpleNamespace()  # SQLAlchemy makes it a daemon
        self._tx = SimpleNamespace(put_nowait=_at_once)  # and sets the isolation level by the thread's inbox

    @property
    def _connection(self) -> sqlite3.Connection | None:
        return None if self._handle is None else self._handle.raw

    @property
    def _open_handle(self) -> Handle:
        if self._handle is None:
            raise sqlite3.OperationalError("no active connection")
        return self._handle

    @property
    def _conn(self) -> sqlite3.Connection:
        return self._open_handle.raw

    def __await__(self) -> Iterator[Any]:
        return self._opened().__await__()

    def cursor(self) -> Cursor:
        return Cursor(self)

    def gather(self, changing: int) -> Gathered:
        self.gathered = Gathered(changing)
        return self.gathered

    async def execute(self, sql: str, run: Callable[[sqlite3.Connection], Any]) -> Any:
        """Settings cost no turn, nor what only marks a transaction that reads: nobody could tell when it ran."""
        if sql.startswith("PRAGMA"):
            return run(self._conn) if self._is_news(sql) else None
        if self.is_reader and sql == "BEGIN":
            return run(self._conn)
        return await self._ask("BEGIN" if sql.startswith("BEGIN") else "statement", sql, run)

    async def create_function(self, name: str, arguments: int, *args: Any, **kw: Any) -> None:
        if self._is_news((name, arguments)):
            self._conn.create_function(name, arguments, *args, **kw)

    def _is_news(self, what: object) -> bool:
        """To tell it again changes nothing, but that SQLite prepares all its statements anew."""
        told = self._open_handle.told
        is_news = what not in told
        told.add(what)
        return is_news

    async def commit(self) -> None:
        gathered, self.gathered = self.gathered, None
        if self.is_reader:
            self._conn.commit()
        elif gathered is not None:
            await self._ask("COMMIT", "COMMIT", partial(gathered.commit, None))
        else:
            await self._ask("COMMIT", "COMMIT", sqlite3.Connection.commit)

    async def rollback(self) -> None:
        self.gathered = None
        if self._handle is not None and self._handle.raw.in_transaction:
            await self._ask("ROLLBACK", "ROLLBACK", sqlite3.Connection.rollback)

    async def close(self) -> None:
        self.cut()

    def stop(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Whatever was not committed is lost."""
        for cursor in self.cursors:
            cursor.close()  # or its statement would still be at work
        self.cursors.clear()
        if self._handle is not None:
            self._handles.put_back(self._handle, is_reader=self.is_reader)
            self._handle = None

    async def _opened(self) -> Connection:
        await self._ask("connect", "connect", None)
        return self

    async def _ask(self, kind: Kind, sql: str, run: Callable[[sqlite3.Connection], Any] | None) -> Any:
        call = Call(self, kind, sql, self._open if run is None else lambda: run(self._conn))
        self._world.ask(call)
        return await call.answer

    def _open(self) -> None:
        self._handle = self._handles.take(is_reader=self.is_reader)


class Cursor:
    """One statement."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: sqlite3.Cursor | None = None

    async def __aenter__(self) -> Cursor:
        return self

    @property
    def description(self) -> Any:
        return self._cursor and self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount if self._cursor else -1

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid if self._cursor else None

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        sql = "PRAGMA busy_timeout = 0" if "busy_timeout" in sql else sql
        await self._run(sql, lambda raw: raw.execute(sql, parameters))
        return self

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> Cursor:
        await self._run(sql, lambda raw: raw.executemany(sql, parameters))
        return self

    async def _run(self, sql: str, run: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> None:
        if self._connection.gathered is not None:
            self._connection.gathered.add(run)
            return

        def run_and_keep(raw: sqlite3.Connection) -> sqlite3.Cursor:
            self._connection.cursors.append(run(raw))
            return self._connection.cursors[-1]

        self._cursor = await self._connection.execute(sql, run_and_keep)

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall() if self._cursor else []

    async def fetchmany(self, size: int = 1) -> list[Any]:
        """Of what is read in slices; others come in between."""
        cursor = self._cursor
        rows: list[Any] = await self._connection.execute("fetch", lambda _raw: cursor.fetchmany(size) if cursor else [])
        return rows

    async def close(self) -> None:
        if self._cursor is not None and self._cursor in self._connection.cursors:
            self._connection.cursors.remove(self._cursor)
            self._cursor.close()


def _at_once(work: tuple[asyncio.Future[Any], Callable[[], Any]]) -> None:
    future, function = work
    future.set_result(function())


def simulated_driver(world: World, handles: Handles, engines: Engines) -> None:
    """From now on whoever connects by `engines` asks `world`, and gets one of `handles`."""
    for engine, is_reader in ((engines.reader, True), (engines.writer, False)):
        _connect_by(engine, partial(Connection, world, handles, is_reader=is_reader))


def _connect_by(engine: AsyncEngine, made: Callable[[], Connection]) -> None:
    def connect(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
        parameters["async_creator_fn"] = lambda *_args, **_kw: made()

    event.listen(engine.sync_engine, "do_connect", connect)
