"""Everything SQLite and Postgres do differently, as a list of those differences. Statements elsewhere in
`store` are written once and run on both; what they cannot share, they call from here; many rows at once are a room of
their own, `many`, and so is how a transaction ends, `conclusion`. Knows no table but the counter of jobs."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

import asyncpg
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    ExceptionContext,
    Executable,
    Table,
    event,
    text,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType

from app.clock import to_micros
from app.errors import BadSettings
from app.store import sqlite_driver
from app.store.sqlite_driver import Gathered
from app.store.types import HexId, Moment, Whole

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"

OLDEST_SQLITE: Final = (3, 38)  # STRICT, RETURNING, UPDATE FROM, and JSON always built in
OLDEST_POSTGRES: Final = 15

# --- How a connection is made ready -------------------------------------------------------------------------

SQLITE_BEGIN: Final = "sqlite_begin"
"""The execution option that says how a transaction begins on SQLite. Writers take the lock at once: one that
reads first and then writes would fail with BUSY_SNAPSHOT however long the busy timeout is."""

FROZEN: Final[Mapping[str, Mapping[str, Any]]] = {SQLITE: {}, POSTGRES: {"isolation_level": "REPEATABLE READ"}}
"""The execution options of a transaction whose every statement sees the same. On SQLite each does."""


def refuse_old_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    if version < OLDEST_SQLITE:
        raise BadSettings(f"SQLite 3.38 or newer is needed, this Python brings {'.'.join(map(str, version))}")


def refuse_old_postgres(version: int) -> None:
    if version < OLDEST_POSTGRES:
        raise BadSettings(f"PostgreSQL 15 or newer is needed, the server is version {version}")


def prepare_sqlite(engine: AsyncEngine, pragmas: Mapping[str, str | int]) -> None:
    """Sets `pragmas` on every new connection and takes BEGIN out of the driver's hands into ours."""

    def connect(connection: Any, _record: object) -> None:
        # The driver's own BEGIN comes late, never before DDL, and is never IMMEDIATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma, value in pragmas.items():
            cursor.execute(f"PRAGMA {pragma} = {value}")
        cursor.close()

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(SQLITE_BEGIN, "BEGIN"))

    event.listen(engine.sync_engine, "connect", connect)
    event.listen(engine.sync_engine, "begin", begin)


def end_in_time_on_sqlite(engine: AsyncEngine, timeout_sec: float) -> None:
    """Ends what a connection is doing `timeout_sec` after it was made. Postgres has a setting for that."""

    def connect(connection: Any, _record: object) -> None:
        end = time.monotonic() + timeout_sec

        def is_over() -> bool:
            nonlocal end
            if time.monotonic() < end:
                return False
            end = math.inf  # what follows is to clean up, and must not be cut as well
            return True

        connection.run_async(lambda driver: driver.set_progress_handler(is_over, _STEPS_BETWEEN_LOOKS))

    event.listen(engine.sync_engine, "connect", connect)


_STEPS_BETWEEN_LOOKS: Final = 10_000  # of SQLite's machine; some milliseconds


def prepare_postgres(engine: AsyncEngine) -> None:
    """Refuses an old server, and a server that would acknowledge a commit before it is on disk. Hangs up without a
    word on what is no good any more."""

    def connect(connection: Any, _record: object) -> None:
        refuse_old_postgres(connection.driver_connection.get_server_version().major)
        cursor = connection.cursor()
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.close()
        connection.commit()

    def invalidate(connection: Any, _record: object, _error: object) -> None:
        connection.driver_connection.terminate()  # to take leave of a connection that may be dead takes seconds

    def look_at(failure: ExceptionContext) -> None:
        told = failure.original_exception.__cause__
        if isinstance(told, asyncpg.ClientConfigurationError):
            raise BadSettings(f"the database's address is wrong: {told}")
        if isinstance(told, asyncpg.InternalClientError):
            failure.is_disconnect = True
        _forget_values(failure)

    event.listen(engine.sync_engine, "connect", connect)
    event.listen(engine.sync_engine, "invalidate", invalidate)
    event.listen(engine.sync_engine, "handle_error", look_at)


