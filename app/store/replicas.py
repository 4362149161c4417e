"""Statements on the register of replicas. Each writes its own row again and again; who has not for long is struck off
by the others. Only the database's clock is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Float, bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import dialect
from app.store.schema import dispatcher, replicas

_c = replicas.c
_FORGET_AFTER_SEC: Final = 60.0
_NOW: Final = dialect.database_time()
_AGO: Final = dialect.database_time_in(bindparam("minus_sec", type_=Float))

_BEAT: Final = ("address", "version", "started_at", "last_seen_at", "dispatching_since")
_DISPATCHES: Final = (
    select(dispatcher.c.name)
    .where(dispatcher.c.holder == _c.name, dispatcher.c.expires_at > _NOW)
    .correlate(replicas)
    .exists()
)
_EVERY: Final = select(
    _c.name,
    _c.address,
    _c.version,
    _c.started_at,
    _c.last_seen_at,
    _c.dispatching_since,
    _DISPATCHES.label("dispatches"),
    dialect.micros_between(_c.last_seen_at, _NOW).label("lag"),
).order_by(_c.started_at, _c.name)
_OTHERS: Final = select(func.count()).where(_c.name != bindparam("me"), _c.last_seen_at > _AGO)
# Who waited for the row of another that is back just now would wait in a circle: that one is about to delete ours.
_UNHEARD: Final = select(_c.name).where(_c.last_seen_at < _AGO).with_for_update(skip_locked=True)
_DEAD: Final = delete(replicas).where(_c.name.in_(_UNHEARD))


@dataclass(frozen=True, slots=True)
class Replica:
    """A server on this database. Its name is no other's, whenever that was."""

    name: str
    address: str
    version: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Seen(Replica):
    """One that is, or was a moment ago. `lag_sec` is for how long nothing was heard of it."""

    last_seen_at: datetime
    dispatching_since: datetime | None
    lag_sec: float

    @property
    def role(self) -> str:
        """What it does."""
        return "standby" if self.dispatching_since is None else "dispatcher"


async def beat(connection: AsyncConnection, me: Replica, dispatching_since: datetime | None) -> datetime:
    """It is still there, at this time of the database's; those who are not are struck off."""
    written = dialect.upsert(connection, replicas, keys=["name"], update=_BEAT).values(last_seen_at=_NOW)
    values = {
        "name": me.name,
        "address": me.address,
        "version": me.version,
        "started_at": me.started_at,
        "dispatching_since": dispatching_since,
    }
    seen_at: datetime = (await connection.execute(written.returning(_c.last_seen_at), values)).scalar_one()
    await connection.execute(_DEAD, {"minus_sec": -_FORGET_AFTER_SEC})
    return seen_at


async def forget(connection: AsyncConnection, name: str) -> None:
    """It is about to end."""
    await connection.execute(delete(replicas).where(_c.name == name))


async def others_live(connection: AsyncConnection, me: Replica, within_sec: float) -> bool:
    """Whether another one was heard of so lately."""
    return bool(await connection.scalar(_OTHERS, {"me": me.name, "minus_sec": -within_sec}))


async def every(connection: AsyncConnection) -> list[Seen]:
    """All that were heard of lately, the oldest first."""
    rows = await connection.execute(_EVERY)
    return [
        Seen(
            row.name,
            row.address,
            row.version,
            row.started_at,
            row.last_seen_at,
            row.dispatching_since if row.dispatches else None,
            max(0, row.lag) / 1e6,
        )
        for row in rows
    ]
