"""Why a job waits: what it stands behind, what holds it, when it may go, and what would make it the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.clock import rfc3339
from app.flow.core import Core
from app.flow.lease import existing_job
from app.scheduling.job import Job, State
from app.scheduling.scheduler import SHARE, Outlook, Policy, Standing
from app.store.transaction import Transaction

MOST_AHEAD: Final = 10_000
"""Jobs that go first are counted up to here."""

QUIET_SEC: Final = 60.0
"""A queue that no worker has asked for in this time, while none holds a job of it, has no worker. Twice as long as a
claim may wait."""

_COUNTED_AT_ONCE: Final = 250
"""In less than a millisecond; then others go first."""

_TRIES: Final = 3
_NAMED: Final = 3


class Code(StrEnum):
    """What keeps a job from being picked."""

    DELAYED = "delayed"
    CAP = "cap"
    PAUSED_TENANT = "paused_tenant"
    PAUSED_QUEUE = "paused_queue"
    OTHERS_FIRST = "others_first"
    NO_WORKER = "no_worker"
    LEASED = "leased"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps it, and a sentence on it."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a queued job's place follows from, in shares. `key` is what it will have as the head of its lane, and the
    smallest key goes first: `virtual_time` + `own_charges` + `head_start` by virtual time, else the effective
    priority. Ties go by `due_at`, under the penalty rule by `submitted_at`, then by `seq`."""

    policy: Policy
    key: float
    virtual_time: float | None
    clock: float | None
    own_charges: float | None
    head_start: float | None
    step: float | None
    charge: float | None
    priority: int
    effective_priority: int
    weight: int
    cost: int
    due_at: datetime
    submitted_at: datetime
    seq: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """When it is picked if all goes on as it did lately: in eight of ten cases between `earliest` and `latest`."""

    earliest: datetime
    likely: datetime
    latest: datetime


class Kind(StrEnum):
    """What can be changed for a job to be the next."""

    RESUME_QUEUE = "resume_queue"
    RESUME_TENANT = "resume_tenant"
    RAISE_CAP = "raise_max_running"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class Change:
    """One change; `name` is the queue's, the tenant's or the job's, `value` what to set, None for a pause."""

    kind: Kind
    name: str
    value: int | None


@dataclass(frozen=True, slots=True)
class ToBeNext:
    """The smallest change that would make it the next of its queue, in the order in which to do it: none if it is the
    next, None if there is none, and `text` says why."""

    changes: list[Change] | None
    text: str


