"""Every call of the service, written once: how it becomes a request, what its answer is read as, and whether it may
be sent twice. `Client` and `AsyncClient` have each of these as a method. No I/O happens here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

from msgspec import UNSET, Struct, UnsetType, ValidationError, json

from app.client.errors import DeadlineExceeded, FairlaneError, FieldError, InvalidRequest
from app.client.exchange import Call, Flow, Pause, Request, Response
from app.client.retry import Terms
from app.client.wire import (
    ApiKey,
    Attempt,
    Beat,
    ClaimedJob,
    Completed,
    Erasure,
    Explanation,
    Failed,
    Hold,
    Job,
    JobPage,
    JobRequest,
    NewApiKey,
    NewJob,
    Queue,
    Replica,
    Report,
    State,
    Stats,
    Tenant,
    new_key,
)

T = TypeVar("T")

MOST_IN_A_BATCH: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
MOST_IN_BULK: Final = 1000

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_LINK_TO_NEXT: Final = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_JSON: Final = {"content-type": "application/json"}
_LONG_SEC: Final = 50.0
_AROUND_BYTES: Final = 64


# --- jobs


def submit(
    tenant: str,
    test_suite: str,
    *,
    priority: int = 0,
    delay_sec: int | None = None,
    run_at: datetime | None = None,
    queue: str = "default",
    payload: Any = None,
    cost: int = 1,
    max_attempts: int = 3,
    timeout_sec: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Job]:
    """Submit a job; when this returns, it is stored for good.

    It is sent with an idempotency key, one of its own unless you give one (1-255 visible ASCII characters, per
    tenant), and so it is stored once however often it had to be sent. The same key with another request is refused.

    Args:
        tenant: who submits, 1-128 characters.
        test_suite: what to run, 1-512 characters.
        priority: 0-10, 0 the most urgent.
        delay_sec: how many seconds after it is stored it is due; at once if neither this nor `run_at` is given.
        run_at: the moment at which it is due instead, aware.
        queue: which workers it is for.
        payload: any JSON of at most 64 KiB; msgspec encodes it, so datetimes, dataclasses and the like will do.
        cost: 1-1000, how much of the tenant's share it takes.
        max_attempts: 1-100.
        timeout_sec: how long an attempt may run, up to a week; None for no limit.

    Raises:
        InvalidRequest, KeyReused, RateLimited, Unavailable, DeadlineExceeded.
    """
    key = idempotency_key if idempotency_key is not None else new_key()
    if not _KEY.fullmatch(key):
        # Here and not by the service, for a header cannot even carry most of what is wrong.
        message = "must be 1-255 visible characters"
        raise InvalidRequest(f"Idempotency-Key {message}", 400, [FieldError("Idempotency-Key", message)])
    job = JobRequest(
        tenant=tenant,
        test_suite=test_suite,
        priority=priority,
        delay_sec=delay_sec,
        run_at=run_at,
        queue=queue,
        payload=payload,
        cost=cost,
        max_attempts=max_attempts,
        timeout_sec=timeout_sec,
    )
    return Call(_post("/jobs", job, {"idempotency-key": key}), _reads(Job))


def submit_batch(jobs: Iterable[NewJob]) -> Call[list[Job]]:
    """Submit up to 10,000 jobs or 16 MiB in one request, all or none; they come back in the same order.

    A larger batch is refused and not split, for then it would no longer be all or none: `submit_all` splits. Each
    job has its key, so the same objects may be sent again after any error.

    Raises:
        InvalidRequest: one job is wrong, and none was stored; `details` names fields like `jobs[17].priority`.
        KeyReused, RateLimited, Unavailable, DeadlineExceeded.
    """
    request = _post("/jobs/batch", {"jobs": list(jobs)})
    if len(request.body or b"") > MOST_BYTES:
        raise InvalidRequest("the batch is larger than 16 MiB; submit_all splits it", 413)
    return Call(request, lambda response: json.decode(response.body, type=_Jobs).jobs)


def submit_all(jobs: Iterable[NewJob], *, at_once: int = 1000) -> SubmitAll:
    """Submit any number of jobs in batches, each all or none, and return their ids in the same order.

    The deadline is that of each batch. After an error the batches before it are stored: mend what is wrong and call
    again with the same objects, and those that were stored are found by their keys and not stored twice.

    Args:
        jobs: read as they are sent; give a list to be able to send the same objects again.
        at_once: how many go into a batch, 1-10,000. A tenant's burst must hold a batch.

    Raises:
        As `submit_batch`; an added note says at which job the batch began.
    """
    return SubmitAll(jobs, at_once)


def get_job(job_id: str) -> Call[Job]:
    """Look at a job.

    Raises:
        NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_get(f"/jobs/{_segment(job_id)}"), _reads(Job))


