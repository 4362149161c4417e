"""What memory held and what the database held at one moment, compared: slice by slice, so that other work comes in
between. It only finds; what is found may be over by the time it is looked at again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from app.flow.audit.moment import Held, Lane
from app.flow.core import Core, Phase
from app.flow.tally import Tally
from app.scheduling.job import State
from app.store import jobs, queues, tenants
from app.store.session import Connection

_COUNTED_AT_ONCE: Final = 100_000


class Ending(Exception):
    """The service drains: whatever takes long is given up."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Whether jobs wait by the metrics that do not by the order. Jobs, by id, that are in memory's order or leases
    otherwise than in their rows; tenants whose leased jobs are miscounted; numbers of jobs that memory lacks; lanes and
    queues whose times are written otherwise; names that are held for rows and are none."""

    waits: bool
    jobs: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    lacking: Tally = field(default_factory=Tally)
    lanes: set[Lane] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)


async def compare(core: Core, looking: Connection, held: Held) -> Differences:
    """What `looking` sees against what was `held` at the same moment, which is used up. Raises `Ending`, and what the
    database raises if it is away."""
    found = Differences(waits=held.waits != len(held.queued))
    await _compare_queued(core, looking, held, found)
    await _compare_leases(core, looking, held, found)
    await _compare_numbers(core, looking, held, found)
    await _compare_times(core, looking, held, found)
    await _compare_names(core, looking, held, found)
    return found


def go_on(core: Core) -> None:
    """Raises `Ending` if the service drains."""
    if core.phase is Phase.DRAINING:
        raise Ending


async def _compare_queued(core: Core, looking: Connection, held: Held, found: Differences) -> None:
    left = held.queued
    async for rows in jobs.queued_places(looking):
        found.jobs.update(job_id for job_id, *place in rows if left.take(job_id) != tuple(place))
        go_on(core)
    found.jobs.update(left)


async def _compare_leases(core: Core, looking: Connection, held: Held, found: Differences) -> None:
    left = held.tokens
    async for rows in jobs.lease_tokens(looking):
        found.jobs.update(job_id for job_id, token in rows if left.pop(job_id, None) != token)
        go_on(core)
    found.jobs.update(left)


async def _compare_numbers(core: Core, looking: Connection, held: Held, found: Differences) -> None:
    written, running = Tally(), Counter[str]()
    for queue, tenant, state, n in await jobs.count_unfinished(looking):
        written.add(queue, tenant, state, n)
        running[tenant] += n if state.is_leased else 0
    by_state = await jobs.count_by_state(looking)
    go_on(core)
    finished = {key: n for key, n in held.numbers.by_queue.items() if key[1].is_final}
    if _is_unfinished_alike(written, held.numbers, finished) and _totals(finished) == _finished(by_state):
        written.by_queue.update(finished)
    else:
        await _count_finished(core, looking, written)
    lacking = written.minus(held.numbers)
    found.lacking.by_queue.update(lacking.by_queue)
    found.lacking.by_tenant.update(lacking.by_tenant)
    found.lacking.queued.update(lacking.queued)
    found.running.update(name for name in running.keys() | held.running if running[name] != held.running.get(name, 0))


def _is_unfinished_alike(written: Tally, numbers: Tally, finished: dict[tuple[str, State], int]) -> bool:
    """Whoever adds to a final state by hand takes from another; so if nothing is amiss in the others, the totals of
    the final states tell whether their numbers in each queue are right, and millions of rows need not be read."""
    here = Tally(written.by_queue.copy(), written.by_tenant, written.queued)
    here.by_queue.update(finished)
    return not here.minus(numbers)


def _totals(finished: dict[tuple[str, State], int]) -> Counter[State]:
    totals = Counter[State]()
    for (_, state), n in finished.items():
        totals[state] += n
    return totals


def _finished(by_state: dict[State, int]) -> Counter[State]:
    return Counter({state: n for state, n in by_state.items() if state.is_final})


async def _count_finished(core: Core, looking: Connection, written: Tally) -> None:
    newest = await jobs.newest_seq(looking)
    for after in range(0, newest, _COUNTED_AT_ONCE):
        for queue, state, n in await jobs.count_between(looking, after, after + _COUNTED_AT_ONCE):
            if State(state).is_final:
                written.by_queue[queue, State(state)] += n
        go_on(core)


async def _compare_times(core: Core, looking: Connection, held: Held, found: Differences) -> None:
    left, clocks = held.lanes, held.clocks
    async for rows in queues.lanes_in_slices(looking):
        for queue, tenant, virtual_time in rows:
            known = left.pop((queue, tenant), None)
            if known is None and (queue, tenant) in held.forgotten:
                known = min(virtual_time, clocks[queue][0])  # its row goes soon, and means nothing behind the clock
            if known != virtual_time:
                found.lanes.add((queue, tenant))
        go_on(core)
    found.lanes.update(left)
    for row in await queues.every(looking):
        held.known_queues.discard(row.name)
        if (row.clock, row.since_move, row.horizon) != clocks.pop(row.name, (0, 0, 0)):
            found.clocks.add(row.name)
    found.clocks.update(clocks)
    found.queues.update(held.known_queues)


async def _compare_names(core: Core, looking: Connection, held: Held, found: Differences) -> None:
    if not held.known_tenants:
        return
    async for names in tenants.names_in_slices(looking):
        held.known_tenants.difference_update(names)
        go_on(core)
    found.tenants.update(held.known_tenants)
