"""Brings a database to the schema of this version, and says which schema it has. A run of migrations is one
transaction on both engines: all of it is there afterwards or none, and two runs at once wait for each other.
Beside its revision a database keeps which is the oldest version that may work on it, for versions that came before."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import app
from app.errors import BadSettings, NotServed, SchemaOutdated
from app.store import copies
from app.store.dialect import POSTGRES, SQLITE, is_held_up
from app.store.engine import Address, open_engines, open_migrator, parse_url
from app.store.schema import metadata, replicas

BASE: Final = "base"
"""The revision of a database in which nothing is."""

_LOCK: Final = 0x466169726C616E65  # "Fairlane", as the number of a Postgres advisory lock

_TRIES: Final = 25
_PAUSE_SEC: Final = 1.6  # in which those who have waited behind us come to their end

_VERSIONS: Final = "alembic_version"
_OLDEST: Final = "oldest_code"  # of Alembic's own table, so that whoever may read the revision may read this


class Kind(StrEnum):
    """Whether a migration only adds, and who works on the schema before goes on to, or takes away (CONTRIBUTING.md)."""

    EXPANDING = "expanding"
    CONTRACTING = "contracting"


@dataclass(frozen=True, slots=True)
class Step:
    """A migration, the revision of the oldest version that may work on what it makes, and the first release with it."""

    kind: Kind
    oldest_code: str
    release: str


@dataclass(frozen=True, slots=True)
class Status:
    """The revision a database has (None: nothing at all), the one it should have, and what lies between. Of a schema
    that is newer than ours, `oldest_code` is the revision of the oldest version that may work on it, if it says so."""

    current: str | None
    head: str
    pending: tuple[str, ...]
    oldest_code: str | None = None

    @property
    def is_newer(self) -> bool:
        """Whether the schema is one that this version does not know."""
        return self.current != self.head and not self.pending

    @property
    def is_usable(self) -> bool:
        """Whether this version may work on it: on its own, and on a newer one that lets it."""
        return self.current == self.head or (self.is_newer and self.oldest_code in _newest_first(_migrations()))


async def upgrade(url: str, revision: str = "head") -> None:
    """Applies every migration up to `revision`. Does nothing if they are applied, nor to a newer schema on which this
    version may work.

    Raises `BadSettings` if there are tables of the same names that are not ours, `SchemaOutdated`, also if a server is
    at work that could not go on.
    """

    async def work(connection: AsyncConnection) -> None:
        found = await connection.run_sync(_status_on)
        if found.is_newer:
            _refuse_unusable(found)
            return
        if found.current is not None and connection.dialect.name == POSTGRES:  # the lock on a file says it of SQLite
            await _refuse_to_give_up_who_is_at_work(connection, found)
        await _run(connection, lambda config: command.upgrade(config, revision))

    await _in_one_transaction(url, work)


async def _refuse_to_give_up_who_is_at_work(connection: AsyncConnection, found: Status) -> None:
    """A server goes on through a migration unless what it works by is taken away, be it that it only stands by."""
    steps = {revision: step_to(revision) for revision in found.pending}
    contracting = {revision: step for revision, step in steps.items() if step.kind is Kind.CONTRACTING}
    if not contracting:
        return
    at_work = await _at_work(connection)
    for revision, step in contracting.items():
        # Whoever works on the present schema knows nothing of what comes after it, whatever release it says it is of.
        is_too_new = step.oldest_code in steps
        given_up = [
            each for each in at_work if is_too_new or _is_before(each.release, step_to(step.oldest_code).release)
        ]
        if given_up:
            raise SchemaOutdated(
                f"{', '.join(map(str, given_up))} works on this database, or did a minute ago, and {revision} takes"
                " away what it needs: stop every server of an older version first"
            )


@dataclass(frozen=True, slots=True)
class _AtWork:
    """A server. None says of which release one is that is too old to say it."""

    name: str
    address: str
    release: str | None

    def __str__(self) -> str:
        return f"{self.name} (version {self.release or 'unknown'}, listening on {self.address})"


async def _at_work(connection: AsyncConnection) -> list[_AtWork]:
    """Who dispatches, and all that have said within a minute that they are there."""
    found = {}
    for name, address in await connection.execute(text(_DISPATCHES)):
        found[name] = _AtWork(name, address, None)
    if await connection.run_sync(lambda plain: inspect(plain).has_table(replicas.name)):
        for name, address, release in await connection.execute(text(_REGISTERED)):
            found[name] = _AtWork(name, address, release)
    return list(found.values())


_DISPATCHES: Final = "SELECT holder, address FROM dispatcher WHERE expires_at > clock_timestamp()"
_REGISTERED: Final = (
    "SELECT name, address, version FROM replicas WHERE last_seen_at > clock_timestamp() - interval '1 minute'"
    " ORDER BY started_at, name"
)


def _is_before(release: str | None, other: str) -> bool:
    """By the numbers that they begin with, as in 1.10.2."""
    return release is None or _numbers(release) < _numbers(other)


def _numbers(release: str) -> list[int]:
    found = _RELEASE.match(release)
    return [int(number) for number in found[0].split(".")] if found else []


_RELEASE: Final = re.compile(r"[0-9]+(\.[0-9]+)*")


async def downgrade(url: str, revision: str) -> None:
    """Takes back every migration after `revision`; `BASE` takes back all of them, and every row with them.

    Raises `NotServed` for half a copy and what was copied away: nothing would say any more that nobody may serve it.
    Raises `SchemaOutdated` for a schema that is newer than ours: only who has its migrations can take them back.
    """

    async def work(connection: AsyncConnection) -> None:
        _refuse_newer(await connection.run_sync(_status_on))
        if revision != BASE:
            await _refuse_to_forget_a_copy(connection)
        await _run(connection, lambda config: command.downgrade(config, revision))

    await _in_one_transaction(url, work)


async def _refuse_to_forget_a_copy(connection: AsyncConnection) -> None:
    if not await connection.run_sync(lambda plain: inspect(plain).has_table(copies.TABLE)):
        return
    try:
        await copies.require_servable(connection)
    except NotServed as error:
        raise NotServed(f"an older schema cannot say it, so it is not taken back: {error}") from error


async def status(url: str) -> Status:
    """Which schema the database has. Changes nothing; a SQLite file that is not there is not made."""
    address = parse_url(url)
    if _is_missing(address):
        return _status(None)
    async with open_engines(url) as engines:
        return await _status_of(engines.reader)


async def require_usable(engine: AsyncEngine) -> Status:
    """The schema that the database has. Raises `SchemaOutdated` unless it is this version's, or a newer one that says
    that this version may work on it."""
    found = await _status_of(engine)
    _refuse_unusable(found)
    return found


async def require_current(engine: AsyncEngine) -> None:
    """Raises `SchemaOutdated` unless the database has the schema this version was written for, for those who must know
    everything that is in it."""
    found = await _status_of(engine)
    _refuse_unusable(found)
    _refuse_newer(found)


def _refuse_unusable(found: Status) -> None:
    if found.pending:
        raise SchemaOutdated("the database's schema is older than this version's: run `fairlane migrate up`")
    if not found.is_usable:
        says = (
            f"takes a version of {found.oldest_code} or later" if found.oldest_code else "does not say it takes older"
        )
        raise SchemaOutdated(f"{_newer(found)} and {says}: run a newer version of Fairlane")


def _refuse_newer(found: Status) -> None:
    if found.is_newer:
        raise SchemaOutdated(
            f"{_newer(found)}, which knows only part of it: for this run the newer version of Fairlane"
        )


def _newer(found: Status) -> str:
    return f"the database's schema ({found.current}) is newer than this version's ({found.head})"


def migrate_within(connection: Connection, run: Callable[[], None]) -> None:
    """Runs migrations inside the transaction that is open on `connection`, alone among all who migrate."""
    if connection.dialect.name == POSTGRES:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    _refuse_tables_of_others(connection)
    run()
    _say_oldest_code(connection)
    if connection.dialect.name == SQLITE:
        _refuse_dangling(connection)


def _say_oldest_code(connection: Connection) -> None:
    """Said anew after each run, since a downgrade changes it too."""
    revision = _revision_on(connection)
    if revision is None:
        return
    if _OLDEST not in {column["name"] for column in inspect(connection).get_columns(_VERSIONS)}:
        connection.exec_driver_sql(f"ALTER TABLE {_VERSIONS} ADD COLUMN {_OLDEST} TEXT")
    said = text(f"UPDATE {_VERSIONS} SET {_OLDEST} = :oldest")  # noqa: S608 - our own names
    connection.execute(said, {"oldest": step_to(revision).oldest_code})


def _refuse_tables_of_others(connection: Connection) -> None:
    if _revision_on(connection) is not None:
        return
    if taken := sorted({*inspect(connection).get_table_names()} & {*metadata.tables}):
        raise BadSettings(
            f"the database has tables that Fairlane has not made ({', '.join(taken)}): give it a database of its own"
        )


def _refuse_dangling(connection: Connection) -> None:
    """What foreign keys, off during a migration, would have refused."""
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if dangling:
        table, rowid, parent, _ = dangling[0]
        raise SchemaOutdated(
            f"{len(dangling)} rows refer to rows that do not exist; the first is row {rowid} of {table},"
            f" which wants one in {parent}. Nothing was migrated"
        )


async def _in_one_transaction(url: str, work: Callable[[AsyncConnection], Awaitable[None]]) -> None:
    """All of it or nothing. What a lock on Postgres holds up is undone and tried again, for a minute."""
    engine = open_migrator(url)
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                async with engine.begin() as connection:
                    await work(connection)
            except DBAPIError as error:
                if not tries_left or not is_held_up(error):
                    raise
            else:
                return
            await asyncio.sleep(_PAUSE_SEC)
    finally:
        await engine.dispose()


async def _run(connection: AsyncConnection, run: Callable[[Config], None]) -> None:
    def run_on(plain: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = plain
        run(config)

    try:
        await connection.run_sync(run_on)
    except CommandError as error:
        raise SchemaOutdated(f"{error}; `fairlane migrate status` says where the database stands") from error


def alembic_config() -> Config:
    config = Config()
    # Alembic reads its options through configparser, to which a percent sign is a reference.
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    return config


def _migrations() -> Path:
    """Inside the package when it is installed, beside it in the repository."""
    package = Path(app.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _is_missing(address: Address) -> bool:
    return address.dialect == SQLITE and not Path(address.target).exists()


async def _status_of(engine: AsyncEngine) -> Status:
    async with engine.connect() as connection:
        return await connection.run_sync(_status_on)


def _status_on(connection: Connection) -> Status:
    found = _status(_revision_on(connection))
    return replace(found, oldest_code=_oldest_code_on(connection)) if found.is_newer else found


def _revision_on(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _oldest_code_on(connection: Connection) -> str | None:
    """None where it is not said, for whatever reason: before a version that says it, or by hand."""
    row = connection.exec_driver_sql(f"SELECT * FROM {_VERSIONS}").mappings().one()  # noqa: S608 - our own name
    return row.get(_OLDEST)


def _status(current: str | None) -> Status:
    newest_first = _newest_first(_migrations())
    # A revision that is not among ours is a newer version's, and misses none of them.
    missing = takewhile(lambda revision: revision != current, newest_first)
    pending = tuple(missing) if current is None or current in newest_first else ()
    return Status(current, newest_first[0], pending[::-1])


def step_to(revision: str) -> Step:
    """What the migration to `revision` says of itself."""
    script = ScriptDirectory.from_config(alembic_config()).get_revision(revision)
    return Step(Kind(script.module.kind), script.module.oldest_code, script.module.release)


@cache
def _newest_first(_folder: Path) -> tuple[str, ...]:
    return tuple(script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions())
