"""Moving house: a whole service, with the order of what is queued, from one database into an empty one of either kind.

Neither side is served meanwhile. Each portion is written in one transaction with how far it came, so a copy that was
cut, whenever it was, goes on where it stood; it is finished when both sides have been read once more and are the same.
From its first step on FROM is marked, so that nobody serves by mistake what has moved away."""

from __future__ import annotations

import asyncio
import stat
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.clock import Clock, rfc3339
from app.errors import AnotherDispatcher, BadSettings, DispatchLost, SchemaOutdated
from app.events import DispatcherAwaited, Event
from app.settings import without_password
from app.store import copies, dialect, migrate
from app.store.copied_rows import COPIED, TABLES, CopiedTable, NoCopy, words_of
from app.store.copies import Direction, Mark, Position
from app.store.dispatcher import FOR_A_COPY, Dispatcher, clock_of, read_holder, sole_owner
from app.store.engine import Address, Engines, Timeouts, open_engines, parse_url
from app.store.sameness import Digest
from app.store.schema import queues, rollups

_PATIENCE: Final = Timeouts(command=3600.0, pool=120.0, lock=30.0)
_WHERE: Final = frozenset({"host", "port", "user", "dbname", "database"})
"""What an address may say behind its question mark of where a Postgres is."""
_NOBODYS: Final = (queues, rollups)
"""What has rows in an empty database too: the queue that a migration makes, and how far nothing was rolled up."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is being done: `done` rows `of` so many of a table; or nothing but waiting, if there is no table."""

    doing: str
    table: str = ""
    done: int = 0
    of: int = 0


Tell = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy. `digests` are those of the tables, in the order in which they were copied; None if it was
    finished before this call, at `finished_at`."""

    source: str
    target: str
    finished_at: datetime
    digests: dict[str, Digest] | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A database as a person named it."""

    called: str
    url: str
    address: Address

    @classmethod
    def of(cls, called: str, url: str) -> _Place:
        return cls(called, url, parse_url(url, called))

    @property
    def shown(self) -> str:
        """Where it is, for people; nothing of it is secret."""
        if self.address.dialect == dialect.SQLITE:
            return f"sqlite:///{Path(self.address.target).resolve()}"
        address, _, options = without_password(self.url).partition("?")
        where = urlencode([(key, value) for key, value in parse_qsl(options) if key in _WHERE], safe="/:,")
        return f"{address}?{where}" if where else address

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that is not there."""
        return self.address.dialect == dialect.SQLITE and not Path(self.address.target).exists()

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Which database it is that cannot be used; a copy has two. Raises `NoCopy`."""
        name = f"{self.called}, {self.shown},"
        try:
            yield
        except AnotherDispatcher as error:
            raise NoCopy(f"{name} is in use by {error.holder}, listening on {error.address}: stop it first") from error
        except DispatchLost as error:
            raise NoCopy(f"{name} was taken over by another server; run the same command again to go on") from error
        except (BadSettings, SchemaOutdated) as error:
            raise NoCopy(f"{name} cannot be used: {error}") from error
        except Exception as error:
            if not dialect.is_unavailable(error):
                raise
            why = words_of(error)
            raise NoCopy(f"{name} cannot be read or written: {why}; run the same command again to go on") from error


@dataclass(frozen=True, slots=True)
class _Side:
    """A database that is ours for the time being."""

    place: _Place
    engines: Engines
    dispatcher: Dispatcher
    clock: Clock

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Write, as long as nobody else has taken it."""
        with self.place.naming():
            async with self.engines.writer.begin() as connection:
                await self.dispatcher.prove(connection, self.clock.now())
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Look."""
        with self.place.naming():
            async with self.engines.reader.connect() as connection:
                yield connection

    async def marks(self) -> dict[Direction, Mark]:
        async with self.reading() as connection:
            return dict(await copies.marks(connection))


async def copy(source_url: str, target_url: str, tell: Tell) -> Copied:
    """Copy the service in the database `source_url` into the empty one `target_url`, or go on with a copy of it.

    Raises `NoCopy`, `BadSettings`.
    """
    source, target = _Place.of("FROM", source_url), _Place.of("TO", target_url)
    _refuse_one_place(source, target)
    if done := await _finished_before(source, target):
        return done
    clock = await _clock_of(target, source)  # one for both: what it gives out is later than what either was ever given
    async with _holding(source, clock, tell) as here:
        with target.naming():
            _make_alike(source, target)
            if (await migrate.status(target.url)).current is None:
                await migrate.upgrade(target.url)
        async with _holding(target, clock, tell, besides=here) as there:
            mark = await _begin(here, there)
            await _copy_rows(here, there, mark, tell)
            digests = await _compare(here, there, tell)
            return await _finish(here, there, mark, digests, tell)


