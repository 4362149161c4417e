"""Statements on tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, false, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.scheduling.tenant import TenantSettings
from app.store import dialect, many
from app.store.schema import tenants
from app.store.slices import in_slices

_SETTINGS = tuple(TenantSettings.__slots__)

_IS_DEFAULT = and_(
    tenants.c.weight == 1,
    tenants.c.rate_per_sec.is_(None),
    tenants.c.unlimited == false(),
    tenants.c.burst.is_(None),
    tenants.c.max_running.is_(None),
    tenants.c.max_queued.is_(None),
    tenants.c.paused == false(),
)
_SELECT = select(
    tenants.c.name, tenants.c.created_at, tenants.c.updated_at, *(tenants.c[name] for name in _SETTINGS)
).order_by(tenants.c.name)
_CONFIGURED = _SELECT.where(not_(_IS_DEFAULT))


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant as its row says."""

    name: str
    created_at: datetime
    updated_at: datetime
    settings: TenantSettings


async def ensure(connection: AsyncConnection, names: Sequence[str], now: datetime) -> None:
    """Rows with the defaults for those tenants that have none."""
    statement = dialect.upsert(connection, tenants, keys=["name"], update=[])
    await connection.execute(statement, [{"name": name, "created_at": now, "updated_at": now} for name in names])


async def put(connection: AsyncConnection, name: str, values: Mapping[str, Any], now: datetime) -> None:
    """Create the tenant or set all of `values`."""
    statement = dialect.upsert(connection, tenants, keys=["name"], update=[*values, "updated_at"])
    await connection.execute(statement, [{"name": name, "created_at": now, "updated_at": now, **values}])


async def patch(connection: AsyncConnection, name: str, values: Mapping[str, Any], now: datetime) -> None:
    """Set `values` of a tenant that there is."""
    await connection.execute(update(tenants).where(tenants.c.name == name).values(**values, updated_at=now))


async def delete_one(connection: AsyncConnection, name: str) -> None:
    """Delete the row of a tenant that has no jobs and no lanes."""
    await connection.execute(delete(tenants).where(tenants.c.name == name))


async def get(connection: AsyncConnection, name: str) -> TenantRow | None:
    """One tenant."""
    found = [_row(row) for row in await connection.execute(_SELECT.where(tenants.c.name == name))]
    return found[0] if found else None


async def every(connection: AsyncConnection) -> list[TenantRow]:
    """All tenants, by name."""
    return [_row(row) for row in await connection.execute(_SELECT)]


async def names_in_slices(connection: AsyncConnection) -> AsyncIterator[Sequence[str]]:
    """All names, in slices."""
    async for rows in in_slices(connection, select(tenants.c.name)):
        yield [name for (name,) in rows]


async def some_names(connection: AsyncConnection, names: Sequence[str]) -> set[str]:
    """Those of the names that a tenant has."""
    found = await many.select_each(connection, tenants, [{"name": name} for name in names], keys=["name"])
    return {row.name for row in found}


async def configured(connection: AsyncConnection) -> list[TenantRow]:
    """The tenants that have anything but the defaults: few, however many names ever submitted."""
    return [_row(row) for row in await connection.execute(_CONFIGURED)]


def _row(row: Any) -> TenantRow:
    name, created_at, updated_at, *values = row
    return TenantRow(name, created_at, updated_at, TenantSettings(**dict(zip(_SETTINGS, values, strict=True))))
