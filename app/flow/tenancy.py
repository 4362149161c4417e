"""Tenants and queues: their weights, rates, caps and switches, in force for the next dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from app.errors import NotFound
from app.flow.core import Core
from app.scheduling.job import State
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings
from app.store import queues, tenants
from app.store.session import Connection
from app.store.tenants import TenantRow
from app.store.transaction import Transaction

__all__ = [
    "QueueView",
    "TenantSettings",
    "TenantView",
    "get_tenant",
    "list_queues",
    "list_tenants",
    "patch_tenant",
    "put_queue",
    "put_tenant",
    "reread",
    "reread_is_due",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant as the API shows it; rate and burst are those in force, None: no limit."""

    name: str
    weight: int
    rate_per_sec: float | None
    burst: int | None
    max_running: int | None
    max_queued: int | None
    paused: bool
    queued: int
    running: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue as the API shows it."""

    name: str
    paused: bool
    queued: int
    running: int


async def list_tenants(core: Core) -> list[TenantView]:
    """All tenants by name. Raises `Unavailable`."""
    async with core.reading() as connection:
        return [_view(core, row) for row in await tenants.every(connection)]


async def get_tenant(core: Core, name: str) -> TenantView:
    """One tenant. Raises `NotFound`, `Unavailable`."""
    async with core.reading() as connection:
        return _view(core, await _existing(connection, name))


async def put_tenant(core: Core, name: str, settings: TenantSettings) -> TenantView:
    """Create the tenant or set all of it. Raises `Unavailable`."""

    async def put(tx: Transaction) -> TenantRow:
        connection = await tx.settled()
        await tenants.put(connection, name, asdict(settings), core.clock.now())
        return await _in_force(core, tx, name)

    return _view(core, await core.write(put))


async def patch_tenant(core: Core, name: str, changes: Mapping[str, Any]) -> TenantView:
    """Set only the fields of `TenantSettings` that `changes` names. Raises `NotFound`, `Unavailable`."""

    async def patch(tx: Transaction) -> TenantRow:
        await _existing(await tx.reading(), name)
        connection = await tx.settled()
        await tenants.patch(connection, name, changes, core.clock.now())
        return await _in_force(core, tx, name)

    return _view(core, await core.write(patch))


async def list_queues(core: Core) -> list[QueueView]:
    """All queues by name. Raises `Unavailable`."""
    async with core.reading() as connection:
        return [_queue_view(core, row.name, paused=row.paused) for row in await queues.every(connection)]


async def put_queue(core: Core, name: str, *, paused: bool) -> QueueView:
    """Create the queue or set its switch. Raises `Unavailable`."""

    async def put(tx: Transaction) -> None:
        await queues.put(await tx.settled(), name, paused=paused)
        core.order.set_queue(name, paused=paused)

    await core.write(put)
    return _queue_view(core, name, paused=paused)


async def reread_is_due(core: Core) -> bool:
    """Whether plain SQL has set a tenant or a queue otherwise than memory has it. Raises `Unavailable`."""
    async with core.reading() as connection:
        changed, paused = await _differences(core, connection)
    return bool(changed or paused)


async def reread(core: Core) -> tuple[int, int]:
    """Put in force what plain SQL has set; how many tenants and queues. Raises `Unavailable`."""

    async def apply(tx: Transaction) -> tuple[int, int]:
        changed, paused = await _differences(core, await tx.reading())
        for name, settings in changed.items():
            _put_in_force(core, tx, name, settings)
        for name, is_paused in paused.items():
            core.order.set_queue(name, paused=is_paused)
        return len(changed), len(paused)

    return await core.write(apply)


async def _existing(connection: Connection, name: str) -> TenantRow:
    row = await tenants.get(connection, name)
    if row is None:
        raise NotFound("tenant")
    return row


async def _in_force(core: Core, tx: Transaction, name: str) -> TenantRow:
    """The row as just written, its settings handed to the order and to the door."""
    row = await _existing(await tx.reading(), name)
    _put_in_force(core, tx, name, row.settings)
    return row


def _put_in_force(core: Core, tx: Transaction, name: str, settings: TenantSettings) -> None:
    core.order.set_tenant(name, weight=settings.weight, max_running=settings.max_running, paused=settings.paused)
    tx.after_commit(core.admission.configure, name, settings)


async def _differences(core: Core, connection: Connection) -> tuple[dict[str, TenantSettings], dict[str, bool]]:
    """What the database says and memory does not: settings by tenant, the switch by queue."""
    written = {row.name: row.settings for row in await tenants.configured(connection)}
    known = core.admission.configured()
    changed = {name: settings for name, settings in written.items() if known.get(name) != settings}
    changed |= {name: DEFAULT_TENANT for name in known if name not in written}
    paused = await queues.paused(connection)
    return changed, {name: name in paused for name in paused ^ core.order.paused_queues()}


def _view(core: Core, row: TenantRow) -> TenantView:
    settings = row.settings
    rate, burst = core.admission.rate_in_force(settings)
    counted = core.counts.of_tenant(row.name)
    return TenantView(
        name=row.name,
        weight=settings.weight,
        rate_per_sec=rate,
        burst=burst,
        max_running=settings.max_running,
        max_queued=settings.max_queued,
        paused=settings.paused,
        queued=counted[State.QUEUED],
        running=counted[State.SCHEDULED] + counted[State.RUNNING],
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _queue_view(core: Core, name: str, *, paused: bool) -> QueueView:
    counted = core.counts.of_queue(name)
    running = counted[State.SCHEDULED] + counted[State.RUNNING]
    return QueueView(name=name, paused=paused, queued=counted[State.QUEUED], running=running)
