"""A twin that never died: it is fed what the tables say happened, in the order in which it happened, and must
pick at each moment what the service picked. Every time in the tables is given out once, so they put all
events into one order; kills and restarts leave no trace in it, and that is the point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from sqlalchemy import select

from app.clock import to_micros
from app.scheduling.job import Attempt, Job, Outcome, State
from app.scheduling.scheduler import Pick, Policy, Scheduler
from app.store.engine import Engines
from app.store.schema import job_attempts, jobs, lanes, queues

Step = Callable[["Twin"], None]


@dataclass(frozen=True)
class History:
    """All jobs and all ended attempts of a database."""

    jobs: Sequence[Job]
    attempts: Mapping[str, Sequence[Attempt]]
    lanes: Mapping[tuple[str, str], int]
    clocks: Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True)
class _Stint:
    """From queued to the end of the attempt, if it came so far."""

    queued_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None


@dataclass
class Twin:
    """The pure order, and what it has picked."""

    order: Scheduler
    picks: dict[str, Pick] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    picked: list[str] = field(default_factory=list)


async def read_history(engines: Engines) -> History:
    """Everything there is, in one look."""
    async with engines.reader.begin() as connection:
        found = [Job(*row) for row in await connection.execute(select(jobs).order_by(jobs.c.seq))]
        ended: dict[str, list[Attempt]] = {}
        rows = await connection.execute(select(job_attempts).order_by(job_attempts.c.job_id, job_attempts.c.number))
        for row in rows:
            ended.setdefault(row.job_id, []).append(Attempt(*row))
        written = {(row.queue, row.tenant): row.virtual_time for row in await connection.execute(select(lanes))}
        clocks = {
            row.name: (row.clock, row.since_move, row.horizon) for row in await connection.execute(select(queues))
        }
    return History(found, ended, written, clocks)


def relive(history: History, policy: Policy, step_units: int, settings: Iterable[tuple[datetime, Step]] = ()) -> Twin:
    """Feed `history` to a new order, with the `settings` put in force at their times; `wrong` says what differed."""
    twin = Twin(Scheduler(policy, step_units))
    events = [*settings, *(event for job in history.jobs for event in _events(job, history.attempts.get(job.id, ())))]
    for _, step in sorted(events, key=lambda event: event[0]):
        step(twin)
    twin.wrong += _wrong_at_the_end(twin, history)
    return twin


def _events(job: Job, attempts: Sequence[Attempt]) -> Iterator[tuple[datetime, Step]]:
    stints = [_Stint(a.queued_at, a.scheduled_at, a.started_at, a.ended_at, a.outcome) for a in attempts]
    if job.queued_at is not None and (not stints or job.queued_at > stints[-1].queued_at):
        stints.append(_Stint(job.queued_at, job.scheduled_at, job.started_at, None, None))
    for before, stint in pairwise([None, *stints]):
        assert stint is not None
        if before is None or before.ended_at != stint.queued_at:
            yield stint.queued_at, _enqueue(job)
        if stint.scheduled_at is not None:
            yield stint.scheduled_at, _pick(job)
    for stint, after in pairwise([*stints, None]):
        assert stint is not None
        if stint.ended_at is None:
            continue
        refund = stint.outcome is Outcome.RELEASED or (stint.outcome is Outcome.LAPSED and stint.started_at is None)
        is_requeued = after is not None and after.queued_at == stint.ended_at
        yield stint.ended_at, _end(job, refund=refund, is_requeued=is_requeued)
    if job.state is State.CANCELLED and stints and stints[-1].scheduled_at is None and job.completed_at:
        yield job.completed_at, lambda twin: _withdraw(twin, job)


def _enqueue(job: Job) -> Step:
    def step(twin: Twin) -> None:
        twin.order.enqueue(
            job_id=job.id,
            seq=job.seq,
            tenant=job.tenant,
            queue=job.queue,
            priority=job.priority,
            cost=job.cost,
            due_at=to_micros(job.due_at),
            submitted_at=to_micros(job.submitted_at),
        )

    return step


def _pick(job: Job) -> Step:
    def step(twin: Twin) -> None:
        pick = twin.order.pick(job.queue)
        found = pick.job.id if pick else None
        if pick is None or found != job.id:
            twin.wrong.append(f"pick {len(twin.picked)} of {job.queue}: {job.seq} came out, the twin has {pick}")
            raise Differs(twin.wrong[-1])
        twin.picks[job.id] = pick
        twin.picked.append(job.id)

    return step


def _end(job: Job, *, refund: bool, is_requeued: bool) -> Step:
    def step(twin: Twin) -> None:
        pick = twin.picks.pop(job.id)
        charge = pick.charge if refund else 0
        if is_requeued:
            twin.order.requeue(pick.job, charge)
        else:
            twin.order.end(job.tenant, job.queue, charge)

    return step


def _withdraw(twin: Twin, job: Job) -> None:
    twin.order.withdraw(job.id)


class Differs(AssertionError):
    """The service picked what a twin that never died would not have picked."""


def _wrong_at_the_end(twin: Twin, history: History) -> Iterator[str]:
    """Where the tables and the twin disagree about what is to come."""
    for name, written in history.clocks.items():
        state = twin.order.queue(name)
        if written != (state.clock, state.since_move, state.horizon):
            yield f"queue {name} is written as {written}, the twin has {state}"
    for (queue, tenant), virtual_time in history.lanes.items():
        lane = twin.order.lane(queue, tenant)
        clock = twin.order.queue(queue).clock
        # A lane at or behind the clock may be forgotten on either side without changing the order.
        here = max(virtual_time, clock) if not twin.order.queued_of(queue, tenant) else virtual_time
        there = (
            clock if lane is None else max(lane.virtual_time, clock if not twin.order.queued_of(queue, tenant) else 0)
        )
        if here != there:
            yield f"lane {tenant} of {queue} is written at {virtual_time}, the twin has {lane}"
    for job in history.jobs:
        known = twin.order.queued_job(job.id)
        if (job.state is State.QUEUED) != (known is not None):
            yield f"job {job.seq} is {job.state}, the twin has {known}"
        if known is not None and job.effective_priority != known.effective_priority:
            yield f"job {job.seq} has effective priority {job.effective_priority}, the twin has {known}"
