"""Who dispatches on this database. One row says so, with an epoch that every newcomer raises; every transaction of the
writer proves its epoch and renews the row. Whether the row has lapsed is judged by the database's clock alone, in the
statement that takes it, and nothing here is a session's state, so a transaction pooler may stand between. On SQLite a
lock on a file beside the database decides at once (never on the database file itself: closing it would drop SQLite's
own locks)."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Float, Update, bindparam, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.clock import Clock, DatabaseClock
from app.errors import AnotherDispatcher, DispatchLost
from app.events import DispatcherAwaited, Emit
from app.store import dialect
from app.store.engine import Engines, Timeouts, open_engines, parse_url
from app.store.replicas import Replica
from app.store.schema import dispatcher

ROW: Final = "main"
TTL_SEC: Final = 5.0
"""How long a claim lasts that is not renewed, where no setting says otherwise."""

FOR_A_COPY: Final = "nothing, for it copies"
"""The address of a holder that serves nobody: it keeps servers away from a database that is being copied."""

_RENEWALS: Final = 5
"""So often an idle holder renews in the time that its claim lasts."""

_WATCH_SEC: Final = 0.2

_C: Final = dispatcher.c
_IS_FREE: Final = or_(_C.expires_at.is_(None), _C.expires_at <= dialect.database_time())
_END: Final = dialect.database_time_in(bindparam("claim_sec", type_=Float))

_TIME: Final = select(dialect.database_time())
_READ: Final = select(_C.holder, _C.address, _C.epoch, _C.expires_at, _IS_FREE.label("is_free")).where(_C.name == ROW)
# A row that is locked is just being renewed or given back. Who waited for it would also wait for a holder that stands
# still in the middle of a transaction; who passes over it looks again in a moment.
_FREE: Final = select(_C.name).where(_C.name == ROW, _IS_FREE).with_for_update(skip_locked=True).scalar_subquery()
_IS_THERE: Final = select(_C.name).where(_C.name == ROW)
_TAKE_ANYWAY: Final = (
    update(dispatcher)
    .values(holder=bindparam("our_name"), address=bindparam("our_address"), epoch=_C.epoch + 1, expires_at=_END)
    .returning(_C.epoch, _C.last_time, dialect.database_time())
)
_TAKE: Final = _TAKE_ANYWAY.where(_C.name == _FREE)
_TAKE_LOCKED: Final = _TAKE_ANYWAY.where(_C.name == ROW)
_OURS: Final = update(dispatcher).where(
    _C.name == ROW, _C.holder == bindparam("our_name"), _C.epoch == bindparam("our_epoch")
)
_RENEW: Final = _OURS.values(expires_at=_END, last_time=bindparam("new_time"))
_BY_NAME: Final = update(dispatcher).where(_C.name == ROW, _C.holder == bindparam("our_name"))
_RAISE: Final = _BY_NAME.values(epoch=_C.epoch + 1).returning(_C.epoch)
_GIVE_BACK: Final = _BY_NAME.values(expires_at=None)


@dataclass(frozen=True, slots=True)
class Holder:
    """What the row says. `expires_at` is None once the claim was given back; `is_free` is whether the next one may take
    it, by the database's clock."""

    holder: str
    address: str
    epoch: int
    expires_at: datetime | None
    is_free: bool


