"""Finished jobs leave the history, some time after their end, and their attempts and idempotency keys with them: in
batches that hold the writer no longer than a claim does. What was rolled up by the hour stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any, Final

from app.clock import rfc3339
from app.errors import Unavailable
from app.events import JobsRetired, RowSkipped
from app.flow.core import Core, Phase
from app.flow.moves import Moved
from app.store import jobs, rollups
from app.store.transaction import Transaction

EVERY_SEC: Final = 60.0
DELETED_AT_ONCE: Final = 50
"""Most jobs deleted in one transaction."""

ROWS_AT_ONCE: Final = 2000
"""Jobs and attempts after which a batch takes no further job: a job may have thousands of attempts."""

_BATCHES: Final = 200
"""Most batches in one round, so that it is told what has gone."""

ANEW_SEC: Final = 3600.0
"""How often it begins with the oldest again; between, it goes on from where it is. What the database keeps, since
somebody's own table refers to it, neither stops the others nor is tried again and again."""

_REST: Final = 4
"""How much longer to rest after a batch than it took: at most a fifth of the writer's time is spent on the past."""


async def retire(core: Core) -> bool:
    """Delete what ended long enough ago, the oldest first; whether there may be more. Raises `Unavailable`."""
    before = await deletable_before(core)
    if before is None:
        return False
    retired = 0
    if core.clock.monotonic() - core.retiring_since >= ANEW_SEC:
        core.retiring_since, core.retired_to = core.clock.monotonic(), None
    try:
        for _ in range(_BATCHES):
            async with core.reading(patient=True) as connection:
                found = await jobs.finished_before(connection, before, after=core.retired_to, limit=DELETED_AT_ONCE)
            if not found:
                return False
            taken = batch(found)
            retired += await delete_in_peace(core, [row.id for row in taken])
            core.retired_to = (taken[-1].completed_at, taken[-1].seq)
            if core.phase is Phase.DRAINING:
                return False
    finally:
        if retired:
            core.emit(JobsRetired(retired, rfc3339(before)))
    return True


def batch(found: Sequence[Any]) -> Sequence[Any]:
    """The first of the jobs found, as many as are deleted in one transaction; their rows say their `attempts`."""
    rows = accumulate(1 + row.attempts for row in found)
    return found[: 1 + sum(before < ROWS_AT_ONCE for before in rows)]


async def deletable_before(core: Core) -> datetime | None:
    """What ended before this time may go; None if nothing may. What is not rolled up yet is still to be counted, and a
    wall clock that has just jumped ahead makes nothing old; nor do times given out before it was set back."""
    days = core.settings.retention_days
    if not core.steadiness.is_steady() or days is None:
        return None
    async with core.reading(patient=True) as connection:
        rolled_until = await rollups.until(connection)
    return None if rolled_until is None else min(rolled_until, core.clock.shown() - timedelta(days=days))


async def delete_in_peace(core: Core, ids: Sequence[str]) -> int:
    """Delete those of the jobs that are finished, and leave the writer to others for a while; how many there were. A
    row that the database keeps, since somebody's own table refers to it, is told and passed over.

    Raises `Unavailable`.
    """
    if not ids:
        return 0
    began = core.clock.monotonic()
    try:
        gone = await core.write(partial(_delete, core, ids))
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - one of the rows; find out which
        if len(ids) > 1:
            return sum([await delete_in_peace(core, [job_id]) for job_id in ids])
        core.emit(RowSkipped(ids[0], f"{type(error).__name__}: {error}"))
        gone = 0
    await asyncio.sleep(_REST * (core.clock.monotonic() - began))
    return gone


async def _delete(core: Core, ids: Sequence[str], tx: Transaction) -> int:
    gone = await jobs.delete_if_finished(await tx.settled(), ids)
    for job_id, queue, tenant, state in gone:
        core.moves.note(Moved(job_id, queue, tenant, state, None, None))
    return len(gone)
