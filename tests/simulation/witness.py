"""Sees every commit as the file has it, and finds out for each job that changed what of all that was asked, or what
that was over or due, has made it so. The model of one job says what each of these does; what nothing explains is wrong,
and so is an answer that the model would have given at no moment since the question."""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from app.clock import parse_rfc3339
from app.scheduling.job import Job
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings
from tests.contract import model
from tests.contract.model import FINAL, GRACE_SEC, LEASED, Answer
from tests.simulation.requests import (
    Box,
    CancelMany,
    Claim,
    OfJob,
    Report,
    ReportMany,
    Sent,
    SetQueue,
    SetTenant,
    Submit,
)

_COLUMNS: Final = (
    "id seq tenant test_suite queue priority state attempt max_attempts timeout_sec run_at worker token"
    " lease_expires_at started_at error retry_of idempotency_key"
)
_JOBS: Final = f"SELECT {', '.join(_COLUMNS.split())} FROM jobs ORDER BY seq"
_ATTEMPTS: Final = (
    "SELECT rowid, job_id, number, token, worker, outcome, error, started_at FROM job_attempts"
    " WHERE rowid > ? ORDER BY rowid"
)
_SETTINGS: Final = tuple(TenantSettings.__slots__)
_TENANTS: Final = f"SELECT name, updated_at, {', '.join(_SETTINGS)} FROM tenants ORDER BY name"

_TOLERANCE_SEC: Final = 0.05
_MOST_STEPS: Final = 7
"""More than this never happens to one job in one commit here."""


class Wrong(AssertionError):
    """The service did what the model does not allow."""


class Row(NamedTuple):
    """What is looked at of a job."""

    id: str
    seq: int
    tenant: str
    test_suite: str
    queue: str
    priority: int
    state: str
    attempt: int
    max_attempts: int
    timeout_sec: int | None
    run_at: str
    worker: str | None
    token: str | None
    lease_expires_at: str | None
    started_at: str | None
    error: str | None
    retry_of: str | None
    idempotency_key: str | None


class Attempt(NamedTuple):
    """What is looked at of an ended attempt."""

    rowid: int
    job_id: str
    number: int
    token: str
    worker: str
    outcome: str
    error: str | None
    started_at: str | None


class Tenant(NamedTuple):
    """What is in force for a tenant, and since when."""

    settings: TenantSettings
    updated_at: datetime