def list_jobs(
    *,
    tenant: str | None = None,
    state: State | str | None = None,
    queue: str | None = None,
    test_suite: str | None = None,
    limit: int = 100,
    order: Literal["desc", "asc"] = "desc",
    cursor: str | None = None,
) -> Call[JobPage]:
    """Look at one page of the jobs that match, newest first unless `order` is `asc`. `iter_jobs` walks over all.

    Args:
        tenant, state, queue, test_suite: which jobs; all if none is given.
        limit: the length of the page, 1-1000.
        order: `desc` or `asc`, by when they were submitted.
        cursor: the `next_cursor` of the page before.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    wanted = {
        "tenant": tenant,
        "state": state,
        "queue": queue,
        "test_suite": test_suite,
        "limit": limit,
        "order": order,
        "cursor": cursor,
    }
    query = {name: value for name, value in wanted.items() if value is not None}
    return Call(Request("GET", "/jobs", query=query), _read_page)


WALK: Final = """Walk over the jobs that match, page after page, newest first unless `order` is `asc`.

    A walk shows each job that matched all along exactly once. Nothing is asked before the first job is wanted, and
    each page has the client's deadline.

    Args:
        tenant, state, queue, test_suite, order: as for `list_jobs`.
        limit: the length of a page, 1-1000, and not of the walk.
        cursor: where to go on; the `next_cursor` of a `JobPage`.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """


def following(call: Call[JobPage], page: JobPage) -> Call[JobPage] | None:
    """The call for the page after `page`, None if that was the last."""
    if page.next_cursor is None:
        return None
    query = dict(call.request.query) | {"cursor": page.next_cursor}
    return replace(call, request=replace(call.request, query=query))


def list_attempts(job_id: str) -> Call[list[Attempt]]:
    """Look at a job's ended attempts, first to last.

    Raises:
        NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_get(f"/jobs/{_segment(job_id)}/attempts"), _reads(list[Attempt]))


def explain_job(job_id: str) -> Call[Explanation]:
    """Ask why a job waits: what goes before it, what holds it, when it may go, and what would make it the next.

    It is as of one moment. To look at a job does not slow the service down, however many wait.

    Raises:
        NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_get(f"/jobs/{_segment(job_id)}/explain"), _reads(Explanation))


def wait_for(job_id: str, timeout_sec: float | None = None) -> WaitFor:
    """Wait until a job is completed, failed or cancelled, and return it as it is then. A failed job is returned and
    not raised: look at its `state`.

    It looks again after a quarter of the time waited so far, and at least every 5 seconds; so it learns of the end
    soon after a short job, and does not press the service over a long one.

    Args:
        job_id: which job.
        timeout_sec: how long to wait; None for as long as it takes.

    Raises:
        DeadlineExceeded: the job has not ended in time.
        NotFound: there is no such job.
        Unavailable: the service was away for longer than the client's deadline.
    """
    return WaitFor(job_id, timeout_sec)


def cancel_job(job_id: str) -> Call[Job]:
    """Cancel a job in any state that is not final; a worker that runs it learns by its next heartbeat. Said again,
    the same answer.

    Raises:
        Conflict: it is completed or failed.
        NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_post(f"/jobs/{_segment(job_id)}/cancel"), _reads(Job))