def set_in_each_transaction(engine: AsyncEngine, settings: Mapping[str, str]) -> None:
    """Settings of Postgres, and what `prepare_postgres` holds against a commit that is not on disk, for connections
    that are another session with each transaction."""
    own = {name.removeprefix("default_"): value for name, value in settings.items()}  # not only of later ones
    local = [f"set_config('{name}', '{value}', true)" for name, value in own.items()]
    begun = f"SELECT {', '.join(local)}, CASE current_setting('synchronous_commit') WHEN 'off' THEN {_ON_DISK} END"
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql(begun))


_ON_DISK: Final = "set_config('synchronous_commit', 'on', true)"


HAS_SESSIONS: Final = "has_sessions"
"""The execution option of an engine of Postgres that says whether each transaction meets the session of the last."""


def _forget_values(failure: ExceptionContext) -> None:
    """Takes from an error what Postgres quotes in it: the whole row that broke a rule, with payloads and digests, or
    the value of a key. Errors are logged."""
    told = failure.original_exception.__cause__
    detail = getattr(told, "detail", None)
    if not detail:
        return
    told.detail = None  # type: ignore[union-attr] # it is one of asyncpg's, which have it
    for error in (failure.original_exception, failure.sqlalchemy_exception):
        if error is not None:
            error.args = tuple(part.replace(detail, "***") if isinstance(part, str) else part for part in error.args)


# --- What an error means ------------------------------------------------------------------------------------

_BUSY_OR_BROKEN_SQLITE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)

# The classes of SQLSTATEs, and some single ones, that a later try may not meet again.
_AWAY_ON_POSTGRES: Final = (
    "08",  # connection
    "28",  # not let in
    "3D000",  # no such database
    "25006",  # read only: a standby
    "40001",  # serialization
    "40P01",  # deadlock
    "53",  # connections, memory or disk used up
    "55P03",  # lock timeout
    "57",  # stopping, starting, crashed, cancelled by a timeout
    "58",  # disk errors
)


def violated_constraint(error: BaseException) -> str | None:
    """The name of the CHECK, trigger, key or foreign key that refused a write, the same on both engines.
    None where an engine gives none: NOT NULL, types, and SQLite's own foreign keys."""
    if not isinstance(error, DBAPIError) or error.orig is None:
        return None
    driver_error = error.driver_exception
    if isinstance(driver_error, asyncpg.PostgresError):
        return getattr(driver_error, "constraint_name", None)
    if isinstance(driver_error, sqlite3.IntegrityError):
        return _sqlite_constraint(driver_error)
    return None


def _sqlite_constraint(error: sqlite3.IntegrityError) -> str | None:
    message = str(error)
    kind, _, rest = message.partition(": ")
    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_CHECK:
        return rest
    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return kind  # ours say `name: sentence`
    # Keys have names on SQLite too, but it tells the columns: `UNIQUE constraint failed: jobs.tenant, jobs.id`.
    table = rest.partition(".")[0]
    if error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID):
        return f"pk_{table}"
    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
        return "_".join(["uq", table, *(column.partition(".")[2] for column in rest.split(", "))])
    return None


def is_out_of_time(error: BaseException) -> bool:
    """Whether a statement was ended because it took longer than it may."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return is_out_of_time(error.driver_exception)
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
    return isinstance(error, (asyncpg.QueryCanceledError, TimeoutError))


def is_forbidden(error: BaseException) -> bool:
    """Whether Postgres has refused something that the session's role has no right to."""
    return isinstance(error, DBAPIError) and isinstance(error.driver_exception, asyncpg.InsufficientPrivilegeError)


def is_held_up(error: BaseException) -> bool:
    """Whether Postgres has given up waiting for a lock that somebody else holds."""
    held_up = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
    return isinstance(error, DBAPIError) and isinstance(error.driver_exception, held_up)