@dataclass(eq=False)
class Known:
    """A job: its row, what the model says of it as of a time, and everything that it has been. Of what is left of its
    lease and its time the model knows the least that there may be."""

    row: Row
    now: model.Job
    as_of: float
    tokens: list[str] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    ended: list[model.Ended] = field(default_factory=list)
    lapsed: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By token, in which commit and when."""
    been: list[tuple[int, model.Job]] = field(default_factory=list)
    """By the number of the commit: several, if one commit made several moves."""

    def since(self, commit: int) -> list[model.Job]:
        """What it was then, and everything it has been from then on."""
        before = [job for number, job in self.been if number <= commit][-1:]
        return before + [job for number, job in self.been if number > commit]

    def passed(self, now: float) -> None:
        self.now, self.as_of = model.passed(self.now, now - self.as_of), now


class Step(NamedTuple):
    """One thing that may have happened to a job, and the request whose effect it would be."""

    job: model.Job
    says: Answer | None
    by: Sent | None
    what: str


@dataclass
class Witness:
    """`file` is the database; `box` is what was sent; `say` takes lines for the trace; `given` is every token that a
    claim has answered."""

    file: sqlite3.Connection
    box: Box
    say: Callable[[str], None]
    commit: int = 0
    jobs: dict[str, Known] = field(default_factory=dict)
    by_token: dict[str, tuple[Known, int]] = field(default_factory=dict)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    tenants_been: list[tuple[int, str, Tenant]] = field(default_factory=list)
    queues: dict[str, bool] = field(default_factory=dict)
    queues_been: list[tuple[int, str, bool]] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    forms: dict[str, Submit] = field(default_factory=dict)
    """Which batch a job's name belongs to."""
    typed: set[str] = field(default_factory=set)
    """Tenants and queues that somebody has set by hand, in force at some tick."""
    left: set[str] = field(default_factory=set)
    """The workers that are gone, or were told nothing: what is leased to them may be given back by the service."""
    effects: dict[object, list[tuple[int, Answer | None]]] = field(default_factory=dict)
    """What was done, by whoever, in which commit, and the answer that is due for it."""
    _last_attempt: int = 0
    _last_found: list[Any] = field(default_factory=list)
    _tenants: dict[str, Tenant] = field(default_factory=dict)

    # -- commits

    def look(self, now: float, wall: datetime, *, since: float, by_hand: bool = False) -> None:
        """Something was committed, by a transaction that had begun at `since`."""
        self.commit += 1
        rows, attempts, tenants, queues = self._read()
        before = self._leased()
        paused = self._paused(tenants, queues)
        self._follow_settings(tenants, queues)
        ended: dict[str, list[Attempt]] = {}
        for attempt in attempts:
            ended.setdefault(attempt.job_id, []).append(attempt)
        if len(rows) < len(self.jobs):
            raise Wrong(f"{len(self.jobs) - len(rows)} jobs are gone")
        for row in rows:
            self._follow(row, ended.pop(row.id, []), now, wall, since=since, by_hand=by_hand, paused=paused)
        if ended:
            raise Wrong(f"attempts ended of jobs that are not there: {ended}")
        if not by_hand:
            self._all_or_none()
        self._caps_hold(before, tenants)
        self.tenants, self.queues = tenants, queues

    def _read(self) -> tuple[list[Row], list[Attempt], dict[str, Tenant], dict[str, bool]]:
        file = self.file
        rows = [Row(*row) for row in file.execute(_JOBS)]
        attempts = [Attempt(*row) for row in file.execute(_ATTEMPTS, (self._last_attempt,))]
        found = file.execute(_TENANTS).fetchall()
        queues = {name: bool(paused) for name, paused in file.execute("SELECT name, paused FROM queues ORDER BY name")}
        self._last_attempt = attempts[-1].rowid if attempts else self._last_attempt
        if found != self._last_found:
            self._last_found = found
            self._tenants = {name: Tenant(_settings(values), parse_rfc3339(at)) for name, at, *values in found}
        return rows, attempts, self._tenants, queues

    def _follow(
        self,
        row: Row,
        ended: list[Attempt],
        now: float,
        wall: datetime,
        *,
        since: float,
        by_hand: bool,
        paused: tuple[set[str], set[str]],
    ) -> None:
        known = self.jobs.get(row.id)
        if known is not None and known.row == row and not ended:
            return
        known = known or self._new(row, now, by_hand=by_hand)
        old, known.row = known.row, row
        known.passed(now)
        fresh = self._note_tokens(known, ended, row)
        ways = self._explained(known, row, wall, by_hand=by_hand, old=old)
        for step in (step for way in ways for step in way):
            known.been.append((self.commit, step.job))
            if step.by is not None:
                self.effects.setdefault(_what(step.by), []).append((self.commit, step.says))
        path = ways[0] if ways else []
        known.now = path[-1].job if path else known.now
        self.say(f"    j{row.seq} {old.state if path else ''}{''.join(' → ' + step.what for step in path) or ' beat'}")
        if fresh and not by_hand:
            self._may_be_leased(row, paused)
        self._beaten(known, old, by_hand=by_hand)
        if known.now.state in LEASED:  # it may have been written as early as the transaction began
            known.now = model.passed(known.now, now - since)

    def _new(self, row: Row, now: float, *, by_hand: bool) -> Known:
        if not by_hand and not any(self._is_asked_for(row, sent) for sent in self.box.open.values()):
            raise Wrong(f"j{row.seq} ({row.test_suite}) is there, and nobody is asking for it")
        is_later = by_hand or (row.retry_of is None and self._delay(row))
        first = model.Job(
            row.max_attempts,
            row.timeout_sec,
            state="pending" if is_later else "queued",
            priority=row.priority if by_hand or row.retry_of else self._asked_priority(row),
        )
        known = self.jobs[row.id] = Known(row._replace(state="new"), first, now)
        known.been.append((self.commit, first))
        return known

    def _is_asked_for(self, row: Row, sent: Sent) -> bool:
        if row.retry_of is not None:
            return isinstance(sent, OfJob) and (sent.kind, sent.job) == ("retry", row.retry_of)
        asked = self.forms.get(row.test_suite)
        return asked is not None and isinstance(sent, Submit) and sent.jobs is asked.jobs

    def _delay(self, row: Row) -> bool:
        return any(job.delay_sec for job in self.forms[row.test_suite].jobs if job.test_suite == row.test_suite)

    def _asked_priority(self, row: Row) -> int:
        [priority] = [job.priority for job in self.forms[row.test_suite].jobs if job.test_suite == row.test_suite]
        return priority

    def _note_tokens(self, known: Known, ended: Sequence[Attempt], row: Row) -> bool:
        """Every attempt has a token of its own, in the order of the claims; whether there is a new one."""
        had = len(known.tokens)
        for attempt in ended:
            self._note_token(known, attempt.number - 1, attempt.token, attempt.worker)
            was_started = attempt.started_at is not None
            if attempt.outcome == "lapsed":
                known.lapsed[attempt.token] = self.commit, known.as_of
            known.ended.append(model.Ended(attempt.outcome, attempt.error, was_started=was_started))
        if row.token is not None:
            self._note_token(known, len(known.ended), row.token, row.worker or "")
        return len(known.tokens) > had

    def _note_token(self, known: Known, number: int, token: str, worker: str) -> None:
        if number < len(known.tokens):
            if known.tokens[number] != token:
                raise Wrong(f"j{known.row.seq}: attempt {number + 1} had another token")
            return
        if number > len(known.tokens) or token in self.by_token:
            raise Wrong(
                f"j{known.row.seq}: the token {token[:6]} of attempt {number + 1} is not a new one, or one is left out"
            )
        known.tokens.append(token)
        known.workers.append(worker)
        self.by_token[token] = (known, number)

    # -- why

    def _explained(self, known: Known, row: Row, wall: datetime, *, by_hand: bool, old: Row) -> list[list[Step]]:
        """The shortest ways from what the job was to what it is: several, if their order is not to be seen."""
        wanted = _Target(row, known, tuple(known.ended))
        if wanted.is_met_by(known.now) and old.state != "new":
            return []
        if by_hand:
            return [[self._typed(known, row)]]
        start = Step(known.now, None, None, known.now.state)
        first = [start] if old.state == "new" else []
        ways: deque[tuple[Step, list[Step]]] = deque([(start, first)])
        found: list[list[Step]] = []
        while ways and not (found and len(ways[0][1]) > len(found[0])):
            last, way = ways.popleft()
            if wanted.is_met_by(last.job):
                found.append(way)
            elif len(way) < _MOST_STEPS and wanted.may_come_of(last.job):
                used = {step.by for step in way if not isinstance(step.by, Claim)}
                for step in self._next(known, last.job, row, wall):
                    if step.by is None or step.by not in used:
                        ways.append((step, [*way, step]))
        if found:
            return found
        raise Wrong(
            f"j{row.seq} was {known.now}\n  and is {row}\n  with the attempts {wanted.ended}:"
            f" nothing that was asked, over or due has done that"
        )

    def _next(self, known: Known, job: model.Job, row: Row, wall: datetime) -> Iterator[Step]:
        """Everything that can have happened to a job that was so."""
        if job.state in FINAL:
            return
        yield from self._by_itself(known, job, row, wall)
        for sent in self.box.open.values():
            yield from self._by(sent, known, job, row)

    def _by(self, sent: Sent, known: Known, job: model.Job, row: Row) -> Iterator[Step]:
        """What this request can have done to a job that was so."""
        match sent:
            case Claim() if job.state == "queued":
                if known.workers[len(job.ended) : len(job.ended) + 1] == [sent.asked.worker]:
                    after, says = model.claim(job, start=sent.asked.start)
                    yield Step(after, says, sent, f"{after.state} by {sent.asked.worker}")
            case Report() | ReportMany():
                for report in sent.reports if isinstance(sent, ReportMany) else (sent,):
                    if report.job == row.id and job.state in LEASED and report.call != "heartbeat":
                        yield from self._reported(known, job, report)
            case OfJob(kind="cancel" | "prioritize") if sent.job == row.id:
                after, says = _asked_of(sent, job)
                if says.kind == "job":
                    yield Step(after, says, sent, sent.kind if sent.kind == "cancel" else f"priority {sent.priority}")
            case CancelMany() if _matches(sent, row, job.state):
                after, says = model.cancel(job)
                yield Step(after, says, sent, "cancelled with others")
            case _:
                pass

    def _reported(self, known: Known, job: model.Job, sent: Report) -> Iterator[Step]:
        if known.tokens[len(job.ended) : len(job.ended) + 1] == [sent.token]:
            after, says = model.report(job, sent.call, len(job.ended))
            if after != job:
                yield Step(after, says, sent, f"{after.state} by {sent.call}")

    def _by_itself(self, known: Known, job: model.Job, row: Row, wall: datetime) -> Iterator[Step]:
        if job.state == "pending" and parse_rfc3339(row.run_at) <= wall:
            yield Step(replace(job, state="queued", due_left=None), None, None, "queued, being due")
        if job.state in LEASED and known.workers[len(job.ended)] in self.left:
            after, _ = model.report(job, "release", len(job.ended))
            yield Step(after, None, None, f"{after.state}, given back")
        if job.time_left is not None and job.time_left <= _TOLERANCE_SEC:
            after = model.look(replace(job, time_left=0.0, lease_left=1.0))
            yield Step(after, None, None, f"{after.state}, timed out")
        if job.lease_left is not None and job.lease_left <= _TOLERANCE_SEC:
            after = model.look(replace(job, time_left=None, lease_left=0.0))
            yield Step(after, None, None, f"{after.state}, lapsed")

    def _typed(self, known: Known, row: Row) -> Step:
        if row.state == "pending" and known.now.state == "pending":
            return Step(known.now, None, None, "typed")
        if row.state == "cancelled":
            gone = replace(known.now, state="cancelled", lease_left=None, time_left=None, due_left=None)
            return Step(gone, None, None, "cancelled by hand")
        raise Wrong(f"j{row.seq}: nobody types such a thing: {row}")

    def _beaten(self, known: Known, old: Row, *, by_hand: bool) -> None:
        """A lease that ends later than it did was prolonged by somebody."""
        row = known.row
        if by_hand or row.token is None or row.token != old.token or row.lease_expires_at == old.lease_expires_at:
            return
        beats = [each for each in self._reports() if (each.token, each.call) == (row.token, "heartbeat")]
        if not beats:
            raise Wrong(f"j{row.seq}: its lease is longer, and nobody has beaten for it")
        self.effects.setdefault(_what(beats[0]), []).append((self.commit, Answer("nothing")))
        known.now, _ = model.report(known.now, "heartbeat", len(known.now.ended))

    def _reports(self) -> Iterator[Report]:
        for sent in self.box.open.values():
            if isinstance(sent, Report):
                yield sent
            elif isinstance(sent, ReportMany):
                yield from sent.reports

    # -- what must hold between jobs

    def _leased(self) -> Counter[str]:
        return Counter(known.row.tenant for known in self.jobs.values() if known.row.state in LEASED)

    def _caps_hold(self, before: Counter[str], tenants: dict[str, Tenant]) -> None:
        for name, n in self._leased().items():
            limits = [each[name].settings.max_running for each in (self.tenants, tenants) if name in each]
            if name in self.typed or None in limits or not limits:
                continue
            most = max(*(limit or 0 for limit in limits), before[name])
            if n > most:
                raise Wrong(f"{name} has {n} jobs leased and may have {most}")

    def _paused(self, tenants: dict[str, Tenant], queues: dict[str, bool]) -> tuple[set[str], set[str]]:
        """Who was paused before and after this commit."""
        names = {
            name
            for name, tenant in tenants.items()
            if tenant.settings.paused and name in self.tenants and self.tenants[name].settings.paused
        }
        shut = {name for name, paused in queues.items() if paused and self.queues.get(name)}
        return names - self.typed, shut - self.typed

    def _may_be_leased(self, row: Row, paused: tuple[set[str], set[str]]) -> None:
        tenants, queues = paused
        being_set = {sent.name for sent in self.box.open.values() if isinstance(sent, SetTenant | SetQueue)}
        if {row.tenant} & tenants - being_set or {row.queue} & queues - being_set:
            raise Wrong(f"j{row.seq} was leased though {row.tenant} or {row.queue} is paused")

    def _all_or_none(self) -> None:
        """Of a batch whose jobs have no keys all are stored, as often as it was sent, or none."""
        counted = Counter(known.row.test_suite for known in self.jobs.values() if known.row.retry_of is None)
        for form in self.forms.values():
            if not any(job.idempotency_key for job in form.jobs):
                numbers = {counted[job.test_suite] for job in form.jobs}
                if len(numbers) > 1:
                    raise Wrong(f"of one batch some jobs are stored and others not: {form}")

    def _follow_settings(self, tenants: dict[str, Tenant], queues: dict[str, bool]) -> None:
        self.tenants_been += [(self.commit, name, t) for name, t in tenants.items() if self.tenants.get(name) != t]
        self.queues_been += [(self.commit, name, p) for name, p in queues.items() if self.queues.get(name) != p]

    # -- other services

    def restarted(self, now: float, *, new_now: float, wall_moved: bool) -> None:
        """Another service holds the leases now, by a monotonic clock of its own."""
        for known in self.jobs.values():
            known.passed(now)
            known.now = model.restart(known.now)
            known.as_of = new_now
        if wall_moved:
            self.only_grace()

    def only_grace(self) -> None:
        """The wall clock was moved, and what is left of a lease is judged by it."""
        for known in self.jobs.values():
            lefts = {n: left for n in ("lease_left", "time_left") if (left := getattr(known.now, n)) is not None}
            known.now = replace(known.now, **{n: min(left, GRACE_SEC) for n, left in lefts.items()})

    # -- answers

    def answered(self, sent: Sent, answer: Any) -> None:
        """`answer` is what the service said: what that promises must have been committed."""
        match sent:
            case Submit():
                self._submitted(sent, answer)
            case Claim():
                self._claimed(sent, answer)
            case Report():
                self.reported(sent, answer)
            case OfJob():
                self._said_of_job(sent, answer)
            case CancelMany():
                self._cancelled_many(sent)
            case SetTenant():
                been = [t.settings for n, name, t in self.tenants_been if name == sent.name and n > sent.began]
                self._is_in_force(sent, self.tenants.get(sent.name, _NOBODY).settings, been)
            case SetQueue():
                switched = [paused for n, name, paused in self.queues_been if name == sent.name and n > sent.began]
                self._is_in_force(sent, self.queues.get(sent.name), switched)
            case _:
                raise AssertionError(sent)

    def _is_in_force(self, sent: SetTenant | SetQueue, now: Any, been: Sequence[Any]) -> None:
        wanted = sent.settings if isinstance(sent, SetTenant) else sent.paused
        if wanted != now and wanted not in been and not self.box.has_met_others(sent):
            raise Wrong(f"{sent}: answered, and not so")

    def _submitted(self, sent: Submit, jobs: Sequence[Job]) -> None:
        for asked, job in zip(sent.jobs, jobs, strict=True):
            known = self.jobs.get(job.id)
            if known is None:
                raise Wrong(f"{sent}: answered with a job that is not stored")
            row = known.row
            if (row.test_suite, row.tenant, row.queue) != (asked.test_suite, asked.tenant, asked.queue):
                raise Wrong(f"{sent}: answered with another job, {row}")
            if row.idempotency_key != asked.idempotency_key:
                raise Wrong(f"{sent}: stored under another key, {row}")
        if len({job.id for job in jobs}) != len(jobs):
            raise Wrong(f"{sent}: one job for two")

    def _claimed(self, sent: Claim, jobs: Sequence[Job]) -> None:
        if len(jobs) > sent.asked.limit:
            raise Wrong(f"{sent}: {len(jobs)} jobs")
        for job in jobs:
            token = job.token or ""
            if token not in self.by_token or self.by_token[token][0].row.id != job.id:
                raise Wrong(f"{sent}: answered with a lease of {job.id} that is not written")
            known, number = self.by_token[token]
            if token in self.given or known.workers[number] != sent.asked.worker:
                raise Wrong(f"{sent}: answered with the lease of somebody else, {known.row}")
            self.given[token] = job.id

    def reported(self, sent: Report, answer: Answer) -> None:
        known = self.jobs[sent.job]
        number = known.tokens.index(sent.token) if sent.token in known.tokens else None
        lapsed_in, lapsed_at = known.lapsed.get(sent.token, (0, 0.0))
        if sent.call == "heartbeat" and answer.kind == "nothing" and lapsed_in > sent.began:
            if lapsed_at - sent.at < model.LEASE_SEC - _TOLERANCE_SEC:
                raise Wrong(f"{sent}: answered that the lease goes on, and it lapsed at once")
            return
        for job in known.since(sent.began):
            after, says = model.report(job, sent.call, number)
            if says == answer and (after == job or sent.call == "heartbeat"):  # of which an end leaves nothing to see
                return
        if not self._has_had_effect(sent, answer):
            self._wrong_answer(known, sent, answer)

    def _has_had_effect(self, sent: Sent, answer: object) -> bool:
        """Of twins either may be taken for the one that had it."""
        return any(commit > sent.began and said == answer for commit, said in self.effects.get(_what(sent), ()))

    def _said_of_job(self, sent: OfJob, answer: Any) -> None:
        known = self.jobs[sent.job]
        been = known.since(sent.began)
        if sent.kind == "retry":
            self._retried(sent, known, answer)
            return
        if sent.kind == "look":
            is_right = any(answer == job.says for job in been)
        else:
            said = [_asked_of(sent, job) for job in been]
            may_be_overwritten = self.box.has_met_others(sent)
            is_right = any(
                says == answer and (after == job or may_be_overwritten)
                for job, (after, says) in zip(been, said, strict=True)
            )
            is_right |= self._has_had_effect(sent, answer)
        if not is_right:
            self._wrong_answer(known, sent, answer)

    def _retried(self, sent: OfJob, known: Known, answer: Any) -> None:
        if isinstance(answer, Answer):
            if not any(answer == Answer("conflict", job.state) for job in known.since(sent.began)):
                self._wrong_answer(known, sent, answer)
            return
        new = self.jobs.get(answer.id)
        if new is None or new.row.retry_of != sent.job:
            raise Wrong(f"{sent}: answered with a job that is not stored, {answer.id}")

    def _cancelled_many(self, sent: CancelMany) -> None:
        for known in self.jobs.values():
            was_there = known.been[0][0] <= sent.began
            if was_there and all(_matches(sent, known.row, job.state) for job in known.since(sent.began)):
                raise Wrong(f"{sent}: answered, and j{known.row.seq} is {known.now.state}")

    def _wrong_answer(self, known: Known, sent: Sent, answer: object) -> None:
        been = "\n    ".join(str(job) for job in known.since(sent.began))
        raise Wrong(f"{sent}: answered {answer}, and since it was asked j{known.row.seq} was\n    {been}")