def cancel_jobs(
    tenant: str, *, queue: str | None = None, test_suite: str | None = None, state: State | str | None = None
) -> Call[int]:
    """Cancel all jobs of a tenant that match and are not final, and return how many there were.

    Not sent twice: after an answer that was lost, jobs may have come that nobody meant. `Unavailable` then says
    whether it is in doubt.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    given = {"queue": queue, "test_suite": test_suite, "state": state}
    which = {"tenant": tenant} | {name: value for name, value in given.items() if value is not None}
    return Call(
        _post("/jobs/cancel", which),
        lambda response: json.decode(response.body, type=_Cancelled).cancelled,
        is_repeatable=False,
        wait_sec=_LONG_SEC,
    )


def patch_job(job_id: str, *, priority: int) -> Call[Job]:
    """Change the priority, 0-10, of a job that is pending or queued; in force at once.

    Raises:
        Conflict: it has been claimed or is final.
        InvalidRequest, NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_patch(f"/jobs/{_segment(job_id)}", {"priority": priority}), _reads(Job))


def retry_job(job_id: str) -> Call[Job]:
    """Submit a failed or cancelled job anew, and return the new one; its `retry_of` names the old one.

    Not sent twice, for it has no key and would make two jobs. `Unavailable` says whether it is in doubt.

    Raises:
        Conflict: it is neither failed nor cancelled.
        NotFound, RateLimited, Unavailable, DeadlineExceeded.
    """
    return Call(_post(f"/jobs/{_segment(job_id)}/retry"), _reads(Job), is_repeatable=False)


def stats() -> Call[Stats]:
    """Count the jobs, in all and in each queue.

    Raises:
        Unavailable, DeadlineExceeded.
    """
    return Call(_get("/stats"), _reads(Stats))


# --- workers


def claim(
    worker: str,
    *,
    queues: Sequence[str] = ("default",),
    limit: int = 1,
    lease_sec: int = 30,
    wait_sec: int = 0,
    start: bool = False,
) -> Call[list[ClaimedJob]]:
    """Take up to `limit` jobs in the order in which they are to be done; none if none came. `Worker` does this and
    all that follows.

    Not sent twice after a lost answer: jobs may have been leased that nobody will do before their leases lapse, each
    of them has used up an attempt, and a second claim would lease as many again. Count the lease from before this
    call and not from its answer: only so does it end here before it ends there.

    Args:
        worker: the name to claim under, 1-128 characters.
        queues: each is picked empty before the next is tried.
        limit: 1-1000.
        lease_sec: how long the leases are, 1-3600 seconds, unless a heartbeat renews them.
        wait_sec: how long the service waits for the first job, 0-30 seconds.
        start: whether the jobs come out running; else each is to be started.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    body = {
        "worker": worker,
        "queues": list(queues),
        "limit": limit,
        "lease_sec": lease_sec,
        "wait_sec": wait_sec,
        "start": start,
    }
    return Call(
        _post("/jobs/claim", body),
        lambda response: json.decode(response.body, type=_Claimed).jobs,
        is_repeatable=False,
        wait_sec=wait_sec,
    )


def start(hold: Hold) -> Call[Job]:
    """Say that the work begins. Said again under the same lease, the same answer.

    Raises:
        LeaseLost, NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_post(f"/jobs/{_segment(hold.id)}/start", {"token": hold.token}), _reads(Job))


def heartbeat(hold: Hold, *, lease_sec: int | None = None, progress: float | None = None) -> Call[datetime]:
    """Say that the work goes on; the new end of the lease by the service's clock.

    Args:
        hold: which job.
        lease_sec: how long it is renewed for, 1-3600 seconds; the claim's if not given.
        progress: how far the work has got, 0-1.

    Raises:
        LeaseLost: stop working on it.
        InvalidRequest, NotFound, Unavailable, DeadlineExceeded.
    """
    given = {"token": hold.token, "lease_sec": lease_sec, "progress": progress}
    body = {name: value for name, value in given.items() if value is not None}
    return Call(
        _post(f"/jobs/{_segment(hold.id)}/heartbeat", body),
        lambda response: json.decode(response.body, type=_Renewed).expires_at,
    )


