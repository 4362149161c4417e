"""An hour is over: its figures are counted once and kept, so that reports stay quick and outlive the jobs.

They are counted by a connection that only reads, and written in portions that hold the writer no longer than a claim
does. No view shows an hour before its last portion, which moves `until`; so whatever cuts a roll-up, the hour is
rolled up again from the beginning, and never twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from app.clock import rfc3339
from app.events import HourRolledUp
from app.flow.core import Core
from app.store import rollups
from app.store.rollups import HOUR, Figures, Portion, hour_of
from app.store.transaction import Transaction

EVERY_SEC: Final = 60.0
GRACE: Final = timedelta(minutes=1)
"""How long after its end an hour is left alone: SQL typed by hand may carry a time older than its commit."""


async def roll_up(core: Core) -> bool:
    """Roll up the oldest hour that is over and is not rolled up yet; whether there may be another one.

    Raises `Unavailable`.
    """
    # What is behind the writer by now is committed, and whatever comes later carries later times.
    over = hour_of(core.clock.now() - GRACE)
    await core.write(_nothing)
    async with core.reading() as connection:
        until = await rollups.until(connection)
        hour = until or await rollups.next_hour(connection, None)
        if hour is None or hour >= over:
            return False
        figures = await rollups.figures(connection, hour)
        now_until = hour + HOUR if figures.count else min(await rollups.next_hour(connection, hour) or over, over)
    await _write(core, figures, until, now_until)
    core.emit(HourRolledUp(rfc3339(hour), figures.count))
    return now_until < over


async def _write(core: Core, figures: Figures, until: datetime | None, now_until: datetime) -> None:
    await core.write(partial(_forget_unfinished, figures.hour))
    for portion in figures.portions():
        await core.write(partial(_save, portion))
    await core.write(partial(_close, until, now_until))


async def _forget_unfinished(hour: datetime, tx: Transaction) -> None:
    await rollups.forget_unfinished(await tx.settled(), hour)


async def _save(portion: Portion, tx: Transaction) -> None:
    await rollups.save(await tx.settled(), portion)


async def _close(until: datetime | None, now_until: datetime, tx: Transaction) -> None:
    """If somebody has set the mark by hand meanwhile, their word stands, and the next round goes on from there."""
    await rollups.close_if_open(await tx.settled(), until, now_until)


async def _nothing(tx: Transaction) -> None:
    """Comes after everything that is being written."""