class _Target:
    """What a job has become, as far as the model knows."""

    def __init__(self, row: Row, known: Known, ended: tuple[model.Ended, ...]) -> None:
        self._row = row
        self._is_leased = row.token is not None
        self.ended = ended
        if row.token is not None and (len(known.tokens) <= len(ended) or known.tokens[len(ended)] != row.token):
            raise Wrong(f"j{row.seq} is under a token that is not that of its attempt {len(ended) + 1}")

    def is_met_by(self, job: model.Job) -> bool:
        row = self._row
        return (
            (job.state, job.attempt, job.error, job.priority) == (row.state, row.attempt, row.error, row.priority)
            and job.ended == self.ended
            and (job.state in LEASED) == self._is_leased
        )

    def may_come_of(self, job: model.Job) -> bool:
        return job.ended == self.ended[: len(job.ended)]


_NOBODY: Final = Tenant(DEFAULT_TENANT, datetime.min.replace(tzinfo=UTC))


def _what(sent: Sent) -> object:
    """What twins have in common."""
    match sent:
        case Report():
            return sent.token, sent.call
        case OfJob():
            return sent.kind, sent.job, sent.priority
        case _:
            return sent.number


def _asked_of(sent: OfJob, job: model.Job) -> tuple[model.Job, Answer]:
    return model.cancel(job) if sent.kind == "cancel" else model.prioritize(job, sent.priority)


def _matches(sent: CancelMany, row: Row, state: str) -> bool:
    wanted = sent.wanted
    return (
        state not in FINAL
        and row.tenant == wanted.tenant
        and wanted.queue in (None, row.queue)
        and wanted.test_suite in (None, row.test_suite)
        and wanted.state in (None, state)
    )


def _settings(values: Sequence[Any]) -> TenantSettings:
    known = dict(zip(_SETTINGS, values, strict=True))
    return TenantSettings(**{**known, "paused": bool(known["paused"]), "unlimited": bool(known["unlimited"])})