def heartbeat_all(holds: Iterable[Hold], *, lease_sec: int | None = None) -> Call[list[Beat]]:
    """Say that the work on up to 1000 jobs goes on; each is judged by itself, and in the same order.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    leases = {"leases": list(holds)}
    body = leases if lease_sec is None else leases | {"lease_sec": lease_sec}
    return Call(_post("/jobs/heartbeat", body), _reads_each(Beat, len(leases["leases"])))


def complete(hold: Hold, result: Any = None) -> Call[Job]:
    """Report that the work is done. `result` is any JSON of at most 64 KiB. Sent again, the same answer.

    Raises:
        LeaseLost: another attempt counts, or none.
        Conflict: the job was not started.
        InvalidRequest, NotFound, Unavailable, DeadlineExceeded.
    """
    body = {"token": hold.token, "result": result}
    return Call(_post(f"/jobs/{_segment(hold.id)}/complete", body), _reads(Job))


def fail(hold: Hold, error: str, *, retry: bool = True) -> Call[Job]:
    """Report that the work could not be done. Sent again, the same answer.

    Args:
        hold: which job.
        error: why; the service keeps 4 KiB of it.
        retry: whether another try may help. With attempts left the job is pending until its backoff has passed;
            else it is failed.

    Raises:
        LeaseLost, InvalidRequest, NotFound, Unavailable, DeadlineExceeded.
    """
    body = {"token": hold.token, "error": error, "retry": retry}
    return Call(_post(f"/jobs/{_segment(hold.id)}/fail", body), _reads(Job))


def release(hold: Hold) -> Call[Job]:
    """Give a job back: it is queued at once, and the attempt is not counted. Sent again, the same answer.

    Raises:
        LeaseLost, NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_post(f"/jobs/{_segment(hold.id)}/release", {"token": hold.token}), _reads(Job))


def finish(reports: Iterable[Completed | Failed]) -> Call[list[Report]]:
    """Report on up to 1000 jobs; each is judged by itself, and in the same order. Sent again, the same answers.

    Raises:
        InvalidRequest: one report is wrong, and none was taken.
        Unavailable, DeadlineExceeded.
    """
    results = list(reports)
    return Call(_post("/jobs/finish", {"results": results}), _reads_each(Report, len(results)))


# --- tenants and queues


def list_tenants() -> Call[list[Tenant]]:
    """Look at all tenants, by name.

    Raises:
        Unavailable, DeadlineExceeded.
    """
    return Call(_get("/tenants"), _reads(list[Tenant]))


def get_tenant(name: str) -> Call[Tenant]:
    """Look at a tenant.

    Raises:
        NotFound, Unavailable, DeadlineExceeded.
    """
    return Call(_get(f"/tenants/{_segment(name)}"), _reads(Tenant))