@dataclass(frozen=True, slots=True)
class Overtaking:
    """How many jobs of another tenant can go before it from now on, at most, whatever is submitted: of a tenant of
    weight 1, and of those that have jobs ahead of it now, with their weights. `credit` is in shares."""

    credit: float
    of_weight_1: int
    by_tenant: dict[str, int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job waits. `ahead` and what follows from the order is None for a job that is not queued."""

    id: str
    state: State
    ahead: int | None
    ahead_exact: bool
    ahead_by_tenant: Mapping[str, int]
    terms: Terms | None
    reasons: list[Reason]
    estimate: Estimate | None
    to_be_next: ToBeNext
    bound: Overtaking | None


async def explain(core: Core, job_id: str, only: str | None = None) -> Explanation:
    """Why the job waits, as of one moment. The order is not held up: long queues are counted bit by bit, one
    explanation at a time. Where `only` is a tenant, no other one is named.

    Raises `NotFound`, `Unavailable`.
    """
    for _ in range(_TRIES):
        async with core.reading() as connection:
            job = await existing_job(connection, job_id)
        if job.state is not State.QUEUED:
            return _of_no_place(core, job)
        async with core.sparing:
            outlook = core.order.outlook(job_id, MOST_AHEAD)
            if outlook is not None:
                return await _of_place(core, job, outlook, only)
        await core.write(_nothing)  # it is being picked right now: behind this it is known how that ends
    return _of_no_place(core, job)


async def _nothing(tx: Transaction) -> None:
    """Comes after everything that is being written."""


def _of_no_place(core: Core, job: Job) -> Explanation:
    """Of a job that is not in the order."""
    reasons, why = _without_place(core, job)
    return Explanation(
        id=job.id,
        state=job.state,
        ahead=None,
        ahead_exact=False,
        ahead_by_tenant={},
        terms=None,
        reasons=reasons,
        estimate=None,
        to_be_next=ToBeNext(None, why),
        bound=None,
    )


def _without_place(core: Core, job: Job) -> tuple[list[Reason], str]:
    """What it is instead of queued, and why nothing makes it the next."""
    if job.state is State.PENDING:
        seconds = (job.run_at - core.clock.now()).total_seconds()
        again = "Its last attempt did not succeed; it is tried again" if job.attempt else "It is due"
        text = f"{again} at {rfc3339(job.run_at)}, in {max(0.0, seconds):.0f} s."
        return [Reason(Code.DELAYED, text)], "It has no place before it is due, and when that is cannot be changed."
    if job.state.is_leased:
        since = rfc3339(job.scheduled_at) if job.scheduled_at else ""
        until = rfc3339(job.lease_expires_at) if job.lease_expires_at else ""
        text = f"Worker {job.worker} holds it since {since}; its lease is good until {until}."
        return [Reason(Code.LEASED, text)], "It does not wait: a worker holds it."
    if job.state.is_final:
        since = rfc3339(job.completed_at) if job.completed_at else ""
        return [Reason(Code.FINAL, f"It is {job.state} since {since}.")], f"It does not wait: it is {job.state}."
    return [], "Its row was changed by hand, and the service has not taken it up yet."


async def _of_place(core: Core, job: Job, outlook: Outlook, only: str | None) -> Explanation:
    """Of a job that is queued."""
    with closing(outlook):
        weights = {name: weight for name, weight in outlook.weights.items() if only in (None, name)}
        while outlook.count(_COUNTED_AT_ONCE):
            await core.sparing.pause()
    named = Counter({name: n for name, n in outlook.by_tenant.items() if only in (None, name)})
    reasons = list(_reasons(core, outlook, named))
    return Explanation(
        id=job.id,
        state=State.QUEUED,
        ahead=outlook.ahead,
        ahead_exact=outlook.is_exact,
        ahead_by_tenant=named,
        terms=_terms(core, job, outlook.standing),
        reasons=reasons,
        estimate=_estimate(core, outlook, reasons),
        to_be_next=_to_be_next(outlook),
        bound=_bound(outlook.standing, weights),
    )


def _reasons(core: Core, outlook: Outlook, named: Counter[str]) -> Iterator[Reason]:
    standing = outlook.standing
    job, tenant = standing.job, standing.tenant
    if standing.is_queue_paused:
        text = f"Queue {job.queue} is paused: nothing is claimed from it until it is resumed."
        yield Reason(Code.PAUSED_QUEUE, text)
    if tenant.paused:
        yield Reason(Code.PAUSED_TENANT, f"Tenant {tenant.name} is paused: none of its jobs goes until it is resumed.")
    if standing.is_at_cap:
        text = (
            f"Tenant {tenant.name} has {tenant.running} jobs at work, over all queues, and may have"
            f" {tenant.max_running}: one of them has to end first."
        )
        yield Reason(Code.CAP, text)
    if outlook.ahead:
        yield Reason(Code.OTHERS_FIRST, f"{_who(outlook, named)} {_because(standing)}")
    if (quiet := _quiet(core, job.queue)) is not None:
        yield Reason(Code.NO_WORKER, quiet)


def _who(outlook: Outlook, named: Counter[str]) -> str:
    """How many go first, and whose they are."""
    told = named.most_common(_NAMED)
    several = [f"{name} {number}" for name, number in told]
    if (others := len(outlook.by_tenant) - len(told)) > 0:
        several.append(f"{others} {'other' if others == 1 else 'others'} {outlook.ahead - sum(n for _, n in told)}")
    number = f"{outlook.ahead}" if outlook.is_exact else f"More than {outlook.ahead}"
    verb = "job goes" if outlook.ahead == 1 else "jobs go"
    return f"{number} {verb} first: {', '.join(several)}."


def _because(standing: Standing) -> str:
    """What puts it behind them."""
    job, name = standing.job, standing.tenant.name
    if not standing.keeps_time:
        effective, asked = job.effective_priority, job.priority
        return f"Its effective priority is {effective}: {asked}, and what {name} had waiting when it was queued."
    own = "" if not standing.own_charges else f", its jobs before this one take {_shares(standing.own_charges):g} more"
    urgency = _shares(standing.step * job.priority)
    return f"{name} {_where(standing)}{own}, and priority {job.priority} counts for {urgency:g}."


def _where(standing: Standing) -> str:
    """How much of its share its tenant has used in the queue."""
    lead = _shares(standing.virtual_time - standing.clock)
    if lead:
        return f"stands {abs(lead):g} shares {'ahead of' if lead > 0 else 'behind'} the queue's clock"
    return "stands at the queue's clock"


def _quiet(core: Core, queue: str) -> str | None:
    """That no worker is there for the queue, if none is."""
    counted = core.counts.of_queue(queue)
    if core.waiting.has(queue) or counted[State.SCHEDULED] or counted[State.RUNNING]:
        return None
    now, last = core.clock.monotonic(), core.asking.last(queue)
    if last is None:
        since = now - core.asking.since
        return f"No worker has asked for jobs of queue {queue} since the service started, {since:.0f} s ago."
    if now - last < QUIET_SEC:
        return None
    return f"No worker has asked for jobs of queue {queue} for {now - last:.0f} s, and none holds one."


def _terms(core: Core, job: Job, standing: Standing) -> Terms:
    queued, is_timed = standing.job, standing.keeps_time
    head_start = standing.step * queued.priority
    key = standing.virtual_time + (standing.own_charges or 0) + head_start
    return Terms(
        policy=core.order.policy,
        key=_shares(key) if is_timed else queued.effective_priority,
        virtual_time=_shares(standing.virtual_time) if is_timed else None,
        clock=_shares(standing.clock) if is_timed else None,
        own_charges=_shares(standing.own_charges) if is_timed and standing.own_charges is not None else None,
        head_start=_shares(head_start) if is_timed else None,
        step=_shares(standing.step) if is_timed else None,
        charge=_shares(standing.charge) if is_timed else None,
        priority=queued.priority,
        effective_priority=queued.effective_priority,
        weight=standing.tenant.weight,
        cost=queued.cost,
        due_at=job.due_at,
        submitted_at=job.submitted_at,
        seq=queued.seq,
    )


def _estimate(core: Core, outlook: Outlook, reasons: list[Reason]) -> Estimate | None:
    """None where nobody can know: something holds it, there is no worker, or too little was seen."""
    if not outlook.is_exact or {reason.code for reason in reasons} - {Code.OTHERS_FIRST}:
        return None
    forecast = core.pace.forecast(outlook.standing.job.queue, outlook.ahead + 1, core.clock.monotonic())
    if forecast is None:
        return None
    now = core.clock.now()
    in_seconds = (forecast.earliest, forecast.likely, forecast.latest)
    return Estimate(*(now + timedelta(seconds=seconds) for seconds in in_seconds))


def _to_be_next(outlook: Outlook) -> ToBeNext:
    standing = outlook.standing
    job, tenant = standing.job, standing.tenant
    if standing.needed_priority is None:
        return ToBeNext(None, f"Not even priority 0 would make it the next one: {_too_late(standing)}")
    changes = [*_lifts(standing)]
    if standing.needed_priority != job.priority:
        changes.append(Change(Kind.PRIORITY, job.id, standing.needed_priority))
    if not changes:
        return ToBeNext([], "It is the next one.")
    said = {
        Kind.RESUME_QUEUE: f"resume queue {job.queue}",
        Kind.RESUME_TENANT: f"resume tenant {tenant.name}",
        Kind.RAISE_CAP: f"let {tenant.name} have {tenant.running + 1} jobs at work",
        Kind.PRIORITY: f"give it priority {standing.needed_priority}",
    }
    steps = ", then ".join(said[change.kind] for change in changes)
    return ToBeNext(changes, f"{steps[0].upper()}{steps[1:]}, and it is the next one.")


def _lifts(standing: Standing) -> Iterator[Change]:
    """What to lift so that nothing holds it."""
    if standing.is_queue_paused:
        yield Change(Kind.RESUME_QUEUE, standing.job.queue, None)
    if standing.tenant.paused:
        yield Change(Kind.RESUME_TENANT, standing.tenant.name, None)
    if standing.is_at_cap:
        yield Change(Kind.RAISE_CAP, standing.tenant.name, standing.tenant.running + 1)


def _too_late(standing: Standing) -> str:
    name = standing.tenant.name
    if standing.keeps_time:
        return f"others have used less of their share than {name}, or are urgent themselves and came before."
    return f"others have fewer jobs waiting than {name} had, or are urgent themselves and came before."


def _bound(standing: Standing, weights: Mapping[str, int]) -> Overtaking | None:
    bound, name = standing.bound, standing.tenant.name
    if bound is None:
        return None
    credit = _shares(bound.credit)
    text = (
        f"While {name} is neither paused nor at its cap and weights and step stay as they are, a tenant of weight 1"
        f" gets at most {bound.picks(1)} jobs of this queue in before it, whatever it submits, and one more for each"
        f" that it gives back; other weights as many times more. Only jobs of {name} itself can add to that."
    )
    return Overtaking(credit, bound.picks(1), {other: bound.picks(weight) for other, weight in weights.items()}, text)


def _shares(units: int) -> float:
    return round(units / SHARE, 6)