def is_no_database(error: BaseException) -> bool:
    """Whether a SQLite file is something else, or broken."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return is_no_database(error.driver_exception)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def is_unavailable(error: BaseException) -> bool:
    """Whether the database is away, overloaded or full, rather than the statement wrong. What was being
    written may or may not be there."""
    if isinstance(error, (TimeoutError, OSError, PoolTimeout)):
        return True
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_unavailable(error.driver_exception))
    if isinstance(error, sqlite3.Error):
        # The low byte is the kind, the rest says more; an error of the driver's own carries no code.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _BUSY_OR_BROKEN_SQLITE
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_AWAY_ON_POSTGRES)
    # The driver's own: a connection that is closed, or was being ended by the server just as it was asked something;
    # not a value that it cannot encode.
    if isinstance(error, asyncpg.InternalClientError):
        return True
    return isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)


# --- What the words differ for ------------------------------------------------------------------------------


class now_by_default(FunctionElement[datetime]):  # noqa: N801 - it is written like an SQL function
    """The server's time, for rows that are typed by hand. Fairlane's own rows bring their times along."""

    inherit_cache = True
    type = Moment()


class database_time(FunctionElement[datetime]):  # noqa: N801
    """What the database's clock shows at this moment, be it in the middle of a transaction."""

    inherit_cache = True
    type = Moment()


class database_time_in(FunctionElement[datetime]):  # noqa: N801
    """What it will show in so many seconds, a decimal number."""

    inherit_cache = True
    type = Moment()


class new_id_by_default(FunctionElement[str]):  # noqa: N801
    """A random id, for rows that are typed by hand. Fairlane's own ids are UUIDv7."""

    inherit_cache = True
    type = HexId()


