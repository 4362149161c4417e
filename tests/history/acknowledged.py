"""What clients were told with a 2xx is in the tables, what is in the tables somebody asked for, and what was refused
was refused rightly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from app.scheduling.job import Job, Outcome, State
from tests.history.record import Call, History
from tests.history.tables import Tables

T = TypeVar("T")

_DEFAULTS: Final = {
    "queue": "default",
    "priority": 0,
    "delay_sec": 0,
    "payload": None,
    "cost": 1,
    "max_attempts": 3,
    "timeout_sec": None,
}
_ENDINGS: Final = {"complete": Outcome.COMPLETED, "fail": Outcome.FAILED, "release": Outcome.RELEASED}
_REPORTS: Final = ("start", "heartbeat", *_ENDINGS)
_REFUSED: Final = {
    "submit": (422, 429),
    "submit batch": (422, 429),
    "cancel": (409,),
    "prioritize": (409,),
    "retry": (409, 429),
    **dict.fromkeys(_REPORTS, (409,)),
}
"""With which statuses each kind of call may be refused; none where nothing is said, as no client asks what is wrong."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One job that a client asked for, and the answer if there was one."""

    call: Call
    request: dict[str, Any]
    key: str | None
    job: dict[str, Any] | None

    @property
    def content(self) -> bytes:
        """Equal for requests that ask for the same."""
        return msgspec.json.encode(self.request, order="sorted")


def asked(history: History) -> Iterator[Asked]:
    """Every job that was asked for, one by one."""
    for call in history.of("submit"):
        yield Asked(call, _whole(call.body), call.key, call.answer if call.is_ok else None)
    for call in history.of("submit batch"):
        answers = call.answer["jobs"] if call.is_ok else [None] * len(call.body["jobs"])
        for item, answer in zip(call.body["jobs"], answers, strict=True):
            request = {name: value for name, value in item.items() if name != "idempotency_key"}
            yield Asked(call, _whole(request), item.get("idempotency_key"), answer)


def jobs_in(call: Call) -> Iterator[dict[str, Any]]:
    """The jobs that an answer shows."""
    if not call.is_ok:
        return
    found = call.answer if isinstance(call.answer, list) else call.answer.get("jobs", [call.answer])
    yield from (job for job in found if isinstance(job, dict) and "test_suite" in job)


def lost(history: History, tables: Tables) -> Iterator[str]:
    """Jobs that a client has seen and that are not there, or not as they were asked for."""
    prioritized = {call.job_id for call in history.of("prioritize") if call.may_have_happened}
    for each in asked(history):
        if each.job is not None and (row := tables.jobs.get(each.job["id"])):
            yield from _altered(each, row, is_prioritized=row.id in prioritized)
    seen = {job["id"]: call for call in history.calls for job in jobs_in(call)}
    for job_id, last in seen.items():
        if job_id not in tables.jobs:
            yield f"lost: job {job_id}, acknowledged in {last}, is not there"


def _altered(each: Asked, row: Job, *, is_prioritized: bool) -> Iterator[str]:
    for name, value in each.request.items():
        if getattr(row, name) != value and not (name == "priority" and is_prioritized):
            yield f"altered: {name} of job {row.id} is {getattr(row, name)!r}, and {value!r} in {each.call}"
    if row.idempotency_key != each.key:
        yield f"altered: job {row.id} is under the key {row.idempotency_key}, and {each.key} in {each.call}"


def unasked(history: History, tables: Tables) -> Iterator[str]:
    """Jobs that nobody asked for: each is one of the requests that were not refused."""
    requests = [each for each in asked(history) if each.call.may_have_happened]
    keys = {(each.request["tenant"], each.key) for each in requests if each.key is not None}
    known = {each.job["id"] for each in requests if each.job is not None}
    unknown = Counter(each.content for each in requests if each.key is None and each.job is None)
    retries = Counter(call.job_id for call in history.of("retry") if call.may_have_happened)
    for row in tables.jobs.values():
        if row.retry_of is not None:
            is_asked = _take(retries, row.retry_of)
        elif row.idempotency_key is not None:
            is_asked = (row.tenant, row.idempotency_key) in keys
        else:
            is_asked = row.id in known or _take(unknown, _content(row))
        if not is_asked:
            yield f"unasked: nobody asked for job {row.id} of {row.tenant}, {row.test_suite}"


def _take(counter: Counter[T], what: T) -> bool:
    counter[what] -= 1
    return counter[what] >= 0


def _content(row: Job) -> bytes:
    given = {name: getattr(row, name) for name in ("tenant", "test_suite", *_DEFAULTS)}
    return msgspec.json.encode(given, order="sorted")


def doubled(history: History, tables: Tables) -> Iterator[str]:
    """More than one job for an idempotency key, in the tables or by what clients were told."""
    rows = Counter((row.tenant, row.idempotency_key) for row in tables.jobs.values() if row.idempotency_key)
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    new: Counter[tuple[str, str]] = Counter()
    for each in asked(history):
        if each.key is not None and each.job is not None:
            of = (each.request["tenant"], each.key)
            told[of].add(each.job["id"])
            new[of] += each.call.kind == "submit" and each.call.status == 201
    for of in rows.keys() | told.keys():
        if rows[of] > 1 or len(told[of]) > 1:
            yield f"doubled: key {of} has {rows[of]} jobs, and clients were told of {sorted(told[of])}"
        elif new[of] > 1:
            yield f"doubled: key {of} was answered {new[of]} times as new"


