"""Who dispatches on this database. One row says so and every transaction of the writer proves it. A newcomer
compares no clocks: it watches whether the holder renews the row. On SQLite a lock on a file beside the
database decides at once (never on the database file itself: closing it would drop SQLite's own locks)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Final

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.clock import Clock
from app.errors import AnotherDispatcher, DispatchLost
from app.events import DispatcherAwaited, Emit
from app.store import dialect
from app.store.engine import Engines, Timeouts, open_engines, parse_url
from app.store.schema import dispatcher

ROW: Final = "main"
LEASE_SEC: Final = 4.0
"""How long a newcomer watches a holder that does not renew before it takes over."""

RENEW_SEC: Final = 1.0
"""How often an idle holder renews, where there is no file to lock."""

_WATCH_SEC: Final = 0.2


_OURS: Final = update(dispatcher).where(
    dispatcher.c.name == ROW,
    dispatcher.c.holder == bindparam("our_name"),
    dispatcher.c.epoch == bindparam("our_epoch"),
)
_RENEW: Final = _OURS.values(expires_at=bindparam("new_end"), last_time=bindparam("new_time"))
_GIVE_BACK: Final = _OURS.values(expires_at=None)


@dataclass(frozen=True, slots=True)
class Holder:
    """What the row says. `expires_at` is None once the claim was given back; `last_time` is the newest time
    that this database was ever given."""

    holder: str
    address: str
    epoch: int
    expires_at: datetime | None
    last_time: datetime | None


class FileLock:
    """The lock beside a SQLite database. Held until `release` or the end of the process, however it ends."""

    def __init__(self, database: Path) -> None:
        real = database.resolve()
        self._path = real.with_name(real.name + ".lock")
        self._file: IO[str] | None = None

    def take(self) -> bool:
        """Whether the lock is ours now."""
        file = self._path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back; without effect if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Dispatcher:
    """This process's claim to dispatch. `take` it, `prove` it in every transaction, `release` it at the end."""

    def __init__(self, clock: Clock, emit: Emit, address: str) -> None:
        self.holder = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex[:8]})"
        self.address = address
        self._clock = clock
        self._emit = emit
        self._epoch = 0
        self.time_before: datetime | None = None
        """The newest time that the dispatcher before this one gave out, once the claim is taken."""

    async def take(self, engine: AsyncEngine, *, locked: bool) -> None:
        """Become the dispatcher. `locked` says that a file's lock already keeps others away.

        Raises `AnotherDispatcher` as soon as the present holder shows that it lives.
        """
        seen = await self._read(engine)
        if seen is not None and seen.expires_at is not None and not locked:
            seen = await self._watch(engine, seen)
        self._epoch = 1 if seen is None else seen.epoch + 1
        if not await self._replace(engine, seen):
            raise AnotherDispatcher("a server that starts at the same moment", "an unknown address")
        self.time_before = seen.last_time if seen else None
        self._clock.not_before(self.time_before)

    async def prove(self, connection: AsyncConnection, now: datetime) -> None:
        """Renew the claim inside a transaction; raises `DispatchLost` if another process has taken over."""
        ours = {"our_name": self.holder, "our_epoch": self._epoch}
        times = {"new_end": now + timedelta(seconds=LEASE_SEC), "new_time": now}
        renewed = await connection.execute(_RENEW, ours | times)
        if renewed.rowcount != 1:
            raise DispatchLost("another server has taken over this database")

    async def release(self, engine: AsyncEngine) -> None:
        """Let the next server start at once."""
        async with engine.begin() as connection:
            await connection.execute(_GIVE_BACK, {"our_name": self.holder, "our_epoch": self._epoch})

    async def _read(self, engine: AsyncEngine) -> Holder | None:
        async with engine.begin() as connection:
            return await read_holder(connection)

    async def _watch(self, engine: AsyncEngine, seen: Holder) -> Holder:
        """Wait until the holder renews (then raise), releases, or has been silent for long enough."""
        self._emit(DispatcherAwaited(seen.holder, seen.address, LEASE_SEC))
        end = self._clock.monotonic() + LEASE_SEC
        while self._clock.monotonic() < end:
            await asyncio.sleep(_WATCH_SEC)
            found = await self._read(engine)
            if found is not None and found.expires_at is None:
                return found
            if found != seen:
                raise AnotherDispatcher(seen.holder, seen.address)
        return seen

    async def _replace(self, engine: AsyncEngine, seen: Holder | None) -> bool:
        """Put our name where `seen` was; False if somebody else was faster."""
        ours = {
            "holder": self.holder,
            "address": self.address,
            "epoch": self._epoch,
            "expires_at": self._clock.now() + timedelta(seconds=LEASE_SEC),
        }
        async with engine.begin() as connection:
            if seen is None:
                insert = dialect.upsert(connection, dispatcher, keys=["name"], update=[])
                written = await connection.execute(insert.values(name=ROW, **ours))
            else:
                unchanged = dispatcher.c.expires_at.is_not_distinct_from(seen.expires_at)
                here = (dispatcher.c.name == ROW, dispatcher.c.epoch == seen.epoch, unchanged)
                written = await connection.execute(update(dispatcher).where(*here).values(ours))
        return written.rowcount == 1


async def read_holder(connection: AsyncConnection) -> Holder | None:
    """Who dispatches, or did last; None before the first start."""
    c = dispatcher.c
    wanted = select(c.holder, c.address, c.epoch, c.expires_at, c.last_time).where(c.name == ROW)
    row = (await connection.execute(wanted)).one_or_none()
    return None if row is None else Holder(*row)


@asynccontextmanager
async def sole_owner(
    url: str, *, synchronous: str = "full", timeouts: Timeouts | None = None
) -> AsyncIterator[tuple[Engines, bool]]:
    """The database, and whether a lock on a file keeps every other server away from it.

    Raises `AnotherDispatcher` if the lock is taken.
    """
    address = parse_url(url)
    async with open_engines(url, synchronous=synchronous, timeouts=timeouts) as engines:
        if address.dialect != dialect.SQLITE:
            yield engines, False
            return
        lock = FileLock(Path(address.target))
        if not lock.take():
            holder = await _holder_of(engines)
            raise AnotherDispatcher(holder.holder, holder.address)
        try:
            yield engines, True
        finally:
            lock.release()


async def _holder_of(engines: Engines) -> Holder:
    """Who holds a database whose lock is taken; it may not have written its name yet."""
    with suppress(Exception):
        async with engines.reader.begin() as connection:
            if (holder := await read_holder(connection)) is not None:
                return holder
    return Holder("a server that is just starting", "an address not known yet", 0, None, None)
