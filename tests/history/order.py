"""What came out when: as a twin picks that never died, within caps and pauses, and in shares."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from itertools import combinations
from typing import Final

from msgspec import structs

from app.clock import parse_rfc3339
from app.scheduling.job import Attempt, Job, Outcome, State
from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy
from tests import twin
from tests.history.acknowledged import asked
from tests.history.record import Call, History
from tests.history.tables import Tables
from tests.history.terms import Terms

_NEVER: Final = "9999-12-31T23:59:59.999999Z"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a tenant was set from a moment on."""

    since: datetime
    weight: int = 1
    max_running: int | None = None
    paused: bool = False


def settings_of(history: History) -> dict[str, list[Setting]]:
    """All that clients were told of each tenant's settings, oldest first."""
    told: dict[str, set[Setting]] = defaultdict(set)
    for call in history.of("set a tenant", "look at a tenant"):
        if call.is_ok:
            answer = call.answer
            since = parse_rfc3339(answer["updated_at"])
            told[answer["name"]].add(Setting(since, answer["weight"], answer["max_running"], answer["paused"]))
    return {name: sorted(settings, key=lambda setting: setting.since) for name, settings in told.items()}


# -- the twin


def out_of_order(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """Where the order differs from that of a twin that never died. Priorities may be changed only while the job is
    pending or its tenant paused: the tables do not say when else it was."""
    first = {each.job["id"]: each.request["priority"] for each in asked(history) if each.job is not None}
    jobs = [structs.replace(job, priority=first.get(job.id, job.priority)) for job in tables.written.jobs]
    written = replace(tables.written, jobs=jobs)
    steps = list(
        _prioritizings(history, {job.id: job for job in jobs})
    )  # before the end of the pause that they were in
    steps += [(s.since, _put_in_force(name, s)) for name, told in settings_of(history).items() for s in told]
    try:
        yield from (f"order: {wrong}" for wrong in twin.relive(written, terms.policy, terms.step_units, steps).wrong)
    except (twin.Differs, ValueError, KeyError) as differs:  # what is written cannot have happened
        yield f"order: {differs}"


def _put_in_force(name: str, setting: Setting) -> twin.Step:
    def step(alive: twin.Twin) -> None:
        alive.order.set_tenant(name, weight=setting.weight, max_running=setting.max_running, paused=setting.paused)

    return step


def _prioritizings(history: History, jobs: Mapping[str, Job]) -> Iterator[tuple[datetime, twin.Step]]:
    """A pending job is told from the pause on, a queued one, which nobody could see meanwhile, from its end."""
    calls = list(history.of("set a tenant", "look at a tenant", "prioritize"))
    for number, call in enumerate(calls):
        if call.kind != "prioritize" or not call.is_ok:
            continue
        tenant = call.answer["tenant"]
        if call.answer["state"] == State.PENDING:
            when = _told(reversed(calls[:number]), tenant, paused=True)
        else:
            when = _told(calls[number:], tenant, paused=False)
        yield when, _prioritize(jobs[call.answer["id"]], call.answer["priority"])


def _told(calls: Iterable[Call], tenant: str, *, paused: bool) -> datetime:
    """Since when the tenant was paused, or was not, by the first of the calls that says so."""
    told = (
        call.answer["updated_at"]
        for call in calls
        if call.kind != "prioritize"
        and call.is_ok
        and call.answer["name"] == tenant
        and call.answer["paused"] is paused
    )
    return parse_rfc3339(next(told, None) or _NEVER)


def _prioritize(job: Job, priority: int) -> twin.Step:
    def step(alive: twin.Twin) -> None:
        structs.force_setattr(job, "priority", priority)  # what is fed to the twin from here on
        alive.order.reprioritize(job.id, priority)

    return step


# -- caps and pauses


def beyond_limits(history: History, tables: Tables) -> Iterator[str]:
    """Jobs that came out while their tenant was paused or at its cap."""
    settings = settings_of(history)
    moments: list[tuple[datetime, int, Job]] = []
    for job in tables.jobs.values():
        for attempt in tables.attempts(job.id):
            moments += [(attempt.scheduled_at, 1, job), (attempt.ended_at, -1, job)]
        if job.state.is_leased and job.scheduled_at is not None:
            moments.append((job.scheduled_at, 1, job))
    leased: Counter[str] = Counter()
    for moment, change, job in sorted(moments, key=lambda each: each[:2]):
        leased[job.tenant] += change
        told = settings.get(job.tenant, [])
        place = bisect_right(told, moment, key=lambda setting: setting.since)
        if change < 0 or not place:
            continue
        setting = told[place - 1]
        if setting.paused:
            yield f"limit: job {job.id} of {job.tenant}, which was paused, came out at {moment}"
        if setting.max_running is not None and leased[job.tenant] > setting.max_running:
            yield f"limit: {leased[job.tenant]} of {job.tenant}, whose cap was {setting.max_running}, at {moment}"


# -- shares


@dataclass(frozen=True, slots=True)
class _Move:
    """Something that happened to a lane: a job in or out of it, a charge, or what ends the comparison."""

    at: datetime
    tenant: str
    queued: int = 0
    charge: Fraction = Fraction(0)
    breaks: bool = False


def unfair(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """Two tenants that both have jobs waiting and may run, and what they used drifts further apart than 20 steps, two
    shares and the largest charge of each. What was given back, and changes of settings, begin a new comparison."""
    if terms.policy is not Policy.VIRTUAL_TIME:
        return
    settings = settings_of(history)
    free = {name for name, told in settings.items() if all(not s.paused and s.max_running is None for s in told)}
    lanes: dict[str, dict[str, list[_Move]]] = defaultdict(lambda: defaultdict(list))
    for job in tables.jobs.values():
        if job.tenant in free or job.tenant not in settings:
            lanes[job.queue][job.tenant] += _lane_moves(job, tables.attempts(job.id))
    for queue, by_tenant in lanes.items():
        for one, other in combinations(sorted(by_tenant), 2):
            changes = [_Move(s.since, name, breaks=True) for name in (one, other) for s in settings.get(name, [])]
            moves = sorted(by_tenant[one] + by_tenant[other] + changes, key=lambda move: move.at)
            drift, bound = _drift(moves, one, other, terms)
            if drift > bound:
                apart = f"{float(drift):.1f} shares in {queue}, and {float(bound)} are allowed"
                yield f"unfair: {one} and {other} drift apart by {apart}"


def _lane_moves(job: Job, attempts: Sequence[Attempt]) -> Iterator[_Move]:
    for attempt in attempts:
        yield _Move(attempt.queued_at, job.tenant, queued=1)
        charge = Fraction(attempt.cost * (SHARE // attempt.weight), SHARE)
        yield _Move(attempt.scheduled_at, job.tenant, queued=-1, charge=charge)
        is_refunded = attempt.outcome is Outcome.RELEASED or attempt.started_at is None
        yield _Move(attempt.ended_at, job.tenant, breaks=is_refunded)
    if job.queued_at is not None and (not attempts or job.queued_at > attempts[-1].queued_at):
        yield _Move(job.queued_at, job.tenant, queued=1)
        out_at = job.scheduled_at or job.completed_at
        if out_at is not None:
            yield _Move(out_at, job.tenant, queued=-1, charge=Fraction(job.charge or 0, SHARE))


def _drift(moves: Sequence[_Move], one: str, other: str, terms: Terms) -> tuple[Fraction, Fraction]:
    """How far the two came apart at most, and how far they may."""
    waiting: Counter[str] = Counter()
    largest = {one: Fraction(0), other: Fraction(0)}
    least = most = apart = worst = Fraction(0)
    for move in moves:
        largest[move.tenant] = max(largest[move.tenant], move.charge)
        were_both = waiting[one] > 0 and waiting[other] > 0
        waiting[move.tenant] += move.queued
        if move.breaks or not were_both:
            least = most = apart = Fraction(0)
            continue
        apart += move.charge if move.tenant == one else -move.charge
        least, most = min(least, apart), max(most, apart)
        worst = max(worst, most - least)
    return worst, Fraction(20 * terms.step_units, SHARE) + 2 + largest[one] + largest[other]
