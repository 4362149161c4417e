"""aiosqlite with few hand-overs. Its own cursor is made, told to execute, asked for its rows and closed by four calls,
each of which wakes a thread and the loop again: most of what a small transaction costs. Here a statement is one, the
BEGIN goes with the first, and the last may all go with the COMMIT."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import aiosqlite

T = TypeVar("T")

_AT_ONCE: Final = 1000
"""Rows that come with the statement; a longer answer is fetched as it is wanted."""


def connect(path: str, **options: Any) -> Connection:
    """What SQLAlchemy awaits, in the place of `aiosqlite.connect`."""
    connection = Connection(partial(sqlite3.connect, path, **options), iter_chunk_size=_AT_ONCE)
    connection._thread.daemon = True  # noqa: SLF001 - as SQLAlchemy does with what aiosqlite gives it
    return connection


class Gathered:
    """Statements that are run with the COMMIT, and how many rows they must change in all."""

    def __init__(self, changing: int) -> None:
        self._changing = changing
        self._runs: list[Callable[[sqlite3.Connection], sqlite3.Cursor]] = []
        self.is_undone = False
        """Whether it has failed, and nothing of the transaction will ever be there."""

    def add(self, run: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> None:
        """The next statement."""
        self._runs.append(run)

    def commit(self, begin: str | None, driver: sqlite3.Connection) -> None:
        """Run them and commit, in the connection's thread. Raises `sqlite3.IntegrityError` if they change more rows or
        fewer."""
        try:
            if begin is not None:
                driver.execute(begin)
            self._run(driver)
        except Exception:
            driver.rollback()
            self.is_undone = True
            raise
        driver.commit()

    def _run(self, driver: sqlite3.Connection) -> None:
        changed = sum(run(driver).rowcount for run in self._runs)
        if changed != self._changing:
            raise sqlite3.IntegrityError(f"{changed} rows are as they were expected to be, of {self._changing}")


class Connection(aiosqlite.Connection):
    """A connection whose statements are run as a whole."""

    gathered: Gathered | None = None
    _begin: str | None = None

    def cursor(self) -> Cursor:  # type: ignore[override] # a cursor that is there at once, not one to be awaited
        return Cursor(self)

    def gather(self, changing: int) -> Gathered:
        """From now on run nothing until the commit, and then all of it."""
        self.gathered = Gathered(changing)
        return self.gathered

    def begin_late(self, sql: str) -> None:
        """Begin a transaction with the first statement in it."""
        self._begin = sql

    async def hand_over(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Make the call in the connection's thread; what came of it."""
        whole = call if self._begin is None else partial(self._begun, self._begin, call)
        done: T = await self._execute(whole, self._conn)  # type: ignore[no-untyped-call] # aiosqlite has it so
        return done

    async def commit(self) -> None:
        """Commit, if there is anything."""
        gathered, self.gathered = self.gathered, None
        if gathered is not None:
            begin, self._begin = self._begin, None
            await self.hand_over(partial(gathered.commit, begin))
        elif self._ends_what_has_begun():
            await super().commit()

    async def rollback(self) -> None:
        """Undo, if there is anything."""
        self.gathered = None
        if self._ends_what_has_begun():
            await super().rollback()

    def _begun(self, begin: str, call: Callable[[sqlite3.Connection], T], driver: sqlite3.Connection) -> T:
        driver.execute(begin)
        self._begin = None  # not before: what follows a BEGIN that failed must not run outside of a transaction
        return call(driver)

    def _ends_what_has_begun(self) -> bool:
        self._begin = None
        return self.in_transaction


def _run(sql: str, parameters: Sequence[Any], driver: sqlite3.Connection) -> tuple[sqlite3.Cursor, list[Any]]:
    """The statement and the first of its rows; all of them unless they are `_AT_ONCE`."""
    cursor = driver.execute(sql, parameters)
    return cursor, cursor.fetchmany(_AT_ONCE) if cursor.description else []


class Cursor:
    """One statement, as far as SQLAlchemy uses it."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: sqlite3.Cursor | None = None
        self._rows: list[Any] = []
        self._may_have_more = False

    async def __aenter__(self) -> Self:
        return self

    @property
    def description(self) -> Any:
        """As of `sqlite3`."""
        return self._cursor and self._cursor.description

    @property
    def rowcount(self) -> int:
        """As of `sqlite3`."""
        return self._cursor.rowcount if self._cursor else -1

    @property
    def lastrowid(self) -> int | None:
        """As of `sqlite3`."""
        return self._cursor.lastrowid if self._cursor else None

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Self:
        """Run the statement, now or with the commit."""
        if sql.startswith("BEGIN"):
            self._connection.begin_late(sql)
            return self
        if self._connection.gathered is not None:
            self._connection.gathered.add(lambda driver: driver.execute(sql, parameters))
            return self
        self._cursor, self._rows = await self._connection.hand_over(partial(_run, sql, parameters))
        self._may_have_more = len(self._rows) == _AT_ONCE
        return self

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> Self:
        """Run the statement once for each of `parameters`, now or with the commit."""
        if self._connection.gathered is not None:
            self._connection.gathered.add(lambda driver: driver.executemany(sql, parameters))
            return self
        self._cursor = await self._connection.hand_over(lambda driver: driver.executemany(sql, parameters))
        return self

    async def fetchall(self) -> list[Any]:
        """All rows that are left."""
        while self._may_have_more:
            await self._fetch_more()
        rows, self._rows = self._rows, []
        return rows

    async def fetchmany(self, size: int = 1) -> list[Any]:
        """The next rows; none if there are no more."""
        if self._may_have_more and len(self._rows) < size:
            await self._fetch_more()
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    async def close(self) -> None:
        """Give up what is left. A statement that has given its last row has nothing to give up."""
        if (cursor := self._cursor) is not None and self._may_have_more:
            self._may_have_more = False
            await self._connection.hand_over(lambda _: cursor.close())
        self._rows = []

    async def _fetch_more(self) -> None:
        if (cursor := self._cursor) is not None:
            more = await self._connection.hand_over(lambda _: cursor.fetchmany(_AT_ONCE))
            self._may_have_more = len(more) == _AT_ONCE
            self._rows += more
