"""Statements on queues and their lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.scheduler import LaneTime, QueueState, QueueTime
from app.store import dialect, many, parts
from app.store.schema import lanes, queues
from app.store.slices import in_slices

_PAUSED: Final = select(queues.c.name).where(queues.c.paused)


async def ensure(connection: AsyncConnection, names: Sequence[str]) -> None:
    """Rows for those queues that have none."""
    statement = dialect.upsert(connection, queues, keys=["name"], update=[])
    await connection.execute(statement, [{"name": name} for name in names])


async def put(connection: AsyncConnection, name: str, *, paused: bool) -> None:
    """Create the queue or set its switch."""
    statement = dialect.upsert(connection, queues, keys=["name"], update=["paused"])
    await connection.execute(statement, [{"name": name, "paused": paused}])


async def every(connection: AsyncConnection) -> list[QueueState]:
    """All queues, by name."""
    c = queues.c
    rows = await connection.execute(select(c.name, c.clock, c.since_move, c.horizon, c.paused).order_by(c.name))
    return [QueueState(*row) for row in rows]


async def paused(connection: AsyncConnection) -> set[str]:
    """The names of those that are paused: few, however many there are."""
    return set(await connection.scalars(_PAUSED))


async def is_paused(connection: AsyncConnection, name: str) -> bool | None:
    """None if there is no queue of that name."""
    found: bool | None = await connection.scalar(select(queues.c.paused).where(queues.c.name == name))
    return found


async def count(connection: AsyncConnection) -> int:
    """How many there are."""
    return int(await connection.scalar(select(func.count()).select_from(queues)) or 0)


async def first_names(connection: AsyncConnection, limit: int) -> list[str]:
    """The first names, in their order."""
    return list(await connection.scalars(select(queues.c.name).order_by(queues.c.name).limit(limit)))


async def every_lane(connection: AsyncConnection) -> list[LaneTime]:
    """All lanes that have a row."""
    rows = await connection.execute(select(lanes.c.queue, lanes.c.tenant, lanes.c.virtual_time))
    return [LaneTime(*row) for row in rows]


def lanes_in_slices(connection: AsyncConnection) -> AsyncIterator[Sequence[Any]]:
    """(queue, tenant, virtual_time) of every lane that has a row, in slices."""
    return in_slices(connection, select(lanes.c.queue, lanes.c.tenant, lanes.c.virtual_time))


async def some_lanes(connection: AsyncConnection, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The virtual times of those of the lanes, given as (queue, tenant), that have a row."""
    rows = [{"queue": queue, "tenant": tenant} for queue, tenant in pairs]
    found = await many.select_each(connection, lanes, rows, keys=["queue", "tenant"])
    return {(row.queue, row.tenant): row.virtual_time for row in found}


def moved(clocks: Sequence[QueueTime], moved_lanes: Sequence[LaneTime]) -> list[parts.Upserts]:
    """What writes the clocks of queues and the virtual times of lanes."""
    both = (
        parts.Upserts(queues, ("name",), ("clock", "since_move", "horizon"), clocks),
        parts.Upserts(lanes, ("queue", "tenant"), ("virtual_time",), moved_lanes),
    )
    return [each for each in both if each.rows]


async def forget_lanes(connection: AsyncConnection, idle: Sequence[tuple[str, str]]) -> None:
    """Delete the rows of lanes, given as (queue, tenant), that the order has forgotten."""
    await connection.execute(delete(lanes).where(tuple_(lanes.c.queue, lanes.c.tenant).in_(idle)))


async def delete_lanes_of(connection: AsyncConnection, tenant: str) -> None:
    """Delete the rows of a tenant's lanes."""
    await connection.execute(delete(lanes).where(lanes.c.tenant == tenant))
