"""Opens the database a URL names: one engine for the one writer, one for everybody who reads. Opening connects
to nothing yet; a URL nobody could connect to is refused at once, in words, and never with its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.errors import BadSettings
from app.store import sqlite_driver
from app.store.answers import Answers
from app.store.dialect import (
    HAS_SESSIONS,
    POSTGRES,
    SQLITE,
    SQLITE_BEGIN,
    end_in_time_on_sqlite,
    prepare_postgres,
    prepare_sqlite,
    refuse_old_sqlite,
    set_in_each_transaction,
)
from app.store.types import json_from_text

_SYNCHRONOUS: Final = {"full": "FULL", "normal": "NORMAL"}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the database may keep anyone waiting, in seconds. Past each the error is one that
    `is_unavailable` knows."""

    connect: float = 2.5
    command: float = 30.0
    pool: float = 10.0
    lock: float = 3.0
    idle: float = 5.0


@dataclass(frozen=True, slots=True)
class Engines:
    """The two ways to the database, and what is heard on each. `writer` has one connection; `reader` cannot write."""

    dialect: str
    writer: AsyncEngine
    reader: AsyncEngine
    writer_answers: Answers = field(default_factory=Answers)
    reader_answers: Answers = field(default_factory=Answers)

    def __post_init__(self) -> None:
        # Sending counts for the writer alone: of many readers one might go on asking where no other is answered.
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(self.writer.sync_engine, name, self.writer_answers.came)
        event.listen(self.reader.sync_engine, "after_cursor_execute", self.reader_answers.came)

    async def close(self) -> None:
        """Closes every connection; both engines, even if one of them fails to."""
        try:
            await self.writer.dispose()
        finally:
            await self.reader.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, as its driver wants to be told: a SQLite file, or a Postgres URL for asyncpg. `has_sessions`
    is false behind a pooler that gives each transaction another connection."""

    dialect: str
    target: str
    has_sessions: bool = True


def open_engines(url: str, *, synchronous: str = "full", readers: int = 5, timeouts: Timeouts | None = None) -> Engines:
    """The engines of the database that `url` names.

    `synchronous` is `full` or `normal`, for SQLite; `readers` is how many connections read at once. Raises
    `BadSettings` for what cannot be used; a server that is too old is refused by the first connection.
    """
    address = parse_url(url)
    if synchronous not in _SYNCHRONOUS:
        raise BadSettings(f"FAIRLANE_SQLITE_SYNCHRONOUS must be full or normal, not {synchronous!r}")
    wait = timeouts or Timeouts()
    if address.dialect == SQLITE:
        writer = _sqlite_engine(address, _sqlite_pragmas(synchronous, wait), "BEGIN IMMEDIATE", _pool(1, wait))
        reads = {**_sqlite_pragmas(synchronous, wait), "query_only": "ON"}
        return Engines(SQLITE, writer, _sqlite_engine(address, reads, "BEGIN", _pool(readers, wait)))
    holds = {
        "lock_timeout": _milliseconds(wait.lock),
        # A server does not notice at once that nobody is at the other end any more, and what is locked stays locked.
        "idle_in_transaction_session_timeout": _milliseconds(wait.idle),
        "plan_cache_mode": "force_generic_plan",  # it finds rows by their keys, whichever; and see `plan_anew`
    }
    looks = {
        "default_transaction_read_only": "on",
        # A plan takes 0.05 ms; one that is kept from when a table was small reads it whole when it is large.
        "plan_cache_mode": "force_custom_plan",
    }
    return Engines(
        POSTGRES,
        _postgres_engine(address, "fairlane writer", holds, wait, _pool(1, wait)),
        _postgres_engine(address, "fairlane reader", looks, wait, _pool(readers, wait)),
    )


def open_migrator(url: str) -> AsyncEngine:
    """An engine for migrations alone: on SQLite patient, and with foreign keys off, since rebuilding a table with them
    on deletes the rows that refer to it. On Postgres it waits but a moment for a lock, for whoever wants the table
    meanwhile waits behind it: less than a deadlock is looked for, and than a server at work waits."""
    address = parse_url(url)
    wait = Timeouts(command=3600.0, lock=60.0 if address.dialect == SQLITE else 0.8)
    if address.dialect == SQLITE:
        pragmas = {**_sqlite_pragmas("full", wait), "foreign_keys": "OFF"}
        return _sqlite_engine(address, pragmas, "BEGIN IMMEDIATE", {"poolclass": NullPool})
    locks = {"lock_timeout": _milliseconds(wait.lock)}
    return _postgres_engine(address, "fairlane migrate", locks, wait, {"poolclass": NullPool})


def open_reports(url: str, timeout_sec: float) -> AsyncEngine:
    """An engine for reports: it cannot write, not even make a file, and no statement of it runs longer than
    `timeout_sec`. Past that the error is one that `is_out_of_time` knows. Raises `BadSettings`."""
    address = parse_url(url)
    if address.dialect == SQLITE and not Path(address.target).exists():
        raise BadSettings(f"FAIRLANE_DATABASE_URL names the file {address.target}, which does not exist")
    wait = Timeouts(command=timeout_sec + 5)  # the server's own timeout comes first
    if address.dialect == SQLITE:
        engine = create_async_engine(
            URL.create(
                "sqlite+aiosqlite", database=f"file:{quote(address.target)}", query={"uri": "true", "mode": "ro"}
            ),
            connect_args={"async_creator_fn": sqlite_driver.connect},
            hide_parameters=True,
            poolclass=NullPool,
        )
        prepare_sqlite(engine, {"busy_timeout": _milliseconds(wait.lock), "query_only": "ON"})
        end_in_time_on_sqlite(engine, timeout_sec)
        return engine
    settings = {"default_transaction_read_only": "on", "statement_timeout": _milliseconds(timeout_sec)}
    return _postgres_engine(address, "fairlane report", settings, wait, {"poolclass": NullPool})


def parse_url(url: str, called: str = "FAIRLANE_DATABASE_URL") -> Address:
    """What a person wrote as `called`. Raises `BadSettings` without repeating a password."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in ("sqlite", "sqlite+aiosqlite"):
        return Address(SQLITE, _sqlite_file(url, called))
    if separator and scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        return _postgres_address(url, called)
    raise BadSettings(
        f"{called} must begin with sqlite:/// or postgresql://,"
        " as in sqlite:///fairlane.db or postgresql://user:password@host/fairlane"
    )


