"""An hour is over: its figures are counted once and kept, so that reports stay quick and outlive the jobs.

They are counted by a connection that only reads, and written in portions that hold the writer no longer than a claim
does. No view shows an hour before its last portion, which moves `until`; so whatever cuts a roll-up, the hour is
rolled up again from the beginning, and never twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from app.clock import rfc3339
from app.events import HoursRolledUp
from app.flow.core import Core
from app.store import rollups
from app.store.rollups import Figures, Portion, hour_of
from app.store.transaction import Transaction

EVERY_SEC: Final = 60.0
GRACE: Final = timedelta(minutes=1)
"""How long after its end an hour is left alone: SQL typed by hand may carry a time older than its commit."""


async def roll_up(core: Core) -> bool:
    """Roll up the oldest hour that is over and is not rolled up yet, and the quiet ones after it; whether there may be
    another one.

    Raises `Unavailable`.
    """
    async with core.rolling_up:
        return await _roll_up(core)


async def _roll_up(core: Core) -> bool:
    over = hour_of(core.clock.now() - GRACE)
    await core.write(_nothing)  # what was being written is committed now, and whatever comes later has later times
    async with core.reading(patient=True) as connection:
        was_until = await rollups.until(connection)
        hour = was_until or await rollups.next_change(connection, None)
        if hour is None or hour >= over:
            return False
        figures = await rollups.figures(connection, hour)
        if figures.is_quiet:  # and so is every hour until something happens
            change = await rollups.next_change(connection, figures.until)
            figures = figures.repeated(over if change is None else min(change, over))
    if not await _write(core, figures, was_until):
        return False
    core.emit(HoursRolledUp(rfc3339(figures.hour), rfc3339(figures.until), figures.count))
    return figures.until < over


async def _write(core: Core, figures: Figures, was_until: datetime | None) -> bool:
    """Whether it counts now; not if somebody has moved the mark meanwhile."""
    async with core.reading(patient=True) as connection:
        unfinished = await rollups.unfinished(connection, figures.hour)
    for hour in unfinished:
        await core.write(partial(_forget, hour))
    for portion in figures.portions():
        await core.write(partial(_save, portion))
    return await core.write(partial(_close, was_until, figures.until))


async def _forget(hour: datetime, tx: Transaction) -> None:
    await rollups.forget(await tx.settled(), hour)


async def _save(portion: Portion, tx: Transaction) -> None:
    await rollups.save(await tx.settled(), portion)


async def _close(until: datetime | None, now_until: datetime, tx: Transaction) -> bool:
    """If somebody has set the mark by hand meanwhile, their word stands, and the next round goes on from there."""
    return await rollups.close_if_open(await tx.settled(), until, now_until)


async def _nothing(tx: Transaction) -> None:
    """Comes after everything that is being written."""