def put_tenant(
    name: str,
    *,
    weight: int = 1,
    rate_per_sec: float | UnsetType | None = UNSET,
    burst: int | UnsetType = UNSET,
    max_running: int | None = None,
    max_queued: int | None = None,
    paused: bool = False,
) -> Call[Tenant]:
    """Create a tenant or set all of it; in force for the next dispatch.

    Args:
        name: which tenant, 1-128 characters.
        weight: 1-1000, its share beside the others'.
        rate_per_sec: how many jobs a second it may submit, over 0. None is no limit; left out, the service's default.
        burst: how many at once, 1 or more; left out, the rate rounded up.
        max_running: how many of its jobs may be in workers' hands, over all queues; None is no limit.
        max_queued: how many may wait; None is no limit.
        paused: whether none of its jobs is given out.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    body = {
        "weight": weight,
        "rate_per_sec": rate_per_sec,
        "burst": burst,
        "max_running": max_running,
        "max_queued": max_queued,
        "paused": paused,
    }
    return Call(_put(f"/tenants/{_segment(name)}", _without_unset(body)), _reads(Tenant))


def patch_tenant(
    name: str,
    *,
    weight: int | UnsetType = UNSET,
    rate_per_sec: float | UnsetType | None = UNSET,
    burst: int | UnsetType = UNSET,
    max_running: int | UnsetType | None = UNSET,
    max_queued: int | UnsetType | None = UNSET,
    paused: bool | UnsetType = UNSET,
) -> Call[Tenant]:
    """Change of a tenant only what is given; in force for the next dispatch. What each means is told at `put_tenant`.

    Raises:
        InvalidRequest, NotFound, Unavailable, DeadlineExceeded.
    """
    body = {
        "weight": weight,
        "rate_per_sec": rate_per_sec,
        "burst": burst,
        "max_running": max_running,
        "max_queued": max_queued,
        "paused": paused,
    }
    return Call(_patch(f"/tenants/{_segment(name)}", _without_unset(body)), _reads(Tenant))


def erase_tenant(name: str, *, dry_run: bool = False) -> Call[Erasure]:
    """Delete all that is kept of a tenant: its jobs with their attempts and keys, its settings, its name. The service
    works on it for some seconds; call again until the answer says `is_gone`.

    Args:
        dry_run: say what there is to delete, and delete nothing.

    Raises:
        Conflict: a job of it is not final.
        NotFound: there is no such tenant, perhaps since a try whose answer was lost had erased it.
        Unavailable, DeadlineExceeded.
    """
    return Call(_post(f"/tenants/{_segment(name)}/erase", {"dry_run": dry_run}), _reads(Erasure), wait_sec=_LONG_SEC)


def list_queues() -> Call[list[Queue]]:
    """Look at all queues, by name.

    Raises:
        Unavailable, DeadlineExceeded.
    """
    return Call(_get("/queues"), _reads(list[Queue]))


def put_queue(name: str, *, paused: bool = False) -> Call[Queue]:
    """Create a queue or set its switch. A paused queue is not claimed from; jobs may still be submitted to it.

    Raises:
        InvalidRequest, Unavailable, DeadlineExceeded.
    """
    return Call(_put(f"/queues/{_segment(name)}", {"paused": paused}), _reads(Queue))


# --- keys


def create_key(
    name: str,
    role: str,
    *,
    tenant: str | None = None,
    queues: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> Call[NewApiKey]:
    """Make a key. Its text is in the answer and never again. Not sent twice in doubt: each would be another key.

    Args:
        name: what it is called, for those who read the list.
        role: `tenant`, `worker`, `reader` or `admin`.
        tenant: whose jobs it is for, with the role `tenant`.
        queues: what a worker may claim from; None is all.
        expires_at: from when on it lets nobody in, aware.

    Raises:
        InvalidRequest, Denied, Unavailable, DeadlineExceeded.
    """
    body = {"name": name, "role": role, "tenant": tenant, "queues": queues, "expires_at": expires_at}
    return Call(_post("/keys", body), _reads(NewApiKey), is_repeatable=False)


def list_keys() -> Call[list[ApiKey]]:
    """Look at all keys, the oldest first, those that have ended too.

    Raises:
        Denied, Unavailable, DeadlineExceeded.
    """
    return Call(_get("/keys"), _reads(list[ApiKey]))


def revoke_key(key_id: str) -> Call[ApiKey]:
    """Take a key back for good, and the logins that were made with it.

    Raises:
        NotFound, Denied, Unavailable, DeadlineExceeded.
    """
    return Call(Request("DELETE", f"/keys/{_segment(key_id)}"), _reads(ApiKey))


# --- replicas


def list_replicas() -> Call[list[Replica]]:
    """Look at the servers of the service that were heard of lately, the oldest first.

    Raises:
        Denied, Unavailable, DeadlineExceeded.
    """
    return Call(_get("/replicas"), _reads(list[Replica]))


# --- of several calls


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Looks at a job until it has ended."""

    job_id: str
    timeout_sec: float | None

    def flow(self, terms: Terms) -> Flow[Job]:
        """Look, pause for longer and longer, look."""
        began = terms.now()
        ends_at = inf if self.timeout_sec is None else began + self.timeout_sec
        while True:
            left_sec = ends_at - terms.now()
            # A last look has its time, even if the waiting has none left.
            within = min(inf if terms.deadline_sec is None else terms.deadline_sec, max(left_sec, terms.try_sec))
            job = yield from get_job(self.job_id).flow(replace(terms, deadline_sec=within))
            left_sec = ends_at - terms.now()
            if job.is_final:
                return job
            if left_sec <= 0:
                raise DeadlineExceeded(f"job {job.id} is still {job.state} after {self.timeout_sec} s", in_doubt=False)
            yield Pause(min(poll_pause(terms.now() - began, terms.dice()), left_sec))