def reports(history: History, tables: Tables) -> Iterator[str]:
    """What workers said and how it was taken: a report that was taken has ended its attempt, and no other has."""
    taken_at: dict[str, float] = {}
    results: dict[str, list[Any]] = defaultdict(list)
    for call in history.of("complete"):
        results[call.body["token"]].append(call.body.get("result"))
    for call in history.of(*_REPORTS):
        token = call.body["token"]
        attempt = tables.by_token.get(token)
        if call.is_ok:
            yield from _taken_wrongly(call, token, tables, results[token])
            if call.kind in _ENDINGS:
                taken_at[token] = min(call.returned_at, taken_at.get(token, call.returned_at))
        elif call.status == 409 and call.kind in _ENDINGS and taken_at.get(token, call.invoked_at) < call.invoked_at:
            yield f"refused: {call} of job {call.job_id} said again what was taken before"
        if attempt is not None and attempt.job_id != call.job_id:
            yield f"misplaced: the attempt that {call} was about is one of job {attempt.job_id}"


def _taken_wrongly(call: Call, token: str, tables: Tables, results: list[Any]) -> Iterator[str]:
    attempt, row = tables.by_token.get(token), tables.jobs.get(call.job_id or "")
    if attempt is None:
        is_held = row is not None and row.token == token
        if not is_held or call.kind in _ENDINGS:
            yield f"undone: {call} of job {call.job_id} was acknowledged, and its attempt has not ended"
        return
    if call.kind == "start" and attempt.started_at is None:
        yield f"undone: {call} of job {call.job_id} was acknowledged, and the attempt never started"
    if call.kind in _ENDINGS and not attempt.outcome.is_reported:
        yield f"taken too late: {call} of job {call.job_id}, whose attempt has {attempt.outcome}"
    if call.kind == "complete" and attempt.outcome is Outcome.COMPLETED:
        is_done = row is not None and row.state is State.COMPLETED and row.result in results
        if not is_done:
            yield f"undone: {call} of job {call.job_id} was acknowledged, and the job is {row}"


def unasked_ends(history: History, tables: Tables) -> Iterator[str]:
    """Attempts and jobs that ended as nobody said."""
    said = {(kind, call.body["token"]) for kind in _ENDINGS for call in history.of(kind) if call.may_have_happened}
    said |= {
        ("complete" if item["outcome"] == "completed" else "fail", item["token"])
        for call in history.of("finish")
        if call.may_have_happened
        for item in call.body["results"]
    }
    kinds = {outcome: kind for kind, outcome in _ENDINGS.items()}
    told = {job["lease"]["token"] for call in history.of("claim") for job in jobs_in(call)}
    for token, attempt in tables.by_token.items():
        kind = kinds.get(attempt.outcome)
        is_given_back = kind == "release" and token not in told  # by the service, for a client that hung up
        if kind is not None and not is_given_back and (kind, token) not in said:
            yield f"unsaid: an attempt of job {attempt.job_id} has {attempt.outcome}, which no worker said"
    yield from _unasked_cancels(history, tables)


def _unasked_cancels(history: History, tables: Tables) -> Iterator[str]:
    one_by_one = {call.job_id for call in history.of("cancel") if call.may_have_happened}
    in_bulk = [call.body for call in history.of("cancel many") if call.may_have_happened]
    for row in tables.jobs.values():
        if row.state is not State.CANCELLED or row.id in one_by_one:
            continue
        if not any(all(getattr(row, name) == value for name, value in body.items()) for body in in_bulk):
            yield f"unsaid: nobody has cancelled job {row.id}"


def refusals(history: History, tables: Tables) -> Iterator[str]:
    """Answers that no client should get."""
    for call in history.calls:
        status = call.status
        if status is None or call.is_ok or status == 503 or status in _REFUSED.get(call.kind, ()):
            continue
        known = "" if call.job_id is None or call.job_id not in tables.jobs else ", and the job is there"
        yield f"refused: {call} {call.path}: {call.answer}{known}"


def settings(history: History, tables: Tables) -> Iterator[str]:
    """Settings that were acknowledged last and are not in force."""
    last: dict[str, dict[str, Any]] = {}
    for call in history.of("set a tenant", "look at a tenant"):
        if call.is_ok and call.answer["updated_at"] >= last.get(call.answer["name"], call.answer)["updated_at"]:
            last[call.answer["name"]] = call.answer
    doubtful = {call.path for call in history.of("set a tenant") if not call.is_ok and call.may_have_happened}
    for name, told in last.items():
        row = tables.tenants.get(name)
        differ = row is None or any(getattr(row, field) != told[field] for field in ("weight", "max_running", "paused"))
        if differ and f"/tenants/{name}" not in doubtful:
            yield f"lost: tenant {name} was set to {told}, and is {row}"


def _whole(request: dict[str, Any]) -> dict[str, Any]:
    whole = _DEFAULTS | request
    if whole.pop("run_at", None) is not None:  # the rows say when that was: `early` and `late` judge it
        whole["delay_sec"] = None
    return whole
