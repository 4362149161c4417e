"""One moment, at which memory and the database are known to be at the same commit: what memory held is copied, and a
connection goes on seeing what the database held. So the two can be compared at leisure while work goes on."""

from __future__ import annotations

from dataclasses import dataclass

from app.flow.core import Core
from app.flow.tally import Tally
from app.scheduling.scheduler import Places
from app.store.session import Connection, freeze
from app.store.transaction import Transaction

Lane = tuple[str, str]
"""(queue, tenant)."""

Times = tuple[int, int, int]
"""A queue's clock, since_move and horizon."""


@dataclass(frozen=True, slots=True)
class Held:
    """What memory held. `forgotten` are lanes that it dropped and whose rows are still to be deleted; `corrections`
    tells whether the numbers of jobs have been set right by anybody else since; `waits` is of how many queued jobs the
    metrics know."""

    queued: Places
    tokens: dict[str, str]
    running: dict[str, int]
    lanes: dict[Lane, int]
    forgotten: frozenset[Lane]
    clocks: dict[str, Times]
    numbers: Tally
    corrections: int
    waits: int
    known_tenants: set[str]
    known_queues: set[str]


async def hold(core: Core, looking: Connection) -> Held | None:
    """Copy what memory holds and freeze what `looking` sees, at one moment. None if just then something is on its way
    into the database or out of it; that is over with the next commit, or tick. Raises `Unavailable`."""

    async def copy(_tx: Transaction) -> Held | None:
        if core.order.has_unwritten or core.to_recount:
            return None
        await freeze(looking)
        return _held(core)

    return await core.write(copy, alone=True)


def _held(core: Core) -> Held:
    order = core.order
    return Held(
        queued=order.places(),
        tokens=core.leases.tokens(),
        running=order.running_by_tenant(),
        lanes=order.virtual_times(),
        forgotten=frozenset(core.forgotten_lanes),
        clocks={time.queue: time[1:] for time in order.queue_times()},
        numbers=core.counts.tally(),
        corrections=core.counts.corrections,
        waits=len(core.queued_since),
        known_tenants=core.known_tenants.copy(),
        known_queues=core.known_queues.copy(),
    )