@compiles(now_by_default, "sqlite")
def _now_on_sqlite(_element: now_by_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'"


@compiles(now_by_default, "postgresql")
def _now_on_postgres(_element: now_by_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "now()"


@compiles(database_time, "sqlite")
def _time_on_sqlite(_element: database_time, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'"


@compiles(database_time, "postgresql")
def _time_on_postgres(_element: database_time, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "clock_timestamp()"  # now() is when the transaction began


@compiles(database_time_in, "sqlite")
def _time_in_on_sqlite(element: database_time_in, compiler: SQLCompiler, **kw: Any) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%f', 'now', {compiler.process(element.clauses, **kw)} || ' seconds') || '000Z'"


@compiles(database_time_in, "postgresql")
def _time_in_on_postgres(element: database_time_in, compiler: SQLCompiler, **kw: Any) -> str:
    return f"clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **kw)})"


@compiles(new_id_by_default, "sqlite")
def _new_id_on_sqlite(_element: new_id_by_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "lower(hex(randomblob(16)))"


@compiles(new_id_by_default, "postgresql")
def _new_id_on_postgres(_element: new_id_by_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "gen_random_uuid()"


class tested_only(FunctionElement[Any]):  # noqa: N801
    """A column or condition that rows are tested by, and that no index is looked up for.

    Without statistics SQLite takes `state = 'queued'` for the best way to find a row, however few rows the
    other conditions leave, and so does Postgres with statistics from when few were queued. Behind a unary plus, and as
    a condition that `IS TRUE`, it stays a test.
    """

    inherit_cache = True

    def __init__(self, tested: ColumnElement[Any]) -> None:
        super().__init__(tested if isinstance(tested, Column) else Grouping(tested))
        self.type = tested.type


@compiles(tested_only)
def _tested(element: tested_only, compiler: SQLCompiler, **kw: Any) -> str:
    tested = compiler.process(element.clauses, **kw)
    return f"{tested} IS TRUE" if isinstance(element.type, Boolean) else tested


@compiles(tested_only, "sqlite")
def _tested_on_sqlite(element: tested_only, compiler: SQLCompiler, **kw: Any) -> str:
    return f"+{compiler.process(element.clauses, **kw)}"


# --- Times in reports ---------------------------------------------------------------------------------------


class minute_of(FunctionElement[datetime]):  # noqa: N801
    """The beginning of the minute in which a moment lies."""

    inherit_cache = True
    type = Moment()


class micros_between(FunctionElement[int]):  # noqa: N801
    """From one moment to another, in whole microseconds: their sums are the same in any order, and on both engines."""

    inherit_cache = True
    type = Whole(64)


@compiles(minute_of, "sqlite")
def _minute_on_sqlite(element: minute_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(substr({compiler.process(element.clauses, **kw)}, 1, 16) || ':00.000000Z')"


@compiles(minute_of, "postgresql")
def _minute_on_postgres(element: minute_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"date_trunc('minute', {compiler.process(element.clauses, **kw)}, 'UTC')"


@compiles(micros_between, "sqlite")
def _micros_on_sqlite(element: micros_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(each, **kw) for each in element.clauses)
    # Without the fractions, which unixepoch() rounds, and of which julianday() loses half a millisecond.
    seconds = f"unixepoch(substr({end}, 1, 19)) - unixepoch(substr({begin}, 1, 19))"
    return f"(({seconds}) * 1000000 + substr({end}, 21, 6) - substr({begin}, 21, 6))"


@compiles(micros_between, "postgresql")
def _micros_on_postgres(element: micros_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(each, **kw) for each in element.clauses)
    return f"CAST(extract(epoch FROM ({end} - {begin})) * 1000000 AS BIGINT)"


# --- What a statement cannot say on both --------------------------------------------------------------------

Upsert: TypeAlias = postgresql.Insert | sqlite.Insert


def upsert(connection: AsyncConnection, table: Table, *, keys: Sequence[str], update: Sequence[str]) -> Upsert:
    """An INSERT that sets the columns in `update` where the key exists, and leaves the row alone if there are
    none. Not for `jobs` and `job_attempts`: on SQLite a trigger refuses a key that exists."""
    return upsert_on(connection.dialect.name, table, tuple(keys), tuple(update))


@lru_cache(maxsize=64)
def upsert_on(dialect: str, table: Table, keys: tuple[str, ...], update: tuple[str, ...]) -> Upsert:
    """`upsert`, for the engine of that name."""
    insert: Upsert = sqlite.insert(table) if dialect == SQLITE else postgresql.insert(table)
    if not update:
        return insert.on_conflict_do_nothing(index_elements=keys)
    return insert.on_conflict_do_update(index_elements=keys, set_={name: insert.excluded[name] for name in update})


async def draw_seqs(connection: AsyncConnection, count: int) -> list[int]:
    """The next `count` numbers of `jobs.seq`, growing. Nobody else is given them, hand-typed inserts included,
    and on Postgres not even if the transaction is rolled back."""
    if connection.dialect.name == POSTGRES:
        return sorted(await connection.scalar(_DRAW_ON_POSTGRES, {"count": count}) or ())
    # The last number AUTOINCREMENT gave. Moving it here, not only through the inserts that follow, keeps a second
    # draw in the same transaction from drawing the same numbers.
    moved = await connection.scalar(_MOVE_ON_SQLITE, {"count": count})
    last = moved or (await connection.scalar(_BEGIN_ON_SQLITE, {"count": count}))
    return list(range(last - count + 1, last + 1))


_DRAW_ON_POSTGRES: Final = text("SELECT array_agg(nextval('jobs_seq_seq')) FROM generate_series(1, :count)")

# AUTOINCREMENT too looks at both, its own record and the table: people empty the record to "reset" it.
_MOVE_ON_SQLITE: Final = text(
    "UPDATE sqlite_sequence SET seq = max(seq, (SELECT coalesce(max(seq), 0) FROM jobs)) + :count"
    " WHERE name = 'jobs' RETURNING seq"
)
_BEGIN_ON_SQLITE: Final = text(
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'jobs', coalesce(max(seq), 0) + :count FROM jobs RETURNING seq"
)


async def last_seq(connection: AsyncConnection) -> int:
    """The highest number of `jobs.seq` that was ever given out, or is in the table; 0 if there is none."""
    return int(await connection.scalar(_LAST_SEQ[connection.dialect.name]) or 0)


async def go_on_after(connection: AsyncConnection, seq: int) -> None:
    """Give out only numbers higher than `seq`, which is that of `last_seq` or higher."""
    if connection.dialect.name == POSTGRES:
        await connection.execute(_GO_ON_ON_POSTGRES, {"seq": seq})
        return
    await connection.execute(text("DELETE FROM sqlite_sequence WHERE name = 'jobs'"))
    await connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', :seq)"), {"seq": seq})


_LAST_SEQ: Final = {
    SQLITE: text(
        "SELECT max((SELECT coalesce(max(seq), 0) FROM jobs),"
        " (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs'))"
    ),
    POSTGRES: text(
        "SELECT greatest((SELECT max(seq) FROM jobs), (SELECT last_value FROM jobs_seq_seq WHERE is_called), 0)"
    ),
}
_GO_ON_ON_POSTGRES: Final = text("SELECT setval('jobs_seq_seq', greatest(:seq, 1), :seq > 0)")


async def end_what_stands_still(connection: AsyncConnection) -> None:
    """Have Postgres end the sessions that are called and owned like this one and have written in a transaction in which
    nothing has happened for a while. Its own timeouts pass over one that waits between two messages of a statement."""
    if connection.dialect.name == POSTGRES:
        await connection.execute(_END_WHAT_STANDS_STILL)


_END_WHAT_STANDS_STILL: Final = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = session_user AND application_name = current_setting('application_name')"
    " AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL"
    " AND state_change < clock_timestamp() - interval '0.5 seconds'"
)


async def learn_statistics(connection: AsyncConnection, tables: Sequence[Table]) -> None:
    """Let the planner see what has come in bulk. SQLite's is told once and for all, by the migrations."""
    if connection.dialect.name == POSTGRES:
        await connection.execute(text(f"ANALYZE {', '.join(table.name for table in tables)}"))


async def plan_anew(connection: AsyncConnection) -> None:
    """Let no statement of this connection be done any longer as seemed best while its tables were smaller. Postgres
    keeps its plans until statistics are taken: for a minute, and a hundred thousand jobs. SQLite's go by statistics
    that the migrations have told it once and for all."""
    if connection.dialect.name == POSTGRES:
        await connection.execute(_PLAN_ANEW)


_PLAN_ANEW: Final = text("DISCARD PLANS")


# --- Transactions in few exchanges ---------------------------------------------------------------------------


async def gather(connection: AsyncConnection, changing: int) -> Gathered:
    """On SQLite: run nothing more until the commit, and then all of it at once, if it changes exactly so many rows."""
    driver: sqlite_driver.Connection = (await connection.get_raw_connection()).driver_connection  # type: ignore[assignment]
    return driver.gather(changing)


async def can_execute_alone(connection: AsyncConnection) -> bool:
    """On Postgres: whether a statement may be a transaction of its own here. What the session was told must hold for
    it; and one that is lost with its connection leaves a doubt, so the connection must not be known to be lost."""
    raw = await connection.get_raw_connection()
    options = connection.sync_connection.get_execution_options() if connection.sync_connection else {}
    driver: asyncpg.Connection[Any] | None = raw.driver_connection
    return bool(options.get(HAS_SESSIONS)) and driver is not None and not driver.is_closed()


async def execute_alone(connection: AsyncConnection, statement: Executable, given: Mapping[str, Any]) -> None:
    """On Postgres: run a statement that is a transaction of its own, on a connection where none has begun yet."""
    adapter = (await connection.get_raw_connection()).dbapi_connection
    assert adapter is not None  # noqa: S101 - for the types: it is connected
    adapter.autocommit = True
    try:
        await connection.execute(statement, given)
    finally:
        adapter.autocommit = False


def is_undone(error: BaseException) -> bool:
    """Whether Postgres itself says that what it was asked has come to nothing. What somebody between says does not
    count."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated or error.orig is None:
        return False
    told = error.driver_exception
    return isinstance(told, asyncpg.PostgresError) and not (told.sqlstate or "").startswith(_NOT_SURE)


_NOT_SURE: Final = (
    "08",  # the connection
    "40003",  # "statement completion unknown"
    "57P",  # stopping, starting, crashed
    "58",  # the system it runs on
)


# --- Rows as the driver gives them --------------------------------------------------------------------------


def as_given(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column, whose values nobody is to look at on their way from the driver."""
    return type_coerce(column, NullType())


def _micros_of_text(text: str) -> int:
    return to_micros(datetime.fromisoformat(text))


MADE_OF: Final[Mapping[str, tuple[Callable[[Any], str], Callable[[Any], int]]]] = {
    SQLITE: (str, _micros_of_text),
    POSTGRES: (attrgetter("hex"), to_micros),
}
"""What makes 32 hex digits of an id, and whole microseconds of a time, as the driver gives them."""
