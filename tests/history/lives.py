"""The life of each job, by the tables and by what clients saw of it: legal moves, nothing early, nothing late, and
nothing after the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from app.scheduling.backoff import backoff
from app.scheduling.job import INITIAL_STATES, LEGAL_MOVES, Attempt, Job, Outcome, State
from tests.history.acknowledged import asked, jobs_in
from tests.history.record import Call, History, Watched
from tests.history.tables import Tables, shown
from tests.history.terms import Terms

_ENDS = {
    Outcome.COMPLETED: State.COMPLETED,
    Outcome.CANCELLED: State.CANCELLED,
    Outcome.RELEASED: State.QUEUED,
}


def illegal(history: History, tables: Tables) -> Iterator[str]:
    """Moves that no job may make."""
    for row in tables.jobs.values():
        walked = _walk(row, tables.attempts(row.id))
        if walked[0] not in INITIAL_STATES:
            yield f"illegal: job {row.id} began as {walked[0]}"
        for old, new in pairwise(walked):
            if new not in LEGAL_MOVES[old]:
                yield f"illegal: job {row.id} went from {old} to {new}"
        yield from _miscounted(row, tables.attempts(row.id))
    yield from _watched_wrongly(history.watched)


def _walk(row: Job, attempts: Sequence[Attempt]) -> list[State]:
    """The states that a job has gone through, by its row and its attempts."""
    states = [State.PENDING if row.due_at > row.submitted_at else State.QUEUED]
    for attempt, queued_at in _with_next(row, attempts):
        states += [State.QUEUED] if states[-1] is State.PENDING else []
        states += [State.SCHEDULED, *([State.RUNNING] if attempt.started_at else [])]
        is_last = attempt is attempts[-1]
        if attempt.outcome in _ENDS:
            states.append(_ENDS[attempt.outcome])
        elif is_last and row.state is State.FAILED:
            states.append(State.FAILED)
        else:
            states.append(State.QUEUED if queued_at == attempt.ended_at else State.PENDING)
    return states + _rest(states[-1], row)


def _with_next(row: Job, attempts: Sequence[Attempt]) -> Iterator[tuple[Attempt, datetime | None]]:
    """Each attempt, and when the job was queued for the next one."""
    return zip(attempts, [*(each.queued_at for each in attempts[1:]), row.queued_at], strict=False)


def _rest(state: State, row: Job) -> list[State]:
    """From the end of the last attempt to the row as it is."""
    if state is row.state:
        return []
    waits = [State.QUEUED] if state is State.PENDING and row.queued_at is not None else []
    if row.state is State.QUEUED:
        return waits or [State.QUEUED]
    if row.state is State.SCHEDULED:
        return [*waits, State.SCHEDULED]
    if row.state is State.RUNNING:
        return [*waits, State.SCHEDULED, State.RUNNING]
    return [*waits, row.state]


def _miscounted(row: Job, attempts: Sequence[Attempt]) -> Iterator[str]:
    counted = sum(attempt.outcome is not Outcome.RELEASED for attempt in attempts) + row.state.is_leased
    if row.attempt != counted or counted > row.max_attempts:
        yield f"miscounted: job {row.id} has {counted} attempts of {row.max_attempts}, and says {row.attempt}"
    if [attempt.number for attempt in attempts] != list(range(1, len(attempts) + 1)):
        yield f"miscounted: the attempts of job {row.id} are numbered {[attempt.number for attempt in attempts]}"


def _watched_wrongly(watched: Sequence[Watched]) -> Iterator[str]:
    """By the stream of moves: each leaves from where the one before it led."""
    last: dict[tuple[str, str], str] = {}
    for move in watched:
        before = last.get((move.stream, move.job_id))
        if before is not None and move.old != before:
            yield f"illegal: job {move.job_id} was told to go from {before}, then from {move.old} to {move.new}"
        is_legal = move.new in (INITIAL_STATES if move.old is None else LEGAL_MOVES[State(move.old)])
        if not is_legal:
            yield f"illegal: job {move.job_id} was told to go from {move.old} to {move.new}"
        last[move.stream, move.job_id] = move.new


def given_up(history: History, tables: Tables) -> Iterator[str]:
    """Jobs that failed with attempts left, though no worker said that it is for good."""
    for_good = {
        call.body["token"] for call in history.of("fail") if call.may_have_happened and not call.body.get("retry", True)
    }
    for call in history.of("finish"):
        for_good |= {item["token"] for item in call.body["results"] if not item.get("retry", True)}
    for row in tables.jobs.values():
        has_attempts_left = row.state is State.FAILED and row.attempt < row.max_attempts
        last = tables.attempts(row.id)[-1:]
        if has_attempts_left and not any(attempt.token in for_good for attempt in last):
            yield f"given up: job {row.id} failed after {row.attempt} of {row.max_attempts} attempts"


def changed_after_the_end(history: History, tables: Tables) -> Iterator[str]:
    """Final jobs that are not as a client has seen them, or that a client saw at work later."""
    ended: dict[str, Call] = {}
    for call in sorted(history.calls, key=lambda call: call.returned_at):
        for job in jobs_in(call):
            row = tables.jobs.get(job["id"])
            if row is None or not State(job["state"]).is_final:
                continue
            ended.setdefault(row.id, call)
            now = shown(row)
            differ = [name for name, value in now.items() if job[name] != value]
            if differ:
                yield f"changed: {differ} of job {row.id}, which {call} saw {job['state']}"
    for call in history.calls:
        for job in jobs_in(call):
            end = ended.get(job["id"])
            if end is not None and end.returned_at < call.invoked_at and not State(job["state"]).is_final:
                yield f"changed: job {job['id']} is {job['state']} in {call}, after it was final in {end}"


def changed_between(before: Tables, after: Tables) -> Iterator[str]:
    """What had ended at one moment and is not the same at a later one."""
    for row in before.jobs.values():
        if row.state.is_final and after.jobs.get(row.id) != row:
            yield f"changed: job {row.id} was {row.state} and is {after.jobs.get(row.id)}"
        ended, now = list(before.attempts(row.id)), list(after.attempts(row.id))
        if ended != now[: len(ended)]:
            yield f"changed: the attempts of job {row.id} were {ended} and are {now}"


def early(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """What came before its time."""
    for row in tables.jobs.values():
        attempts = tables.attempts(row.id)
        queued = [*(attempt.queued_at for attempt in attempts), *([row.queued_at] if row.queued_at else [])]
        if row.due_at < row.submitted_at + timedelta(seconds=row.delay_sec or 0):
            yield f"early: job {row.id} is due at {row.due_at}, {row.delay_sec} s after {row.submitted_at}"
        if queued and queued[0] < row.due_at:
            yield f"early: job {row.id} was queued at {queued[0]} and due at {row.due_at}"
        for attempt, due, again in _retries(row, attempts):
            if again is not None and again < due:
                yield f"early: job {row.id} was queued again at {again}, {attempt.number} was to back off until {due}"
        for attempt in attempts:
            yield from _out_of_order(row, attempt)
            if not terms.is_clock_moved:
                yield from _timed_out_early(row, attempt)
    if not terms.is_clock_moved:
        yield from _claimed_early(history)


def _retries(row: Job, attempts: Sequence[Attempt]) -> Iterator[tuple[Attempt, datetime, datetime | None]]:
    """Each attempt after which the job had to back off, until when at least, and when it was queued again."""
    counted = 0
    for attempt, again in _with_next(row, attempts):
        counted += attempt.outcome is not Outcome.RELEASED
        is_over = attempt is attempts[-1] and row.state.is_final and again == attempt.queued_at
        if attempt.started_at is not None and attempt.outcome not in _ENDS and not is_over:
            yield attempt, attempt.ended_at + backoff(counted, 0), again if again != attempt.queued_at else None


def _out_of_order(row: Job, attempt: Attempt) -> Iterator[str]:
    started = attempt.started_at or attempt.scheduled_at
    if not attempt.queued_at <= attempt.scheduled_at <= started <= attempt.ended_at:
        yield f"early: the times of attempt {attempt.number} of job {row.id} are out of order"


def _timed_out_early(row: Job, attempt: Attempt) -> Iterator[str]:
    started = attempt.started_at or attempt.scheduled_at
    is_timeout = attempt.outcome is Outcome.TIMED_OUT
    if is_timeout and attempt.ended_at < started + timedelta(seconds=row.timeout_sec or 0, milliseconds=-50):
        yield f"early: attempt {attempt.number} of job {row.id} timed out before its {row.timeout_sec} s"


def _claimed_early(history: History) -> Iterator[str]:
    due = {
        each.job["id"]: each.call.invoked_at + (each.request["delay_sec"] or 0)
        for each in asked(history)
        if each.job is not None and each.call.status == 201
    }
    for claim in history.of("claim"):
        for job in jobs_in(claim):
            if claim.returned_at < due.get(job["id"], 0) - 0.05:
                yield f"early: {claim} was given job {job['id']} before it was due"


def late(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    """Due jobs that were not queued within two ticks, where no fault was in the way or after the last that was."""
    if terms.is_clock_moved:
        return
    patience = timedelta(seconds=2 * terms.tick_sec + terms.late_sec)
    waits: dict[str, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for row in tables.jobs.values():
        attempts = tables.attempts(row.id)
        first = attempts[0].queued_at if attempts else row.queued_at
        if first is not None or row.state is State.PENDING:
            waits[row.id].append((row.due_at, first))
        longest = timedelta(seconds=0)
        for attempt, due, again in _retries(row, attempts):
            longest = (due - attempt.ended_at) * 0.1
            if again is not None or row.state is State.PENDING:
                waits[row.id].append((due + longest, again))
    for job_id, times in waits.items():
        for due, queued in times:
            if (queued or tables.read_at) > _excused(due, history, patience) + patience:
                yield f"late: job {job_id} was due at {due}, and queued at {queued}"


def _excused(due: datetime, history: History, patience: timedelta) -> datetime:
    """From when on it is asked for: a fault may begin before there was time, and then its end counts."""
    for fault in sorted(history.faults, key=lambda fault: fault.began):
        if fault.began <= due + patience and due < fault.ended:
            due = fault.ended
    return due