async def reopen(url: str, tell: Tell) -> Mark | None:
    """Let a database be served again that was copied away; what the copy was, None if there was none.

    Raises `NoCopy`, `BadSettings`.
    """
    place = _Place.of("DATABASE", url)
    if place.is_missing:
        raise NoCopy(f"there is no database at {place.shown}")
    async with _holding(place, await _clock_of(place), tell) as side:
        mark = (await side.marks()).get(Direction.OUT)
        async with side.transaction() as connection:
            await copies.forget(connection, Direction.OUT)
    return mark


async def _clock_of(*places: _Place) -> Clock:
    """A Postgres's, if one of them is one: times of ours that were ahead would hold up those of its next server."""
    for place in places:
        if place.address.dialect == dialect.POSTGRES:
            with place.naming():
                async with open_engines(place.url) as engines:
                    return await clock_of(engines)
    return Clock()


# --- Which databases ----------------------------------------------------------------------------------------


def _refuse_one_place(source: _Place, target: _Place) -> None:
    if source.is_missing:
        raise NoCopy(f"there is no database at {source.shown}")
    if source.shown == target.shown:
        raise _same_place()


def _same_place() -> NoCopy:
    return NoCopy("FROM and TO are the same database")


def _make_alike(source: _Place, target: _Place) -> None:
    """Of a file, nobody may read a copy in another file who may not read the first."""
    if target.is_missing and source.address.dialect == dialect.SQLITE:
        mode = stat.S_IMODE(Path(source.address.target).stat().st_mode)
        Path(target.address.target).touch(mode | stat.S_IWUSR)


async def _finished_before(source: _Place, target: _Place) -> Copied | None:
    """The copy, if both sides say that it is finished; they may be served by now, and are only looked at."""
    out, into = await _mark_of(source, Direction.OUT), await _mark_of(target, Direction.IN)
    if out and into and out.id == into.id and out.finished_at and into.finished_at:
        return Copied(source.shown, target.shown, into.finished_at, digests=None)
    return None


async def _mark_of(place: _Place, direction: Direction) -> Mark | None:
    with place.naming():
        found = await migrate.status(place.url)
        if found.current != found.head:
            return None
        async with open_engines(place.url) as engines, engines.reader.connect() as connection:
            return (await copies.marks(connection)).get(direction)


@asynccontextmanager
async def _holding(place: _Place, clock: Clock, tell: Tell, besides: _Side | None = None) -> AsyncIterator[_Side]:
    """The database, with every server and every other copy kept away from it."""

    def emit(event: Event) -> None:
        if isinstance(event, DispatcherAwaited):
            tell(Step(f"waiting whether {event.holder} still uses {place.called}"))

    dispatcher = Dispatcher(clock, emit, FOR_A_COPY)
    async with AsyncExitStack() as stack:
        with place.naming():
            engines, is_locked = await stack.enter_async_context(sole_owner(place.url, timeouts=_PATIENCE))
            await migrate.require_current(engines.reader)
            await _refuse_the_same(engines, besides)
            await dispatcher.take(engines.writer, locked=is_locked)
        side = _Side(place, engines, dispatcher, clock)
        await stack.enter_async_context(_renewing(side))
        yield side


async def _refuse_the_same(engines: Engines, besides: _Side | None) -> None:
    """One Postgres has many addresses, but only one row that says who holds it."""
    if besides is None:
        return
    async with engines.reader.connect() as connection:
        holder = await read_holder(connection)
    if holder is not None and holder.holder == besides.dispatcher.holder:
        raise _same_place()


@asynccontextmanager
async def _renewing(side: _Side) -> AsyncIterator[None]:
    """Shows those who come meanwhile that we live, and lets them in at the end."""

    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set():
            async with side.transaction():
                pass
            side.dispatcher.renewed()
            with suppress(TimeoutError):
                async with asyncio.timeout(side.dispatcher.renew_in_sec):
                    await over.wait()

    renewing = asyncio.create_task(renew(), name=f"renewing {side.place.called}")
    try:
        yield
    finally:
        over.set()
        with suppress(Exception):  # what ended it before, the next transaction has met as well
            await renewing
        with suppress(Exception):  # who comes next waits it out
            await side.dispatcher.release(side.engines.writer)


# --- The course of a copy -----------------------------------------------------------------------------------


async def _begin(here: _Side, there: _Side) -> Mark:
    """The mark in TO, new or of the copy that goes on. Raises `NoCopy` if TO is for something else."""
    out, into = await here.marks(), await there.marks()
    _refuse_half_a_copy(here, out.get(Direction.IN))
    was, mark = out.get(Direction.OUT), into.get(Direction.IN)
    if mark is not None and was is not None and mark.id == was.id:
        return mark
    if mark is not None:
        state = "a copy" if mark.finished_at else "an unfinished copy"
        raise NoCopy(
            f"TO, {there.place.shown}, holds {state} of {mark.other} that is not this one of FROM as it is now:"
            " a copy goes into an empty database"
        )
    if was is not None and was.finished_at is not None:
        raise NoCopy(
            f"FROM, {here.place.shown}, was copied into {was.other} at {rfc3339(was.finished_at)}, where its jobs go"
            " on: `fairlane reopen` first, if it is still the one to be copied"
        )
    return await _begin_anew(here, there)


