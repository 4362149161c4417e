"""What a database was copied from or into: statements on its marks, and the rule that nobody serves half a copy, nor
what has moved away. Both sides of a copy bear the same id, so nobody needs to compare addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.clock import rfc3339
from app.errors import NotServed
from app.store.schema import copies

TABLE: Final = str(copies.name)


class Direction(StrEnum):
    """Which side of a copy a database is."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a copy has come: up to and with the row of this key."""

    table: str
    after: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """One side of a copy. `other` names the other side for people, without a password."""

    direction: Direction
    id: str
    other: str
    begun_at: datetime
    position: Position | None = None
    finished_at: datetime | None = None


async def marks(connection: AsyncConnection) -> Mapping[Direction, Mark]:
    """Of the copies into and out of this database, the last one each."""
    return {mark.direction: mark for mark in map(_mark, await connection.execute(select(copies)))}


def _mark(row: Any) -> Mark:
    position = None if row.position is None else msgspec.json.decode(row.position, type=Position)
    return Mark(Direction(row.direction), row.id, row.other, row.begun_at, position, row.finished_at)


async def begin(connection: AsyncConnection, mark: Mark) -> None:
    """Put the mark in place of one that there is."""
    await forget(connection, mark.direction)
    row = {"direction": mark.direction, "id": mark.id, "other": mark.other, "begun_at": mark.begun_at}
    await connection.execute(insert(copies).values(row))


async def advance(connection: AsyncConnection, position: Position) -> None:
    """Write how far the copy into this database has come."""
    text = msgspec.json.encode(position).decode()
    await connection.execute(update(copies).where(copies.c.direction == Direction.IN).values(position=text))


async def finish_if_unfinished(connection: AsyncConnection, mark: Mark, now: datetime) -> None:
    """This side of the copy is complete."""
    here = (copies.c.direction == mark.direction, copies.c.id == mark.id, copies.c.finished_at.is_(None))
    await connection.execute(update(copies).where(*here).values(finished_at=now))


async def forget(connection: AsyncConnection, direction: Direction) -> None:
    """Take the mark away."""
    await connection.execute(delete(copies).where(copies.c.direction == direction))


async def require_servable(connection: AsyncConnection) -> None:
    """Raises `NotServed` for half a copy, and for a database that was copied into another."""
    found = await marks(connection)
    if (came := found.get(Direction.IN)) and came.finished_at is None:
        raise NotServed(
            f"this database is an unfinished copy of {came.other}: run the same `fairlane copy` again to finish it"
        )
    if (went := found.get(Direction.OUT)) and went.finished_at is None:
        raise NotServed(
            f"a copy of this database into {went.other} was begun at {rfc3339(went.begun_at)} and is not finished: run"
            " the same `fairlane copy` again to finish it, or `fairlane reopen` to give it up"
        )
    if went and went.finished_at:
        raise NotServed(
            f"this database was copied into {went.other} at {rfc3339(went.finished_at)}, and its jobs go on there:"
            " serve that one; `fairlane reopen` opens this one again, if the other is not to be used"
        )