def poll_pause(waited_sec: float, dice: float) -> float:
    """When to look again: after a quarter of the time waited so far, between 0.1 and 5 seconds, a fifth of it by
    chance."""
    return min(max(waited_sec / 4, 0.1), 5.0) * (0.8 + dice / 5)


@dataclass(frozen=True, slots=True)
class SubmitAll:
    """Sends jobs in batches, one after the other."""

    jobs: Iterable[NewJob]
    at_once: int

    def flow(self, terms: Terms) -> Flow[list[str]]:
        """One batch, and the next when it is stored."""
        if not 1 <= self.at_once <= MOST_IN_A_BATCH:
            raise ValueError(f"a batch is of 1-{MOST_IN_A_BATCH} jobs, not {self.at_once}")
        ids: list[str] = []
        for batch in packed(map(json.encode, self.jobs), len, self.at_once):
            body = b'{"jobs":[' + b",".join(batch) + b"]}"
            request = Request("POST", "/jobs/batch", headers=_JSON | {"prefer": "return=minimal"}, body=body)
            try:
                ids += yield from Call(request, lambda answer: json.decode(answer.body, type=_Ids).ids).flow(terms)
            except FairlaneError as error:
                error.add_note(f"in the batch that begins with job {len(ids)}; those before it are stored")
                raise
        return ids


def packed(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_bytes: int = MOST_BYTES
) -> Iterator[list[T]]:
    """The items in order, in lists of at most `most` that take at most `most_bytes` as JSON; an item that alone is
    larger goes alone, for the service to refuse it."""
    pack: list[T] = []
    size = _AROUND_BYTES
    for item in items:
        item_size = size_of(item) + len(",")
        if pack and (len(pack) == most or size + item_size > most_bytes):
            yield pack
            pack, size = [], _AROUND_BYTES
        pack.append(item)
        size += item_size
    if pack:
        yield pack


# --- how requests are made and answers read


class _Jobs(Struct):
    jobs: list[Job]


class _Ids(Struct):
    ids: list[str]


class _Claimed(Struct):
    jobs: list[ClaimedJob]


class _Cancelled(Struct):
    cancelled: int


class _Renewed(Struct):
    expires_at: datetime


class _Answered(Struct, Generic[T]):
    results: list[T]


def _reads(kind: type[T]) -> Callable[[Response], T]:
    return lambda response: json.decode(response.body, type=kind)


def _reads_each(kind: type[T], many: int) -> Callable[[Response], list[T]]:
    def read(response: Response) -> list[T]:
        answered = json.decode(response.body, type=_Answered[kind]).results  # type: ignore[valid-type]
        if len(answered) != many:
            raise ValidationError(f"{many} were asked about, {len(answered)} answered")
        return answered

    return read


def _read_page(response: Response) -> JobPage:
    return JobPage(jobs=json.decode(response.body, type=list[Job]), next_cursor=next_cursor(response.headers))


def next_cursor(headers: Mapping[str, str]) -> str | None:
    """The cursor in the `Link` to the next page. Only that is taken from it: behind a proxy the address may be one
    that does not lead here."""
    found = _LINK_TO_NEXT.search(headers.get("link", ""))
    cursors = parse_qs(urlsplit(found[1]).query).get("cursor") if found else None
    return cursors[0] if cursors else None


def _get(path: str) -> Request:
    return Request("GET", path)


def _post(path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Request:
    return _with_body("POST", path, body, headers)


def _put(path: str, body: object) -> Request:
    return _with_body("PUT", path, body)


def _patch(path: str, body: object) -> Request:
    return _with_body("PATCH", path, body)


def _with_body(method: str, path: str, body: object, headers: Mapping[str, str] | None = None) -> Request:
    if body is None:
        return Request(method, path)
    return Request(method, path, headers=_JSON | dict(headers or {}), body=json.encode(body))


def _without_unset(body: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if value is not UNSET}


def _segment(text: str) -> str:
    """A name as one segment of a path. Dots are encoded too: a tenant may be called `..`."""
    return quote(text, safe="").replace(".", "%2E")