def _refuse_half_a_copy(here: _Side, mark: Mark | None) -> None:
    if mark is not None and mark.finished_at is None:
        raise NoCopy(f"FROM, {here.place.shown}, is itself an unfinished copy of {mark.other}")


async def _begin_anew(here: _Side, there: _Side) -> Mark:
    mark = Mark(Direction.IN, uuid.uuid4().hex, here.place.shown, here.clock.now())
    await _refuse_what_is_not_empty(there)
    async with here.transaction() as connection:
        await copies.begin(connection, replace(mark, direction=Direction.OUT, other=there.place.shown))
    async with there.transaction() as connection:
        await copies.begin(connection, mark)
        for table in _NOBODYS:
            await connection.execute(delete(table))
    return mark


async def _refuse_what_is_not_empty(there: _Side) -> None:
    async with there.reading() as connection:
        for table in COPIED:
            rows = (await connection.execute(select(table).limit(2))).all()
            if table is queues and [tuple(row) for row in rows] == [("default", 0, 0, 0, False)]:
                continue
            if rows and table is not rollups:
                raise NoCopy(
                    f"TO, {there.place.shown}, is not empty: there are rows in {table.name}."
                    " A copy goes into an empty database"
                )


async def _copy_rows(here: _Side, there: _Side, mark: Mark, tell: Tell) -> None:
    names = [table.name for table in TABLES]
    reached = mark.position or Position(names[0], ())
    for table in TABLES[names.index(reached.table) :]:
        after = reached.after if table.name == reached.table else ()
        done, of = await table.count(there.reading), await table.count(here.reading)
        async for rows in table.portions(here.reading, after):
            tell(Step("copying", table.name, done, of))
            await _copy_portion(there, table, rows)
            done += len(rows)


async def _copy_portion(there: _Side, table: CopiedTable, rows: Sequence[Any]) -> None:
    position = Position(table.name, table.key_of(rows[-1]))
    try:
        async with there.transaction() as connection:
            await table.insert(connection, rows)
            await copies.advance(connection, position)
    except NoCopy:
        raise
    except Exception as error:
        if refused := await _first_refused(there, table, rows):
            raise refused from error
        raise


async def _first_refused(there: _Side, table: CopiedTable, rows: Sequence[Any]) -> NoCopy | None:
    with there.place.naming():
        async with there.engines.writer.connect() as connection:  # which is rolled back
            return await table.first_refused(connection, rows)


async def _compare(here: _Side, there: _Side, tell: Tell) -> dict[str, Digest]:
    """The digests of all tables, which are those of both sides. Raises `NoCopy` if they are not."""
    digests = {}
    for table in TABLES:
        ours, theirs = await _digest_of(here, table, tell), await _digest_of(there, table, tell)
        if ours != theirs:
            raise await _difference(here, there, table, ours, theirs)
        digests[table.name] = ours
    return digests


async def _digest_of(side: _Side, table: CopiedTable, tell: Tell) -> Digest:
    digest, of = Digest(), await table.count(side.reading)
    async for digest in table.digest_of(side.reading):
        tell(Step(f"checking {side.place.called}", table.name, digest.rows, of))
    return digest


async def _difference(here: _Side, there: _Side, table: CopiedTable, ours: Digest, theirs: Digest) -> NoCopy:
    one, other = here.reading, there.reading
    found = await table.first_difference(one, other) or await table.first_difference(other, one)
    return NoCopy(
        f"the copy is not the same: {table.name} has {ours.rows} rows in FROM (digest {ours}) and {theirs.rows} in TO"
        f" (digest {theirs}); {found or 'they differ no more'}. Somebody has changed one of them meanwhile: begin again"
        " with another empty database"
    )


async def _finish(here: _Side, there: _Side, mark: Mark, digests: dict[str, Digest], tell: Tell) -> Copied:
    """FROM first: cut in between, neither is served, and the same command finishes it."""
    tell(Step("finishing"))
    async with there.transaction() as connection:
        await dialect.learn_statistics(connection, COPIED)
    async with here.transaction() as connection:
        last = await dialect.last_seq(connection)
        await copies.finish_if_unfinished(connection, replace(mark, direction=Direction.OUT), here.clock.now())
    async with there.transaction() as connection:
        # The numbers and the times that were given out are given out no more: `transaction` has written a later time.
        await dialect.go_on_after(connection, last)
        finished_at = there.clock.now()
        await copies.finish_if_unfinished(connection, mark, finished_at)
    return Copied(here.place.shown, there.place.shown, finished_at, digests)