def _sqlite_file(url: str, called: str) -> str:
    _, _, rest = url.partition("://")
    file = rest.removeprefix("/")
    if not rest.startswith("/") or not file or ":memory:" in file or file.startswith("file:") or "?" in file:
        raise BadSettings(
            f"{called} must name a plain file, as in sqlite:///fairlane.db:"
            " a database in memory is lost with the process, and options after ? are not taken"
        )
    path = Path(file)
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise BadSettings(f"{called} names the file {file}, which {wrong}")
    if not _may_be_sqlite(path):
        raise BadSettings(f"{called} names the file {file}, which is no SQLite database")
    refuse_old_sqlite()
    return file


def _may_be_sqlite(path: Path) -> bool:
    """Whether it begins like one, or is still to become one. Whether we may read it, SQLite will say."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_BEGINS)) in (b"", _SQLITE_BEGINS)
    except OSError:
        return True


_SQLITE_BEGINS: Final = b"SQLite format 3\0"


def _postgres_address(url: str, called: str) -> Address:
    parts = _split(url, called)
    for host in parts.netloc.rpartition("@")[2].split(","):  # several each have a port of their own
        _refuse_no_host(_split(f"//{host}", called), called)
    # SQLAlchemy's users write ssl=, everybody else sslmode=.
    query = [("sslmode" if key == "ssl" else key, value) for key, value in parse_qsl(parts.query)]
    poolers = {value for key, value in parse_qsl(parts.query, keep_blank_values=True) if key == _POOLER}
    if not poolers <= {_BY_TRANSACTION}:
        raise BadSettings(f"{called} may say {_POOLER}={_BY_TRANSACTION} and nothing else of a pooler")
    rest = [each for each in query if each[0] != _POOLER]
    # Put together by hand: urlunsplit() leaves out the two slashes where there is no host, as with a socket.
    target = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(rest)}" if rest else "")
    return Address(POSTGRES, target, has_sessions=not poolers)


_POOLER: Final = "pooler"
_BY_TRANSACTION: Final = "transaction"


def _split(url: str, called: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise BadSettings(f"{called} has brackets around a host that is no IPv6 address") from None


def _refuse_no_host(parts: SplitResult, called: str) -> None:
    try:
        _ = parts.port
    except ValueError:
        raise BadSettings(f"{called} has a port that is not a number") from None
    if unquote(host := parts.hostname or "").startswith("/"):
        return  # a socket's folder
    try:
        host.encode("idna")
    except UnicodeError:
        raise BadSettings(f"{called} has a host that can be no name") from None


def _pool(size: int, wait: Timeouts) -> dict[str, Any]:
    return {"pool_size": size, "max_overflow": 0, "pool_timeout": wait.pool}


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


def _sqlite_pragmas(synchronous: str, wait: Timeouts) -> dict[str, str | int]:
    return {
        "busy_timeout": _milliseconds(wait.lock),  # first: switching to WAL may have to wait already
        "journal_mode": "WAL",
        "synchronous": _SYNCHRONOUS[synchronous],
        "foreign_keys": "ON",
        "recursive_triggers": "ON",  # so that REPLACE fires DELETE triggers
    }


def _sqlite_engine(address: Address, pragmas: dict[str, str | int], begin: str, pool: dict[str, Any]) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=address.target),
        connect_args={"async_creator_fn": sqlite_driver.connect},
        execution_options={SQLITE_BEGIN: begin},
        hide_parameters=True,
        **pool,
    )
    prepare_sqlite(engine, pragmas)
    return engine


_POSTGRES_SETTINGS: Final = {
    "TimeZone": "UTC",
    "jit": "off",  # small statements; and asyncpg's look at the types would be compiled
    "idle_in_transaction_session_timeout": "60000",  # a stuck process must not hold back vacuum
}


_NOTHING_KEPT: Final[dict[str, Any]] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": str,  # without a name it is gone with the next, wherever it was prepared
}
"""What the driver is told where the next transaction meets another connection."""


def _postgres_engine(
    address: Address, name: str, settings: dict[str, str], wait: Timeouts, pool: dict[str, Any]
) -> AsyncEngine:
    settings = {**_POSTGRES_SETTINGS, "application_name": name, **settings}
    engine = create_async_engine(
        # The URL goes to asyncpg as it is: it knows sslmode, several hosts and password files.
        "postgresql+asyncpg://",
        connect_args={
            "dsn": address.target,
            "timeout": wait.connect,
            "command_timeout": wait.command,
            **({"server_settings": settings} if address.has_sessions else _NOTHING_KEPT),
        },
        json_deserializer=json_from_text,
        execution_options={HAS_SESSIONS: address.has_sessions},
        hide_parameters=True,
        pool_pre_ping=True,  # an idle connection may have been killed at the other end
        **pool,
    )
    prepare_postgres(engine)
    if not address.has_sessions:
        set_in_each_transaction(engine, settings)
    return engine