async def clock_of(engines: Engines) -> Clock:
    """The one by which all go who serve this database: the machine's, where a file has one server."""
    machines = Clock()
    if engines.dialect == dialect.SQLITE:
        return machines
    async with engines.writer.connect() as connection:
        asked_at = machines.monotonic()
        return DatabaseClock((await connection.execute(_TIME)).scalar_one(), asked_at)


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
    """This process's claim to dispatch. Take it, `prove` it in every transaction, `release` it at the end; then it may
    be taken again, under another epoch."""

    def __init__(self, clock: Clock, emit: Emit, address: str, ttl_sec: float = TTL_SEC) -> None:
        self.holder = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex[:8]})"
        self.address = address
        self.me = Replica(self.holder, address, version("fairlane"), clock.shown())
        self._ttl_sec = ttl_sec
        self._clock = clock
        self._emit = emit
        self.epoch = 0
        self._proved_at = self._renewed_at = -math.inf
        self.since: datetime | None = None
        """When the claim was taken last."""
        self.time_before: datetime | None = None
        """The newest time that the dispatcher before this one gave out, once the claim is taken."""

    @property
    def claim_sec(self) -> float:
        """How long the claim lasts that is not renewed."""
        return self._ttl_sec

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have taken over, by our own monotonic clock: it counts from before the database was
        asked to renew, and so ends before the row lapses."""
        return self._clock.monotonic() < self._renewed_at + self.claim_sec

    @property
    def renew_every_sec(self) -> float:
        """How often an idle holder renews."""
        return self._ttl_sec / _RENEWALS

    @property
    def renew_in_sec(self) -> float:
        """When an idle holder should renew again."""
        return self._renewed_at + self.renew_every_sec - self._clock.monotonic()

    async def take(self, engine: AsyncEngine, *, locked: bool) -> None:
        """Become the dispatcher, once a holder that shows no sign of life has lapsed. `locked` says that a file's lock
        already keeps others away.

        Raises `AnotherDispatcher` as soon as the present holder shows that it lives.
        """
        first: Holder | None = None
        while not await self.take_if_free(engine, locked=locked):
            seen = await self.look(engine)
            if first is None and seen is not None:
                first = seen
                self._emit(DispatcherAwaited(seen.holder, seen.address, self.claim_sec))
            if seen is not None and not seen.is_free and seen != first:
                raise AnotherDispatcher(seen.holder, seen.address)
            await asyncio.sleep(_WATCH_SEC)

    async def take_if_free(self, engine: AsyncEngine, *, locked: bool = False) -> bool:
        """Whether we are the dispatcher now. Nobody is, or was, under the same epoch, and no time that was given out
        before is given out again. What the one before had begun to write is undone, for it could never be committed."""
        began = self._clock.monotonic()
        ours = {"our_name": self.holder, "our_address": self.address, "claim_sec": self.claim_sec}
        async with engine.begin() as connection:
            if await connection.scalar(_IS_THERE) is None:  # an INSERT that finds it locked would wait
                first = dialect.upsert(connection, dispatcher, keys=["name"], update=[])
                await connection.execute(first, {"name": ROW})
            asked_at = self._clock.monotonic()
            taken = (await connection.execute(_TAKE_LOCKED if locked else _TAKE, ours)).one_or_none()
            if taken is not None:
                self._clock.heard(taken[2], asked_at)
                await dialect.end_what_stands_still(connection)
        if taken is None:
            return False
        self.epoch, self.time_before, _ = taken
        self._renewed_at = began
        self._clock.not_before(self.time_before)
        self.since = self._clock.now()
        return True

    def proof(self, now: datetime, more_sec: float = 0.0) -> tuple[Update, Mapping[str, Any]]:
        """A constant statement that renews the claim inside a transaction, for `more_sec` longer than usual, and its
        parameters. It changes one row, or another process has taken over. From there to the end of the transaction
        nobody can."""
        self._proved_at = self._clock.monotonic()
        ours = {"our_name": self.holder, "our_epoch": self.epoch}
        return _RENEW, ours | {"claim_sec": self.claim_sec + more_sec, "new_time": now}

    async def prove(self, connection: AsyncConnection, now: datetime, more_sec: float = 0.0) -> None:
        """Renew the claim by itself. Raises `DispatchLost`."""
        if (await connection.execute(*self.proof(now, more_sec))).rowcount != 1:
            raise DispatchLost("another server has taken over this database")

    async def outdate(self, connection: AsyncConnection) -> None:
        """Go on under another epoch: what we have sent and never heard of again proves the old one, so once this is
        committed it cannot be any more. Waits for what is being committed. Raises `DispatchLost`."""
        epoch = await connection.scalar(_RAISE, {"our_name": self.holder})
        if epoch is None:
            raise DispatchLost("another server has taken over this database")
        self.epoch = epoch

    async def prove_alone(self, connection: AsyncConnection, now: datetime) -> None:
        """`prove` at the beginning of a transaction on a connection in place of another: what that one has locked, and
        nobody will ever unlock, is free after it. On a file there is no such thing."""
        if connection.dialect.name == dialect.POSTGRES:
            await self.prove(connection, now)
            await dialect.end_what_stands_still(connection)

    def renewed(self) -> None:
        """The transaction that proved the claim is committed."""
        self._renewed_at = self._proved_at

    async def is_still_ours(self, connection: AsyncConnection) -> bool:
        """Whether the row says so, be it that it has lapsed."""
        seen = await read_holder(connection)
        return seen is not None and (seen.holder, seen.epoch) == (self.holder, self.epoch)

    async def release(self, engine: AsyncEngine) -> None:
        """Let the next server start at once."""
        async with engine.begin() as connection:
            await connection.execute(_GIVE_BACK, {"our_name": self.holder})

    async def look(self, engine: AsyncEngine) -> Holder | None:
        """Who dispatches, or did last; None before the first start."""
        async with engine.begin() as connection:
            return await read_holder(connection)


async def read_holder(connection: AsyncConnection) -> Holder | None:
    """Who dispatches, or did last; None before the first start."""
    row = (await connection.execute(_READ)).one_or_none()
    return None if row is None or row.holder is None else Holder(*row)


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
    return Holder("a server that is just starting", "an address not known yet", 0, None, is_free=False)
