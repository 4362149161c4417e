"""Every call that a service makes to its database, counted, and one of them failing: before it is made, or once it is
made and its answer is lost. Connections are really cut and statements really refused; only SQLite, which has nobody in
between, is made to say what it says of a broken disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from app.flow.core import Core
from tests.databases import Kind


class Fault(NamedTuple):
    """`strike` gets the driver's connection, as SQLAlchemy wraps it, and the call; it raises. `refuse` is what a
    connection is refused with."""

    name: str
    strike: Callable[[Any, Callable[[], Any]], None]
    refuse: Callable[[], Exception]


class FailingCall:
    """The call at `place`, counted from 1 over all engines, fails. `met` says what it was, once it was made; `made` is
    how many there have been."""

    def __init__(self, place: int, fault: Fault) -> None:
        self.made = 0
        self._place = place
        self._fault = fault
        self.met: str | None = None

    def make(self, what: str, connection: Any, call: Callable[[], Any]) -> Any:
        """The call, or the fault in its place."""
        if not self._is_it(what):
            return call()
        self._fault.strike(connection, call)
        raise AssertionError(f"{self._fault.name} did not fail {what}")

    def connect(self, _connection: object, _record: object, _proxy: object) -> None:
        """Somebody wants a connection of the pool."""
        if self._is_it("connecting"):
            raise self._fault.refuse()

    def _is_it(self, what: str) -> bool:
        self.made += 1
        if self.made == self._place:
            self.met = what
        return self.made == self._place


@contextmanager
def failing_call(core: Core, place: int, fault: Fault) -> Iterator[FailingCall]:
    """The service's call at `place` from now on fails."""
    failing = FailingCall(place, fault)
    with ExitStack() as stack:
        for engine in (core.engines.writer, core.engines.reader):
            stack.enter_context(watched(engine, failing))
        yield failing


@contextmanager
def watched(engine: AsyncEngine, failing: FailingCall) -> Iterator[None]:
    """Every call that goes through this engine is counted, and may be the one."""
    dialect, pool = engine.sync_engine.dialect, engine.sync_engine.pool
    execute, execute_many = dialect.do_execute, dialect.do_executemany
    commit, roll_back, ping = dialect.do_commit, dialect.do_rollback, dialect.do_ping

    def executing(cursor: Any, statement: str, *rest: Any) -> None:
        failing.make(statement, cursor._adapt_connection, lambda: execute(cursor, statement, *rest))

    def executing_many(cursor: Any, statement: str, *rest: Any) -> None:
        failing.make(statement, cursor._adapt_connection, lambda: execute_many(cursor, statement, *rest))

    ours: Mapping[str, Callable[..., Any]] = {
        "do_execute": executing,
        "do_executemany": executing_many,
        "do_commit": lambda connection: failing.make("COMMIT", connection, lambda: commit(connection)),
        "do_rollback": lambda connection: failing.make("ROLLBACK", connection, lambda: roll_back(connection)),
        "do_ping": lambda connection: failing.make("ping", connection, lambda: ping(connection)),
    }
    for name, method in ours.items():
        setattr(dialect, name, method)
    event.listen(pool, "checkout", failing.connect)
    try:
        yield
    finally:
        event.remove(pool, "checkout", failing.connect)
        for name in ours:
            delattr(dialect, name)  # the method of the class is behind it


# --- Postgres ----------------------------------------------------------------------------------------------


def _cut_before(connection: Any, call: Callable[[], Any]) -> None:
    _cut(connection)
    call()
    _say(connection, "SELECT 1")  # where the driver had nothing to send


def _cut_after(connection: Any, call: Callable[[], Any]) -> None:
    call()
    _cut(connection)
    _say(connection, "SELECT 1")


def _cut(connection: Any) -> None:
    # Not asyncpg's own `terminate`, after which it stumbles over what it has thrown away itself.
    connection.driver_connection._transport.abort()


def _refused_before(connection: Any, _call: Callable[[], Any]) -> None:
    _say(connection, _DISK_FULL)


def _refused_after(connection: Any, call: Callable[[], Any]) -> None:
    if not connection.autocommit:  # there a refusal undoes what it is the answer to
        call()
    _say(connection, _DISK_FULL)


def _too_late(_connection: Any, call: Callable[[], Any]) -> None:
    call()
    raise TimeoutError  # as asyncpg says it


_DISK_FULL: Final = "DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$"


def _say(connection: Any, statement: str) -> None:
    connection.cursor().execute(statement)


# --- SQLite ------------------------------------------------------------------------------------------------


def _broken_before(_connection: Any, _call: Callable[[], Any]) -> None:
    raise _error("disk I/O error", sqlite3.SQLITE_IOERR)


def _broken_after(_connection: Any, call: Callable[[], Any]) -> None:
    call()
    raise _error("disk I/O error", sqlite3.SQLITE_IOERR)


def _full_and_rolled_back(connection: Any, _call: Callable[[], Any]) -> None:
    """With some errors SQLite ends the whole transaction by itself."""
    if connection.driver_connection.in_transaction:
        _say(connection, "ROLLBACK")
    raise _error("database or disk is full", sqlite3.SQLITE_FULL)


def _error(message: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


def _cannot_open() -> Exception:
    return _error("unable to open database file", sqlite3.SQLITE_CANTOPEN)


FAULTS: Final[Mapping[Kind, tuple[Fault, ...]]] = {
    "postgres": (
        Fault("cut before", _cut_before, ConnectionRefusedError),
        Fault("cut after", _cut_after, ConnectionRefusedError),
        Fault("refused before", _refused_before, ConnectionRefusedError),
        Fault("refused after", _refused_after, ConnectionRefusedError),
        Fault("too late", _too_late, TimeoutError),
    ),
    "sqlite": (
        Fault("broken before", _broken_before, _cannot_open),
        Fault("broken after", _broken_after, _cannot_open),
        Fault("full and rolled back", _full_and_rolled_back, _cannot_open),
    ),
}
