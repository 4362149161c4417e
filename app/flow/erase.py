"""All that is kept of a tenant is deleted: its jobs with their attempts, its hourly figures, its lanes, its keys, its
settings and its name. In batches, and so that the same call goes on where one was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from app.errors import NotFound, Unfinished
from app.events import TenantErased
from app.flow import retention
from app.flow.core import Core, Phase
from app.scheduling.tenant import DEFAULT_TENANT
from app.store import jobs, keys, queues, rollups, tenants
from app.store.transaction import Transaction

_HOURS_AT_ONCE: Final = 10
_LONGEST_SEC: Final = 5.0
"""How long one call works, so that its client sees the end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """How far it has come: jobs that this call has deleted, those that are left, and how many of them are not final.
    Once `is_gone`, nothing of the tenant is left."""

    erased: int
    left: int
    unfinished: int
    is_gone: bool


async def look_before_erasing(core: Core, tenant: str) -> Erasure:
    """What there is to erase; nothing is changed. Raises `NotFound`, `Unavailable`."""
    return Erasure(erased=0, left=await _count(core, tenant), unfinished=_unfinished(core, tenant), is_gone=False)


async def erase_tenant(core: Core, tenant: str) -> Erasure:
    """Delete what there is of a tenant, for some seconds; if it is not gone then, the same call goes on.

    Raises `NotFound`, `Unfinished` (a job of it is not final), `Unavailable`.
    """
    await _count(core, tenant)
    if unfinished := _unfinished(core, tenant):
        raise Unfinished(tenant, unfinished)
    until = core.clock.monotonic() + _LONGEST_SEC
    erased, after_seq = 0, 0
    while core.clock.monotonic() < until and core.phase is not Phase.DRAINING:
        async with core.reading() as connection:
            found = retention.batch(await jobs.finished_of(connection, tenant, after_seq, retention.DELETED_AT_ONCE))
        if not found:
            if await _forget(core, tenant):
                return Erasure(erased=erased, left=0, unfinished=0, is_gone=True)
            break
        erased += await retention.delete_in_peace(core, [row.id for row in found])
        after_seq = found[-1].seq
    left = await _count(core, tenant)
    return Erasure(erased=erased, left=left, unfinished=_unfinished(core, tenant), is_gone=False)


async def _count(core: Core, tenant: str) -> int:
    async with core.reading() as connection:
        if await tenants.get(connection, tenant) is None:
            raise NotFound("tenant")
        return await jobs.count_of(connection, tenant)


async def _forget(core: Core, tenant: str) -> bool:
    """Delete what is left once its jobs have gone; whether nothing was in the way."""
    async with core.rolling_up:
        await _erase_figures(core, tenant)
        return await core.write(partial(_forget_if_empty, core, tenant), alone=True)


async def _erase_figures(core: Core, tenant: str) -> None:
    """What was rolled up of it goes too."""
    async with core.reading() as connection:
        hours = await rollups.hours_of(connection, tenant)
    for first in range(0, len(hours), _HOURS_AT_ONCE):
        await core.write(partial(_forget_hours, tenant, hours[first : first + _HOURS_AT_ONCE]))


async def _forget_hours(tenant: str, hours: Sequence[datetime], tx: Transaction) -> None:
    await rollups.forget_tenant(await tx.settled(), tenant, hours)


def _unfinished(core: Core, tenant: str) -> int:
    return core.counts.of_tenant(tenant).total()


async def _forget_if_empty(core: Core, tenant: str, tx: Transaction) -> bool:
    """Alone in its transaction, for a job that was submitted beside it would count on the tenant's row."""
    if await jobs.has_any(await tx.reading(), tenant) or not core.order.drop_tenant(tenant):
        return False
    connection = await tx.settled()
    await queues.delete_lanes_of(connection, tenant)
    await keys.delete_of_tenant(connection, tenant)
    await tenants.delete_one(connection, tenant)
    tx.after_commit(core.known_tenants.discard, tenant)
    tx.after_commit(core.keyring.forget_tenant, tenant)
    tx.after_commit(core.admission.configure, tenant, DEFAULT_TENANT)
    tx.after_commit(core.emit, TenantErased(tenant))
    return True
