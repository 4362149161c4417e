"""A job comes in: its key, its tenant's rate, its row, its lane."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from app.clock import to_micros
from app.errors import FairlaneError, KeyReused, RateLimited, TooManyQueued
from app.events import SubmitRefused
from app.flow.core import Core
from app.flow.ids import new_id
from app.flow.keys import Key
from app.scheduling.job import Job, State
from app.store import dialect, jobs
from app.store.schema import UQ_JOBS_IDEMPOTENCY_KEY
from app.store.transaction import Transaction

_encode = msgspec.json.Encoder(order="sorted").encode


class JobRequest(Struct, frozen=True, kw_only=True):
    """One job as a client asked for it, checked. Exactly one of `delay_sec` and `run_at` is None."""

    tenant: str
    test_suite: str
    queue: str = "default"
    priority: int = 0
    delay_sec: int | None = 0
    run_at: datetime | None = None
    payload: Any = None
    cost: int = 1
    max_attempts: int = 3
    timeout_sec: int | None = None
    idempotency_key: str | None = None
    retry_of: str | None = None

    @property
    def key(self) -> Key | None:
        """What makes this request the same as another."""
        return None if self.idempotency_key is None else (self.tenant, self.idempotency_key)

    @property
    def digest(self) -> str | None:
        """Of everything that was asked for, so that a key can be refused for another request. What was left at its
        default does not count: a later version with more fields finds the same digest."""
        if self.idempotency_key is None:
            return None
        asked = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_ASKED}
        given = {f.name: asked[f.name] for f in fields(self) if f.name in asked and asked[f.name] != f.default}
        return hashlib.sha256(_encode(given)).hexdigest()


_NOT_ASKED: Final = frozenset({"idempotency_key", "retry_of"})


class Submitted(NamedTuple):
    """The job as it is now; `replayed` if an earlier request with the same key had stored it."""

    job: Job
    replayed: bool


async def submit(core: Core, requests: Sequence[JobRequest]) -> list[Submitted]:
    """Store the jobs, all or none, and answer them in order.

    Raises `RateLimited`, `TooManyQueued`, `KeyReused`, `InvalidRequest` (more jobs of a tenant than its
    burst could ever admit), `Unavailable`.
    """
    keys = {key for request in requests if (key := request.key) is not None}
    if not keys:
        return [Submitted(job, replayed=False) for job in await _admit_and_insert(core, requests)]
    async with core.keys.hold(keys):
        while True:
            stored = await _stored_under(core, keys)
            try:
                await _store_new(core, requests, stored)
            except _StoredMeanwhile:
                continue  # by plain SQL, as every other request with these keys waits for this one
            return _answers(requests, stored)


class _StoredMeanwhile(FairlaneError):
    """The database has one of the keys, though it was not there a moment ago."""


class _Stored(NamedTuple):
    """What is known of the requests so far: jobs by key, and those without a key by their place."""

    by_key: dict[Key, Job]
    old_keys: frozenset[Key]
    by_place: dict[int, Job]


async def _stored_under(core: Core, keys: set[Key]) -> _Stored:
    async with core.reading() as connection:
        found = await jobs.with_keys(connection, keys)
    by_key = {(job.tenant, job.idempotency_key or ""): job for job in found}
    return _Stored(by_key, frozenset(by_key), {})


async def _store_new(core: Core, requests: Sequence[JobRequest], stored: _Stored) -> None:
    """Store those requests that are not stored yet; of twins in a batch, the first."""
    new: dict[Key | int, JobRequest] = {}
    for place, request in enumerate(requests):
        known = stored.by_key.get(request.key) if request.key else None
        twin = new.setdefault(request.key or place, request) if known is None else None
        digest = known.request_digest if known else twin.digest if twin else None
        if request.key and request.digest != digest:
            raise KeyReused(request.key[1])
    if not new:
        return
    for where, job in zip(new, await _admit_and_insert(core, list(new.values())), strict=True):
        if isinstance(where, int):
            stored.by_place[where] = job
        else:
            stored.by_key[where] = job


async def _admit_and_insert(core: Core, requests: Sequence[JobRequest]) -> list[Job]:
    """Take a token for each and store it; what is not stored gives its token back."""
    wanted = Counter([request.tenant for request in requests])
    has_begun = False

    async def insert(tx: Transaction) -> list[Job]:
        nonlocal has_begun
        has_begun = True
        return await _insert(core, tx, requests, wanted)

    try:
        core.admission.admit(wanted)
    except RateLimited as refusal:
        core.emit(SubmitRefused(refusal.tenant, "rate"))
        raise
    try:
        return await core.write(insert, new_jobs=len(requests))
    except asyncio.CancelledError:
        if not has_begun:  # the writer leaves out what nobody waits for any more
            core.admission.give_back(wanted)
        raise
    except Exception as error:
        core.admission.give_back(wanted)
        if isinstance(error, TooManyQueued):
            core.emit(SubmitRefused(error.tenant, "max_queued"))
        if dialect.violated_constraint(error) == UQ_JOBS_IDEMPOTENCY_KEY:
            raise _StoredMeanwhile from error
        raise


def _answers(requests: Sequence[JobRequest], stored: _Stored) -> list[Submitted]:
    answers = []
    seen = set(stored.old_keys)
    for place, request in enumerate(requests):
        if request.key is None:
            answers.append(Submitted(stored.by_place[place], replayed=False))
        else:
            answers.append(Submitted(stored.by_key[request.key], replayed=request.key in seen))
            seen.add(request.key)
    return answers


async def _insert(core: Core, tx: Transaction, requests: Sequence[JobRequest], wanted: Counter[str]) -> list[Job]:
    for tenant, n in wanted.items():
        limit = core.admission.settings(tenant).max_queued
        if limit is not None and core.counts.waiting(tenant, core.moves.noted) + n > limit:
            raise TooManyQueued(tenant, limit)
    _need_rows(core, tx, requests)
    moments = core.clock.series(len(requests))
    inserted = []
    for request, now in zip(requests, moments, strict=True):
        inserted.append(_insert_one(core, tx, request, now))
        await tx.send_ahead()
    return inserted


def _need_rows(core: Core, tx: Transaction, requests: Sequence[JobRequest]) -> None:
    """Tenants and queues nobody set up appear with their first job."""
    new_tenants = {request.tenant for request in requests} - core.known_tenants
    new_queues = {request.queue for request in requests} - core.known_queues
    for tenant in new_tenants:
        tx.need_tenant(tenant)
    for queue in new_queues:
        tx.need_queue(queue)
    tx.after_commit(core.known_tenants.update, new_tenants)
    tx.after_commit(core.known_queues.update, new_queues)


def _insert_one(core: Core, tx: Transaction, request: JobRequest, now: datetime) -> Job:
    due_at = _due_at(request, now)
    seq, job_id = tx.next_seq(), new_id(now)
    queued_at, effective_priority = None, None
    if due_at <= now:
        queued_at, moment = now, to_micros(now)
        effective_priority = core.order.enqueue(
            job_id=job_id,
            seq=seq,
            tenant=request.tenant,
            queue=request.queue,
            priority=request.priority,
            cost=request.cost,
            due_at=moment if due_at is now else to_micros(due_at),
            submitted_at=moment,
        ).effective_priority
    job = Job(
        seq=seq,
        id=job_id,
        tenant=request.tenant,
        test_suite=request.test_suite,
        queue=request.queue,
        priority=request.priority,
        effective_priority=effective_priority,
        cost=request.cost,
        state=State.PENDING if queued_at is None else State.QUEUED,
        delay_sec=request.delay_sec,
        payload=request.payload,
        attempt=0,
        max_attempts=request.max_attempts,
        timeout_sec=request.timeout_sec,
        submitted_at=now,
        due_at=due_at,
        run_at=due_at,
        queued_at=queued_at,
        scheduled_at=None,
        started_at=None,
        completed_at=None,
        worker=None,
        token=None,
        lease_sec=None,
        lease_expires_at=None,
        charge=None,
        dispatch_weight=None,
        progress=None,
        result=None,
        error=None,
        retry_of=request.retry_of,
        idempotency_key=request.idempotency_key,
        request_digest=request.digest,
    )
    tx.insert_job(job)
    core.note_move(job, None)
    if job.state is State.PENDING:
        tx.after_commit(core.wake_by, due_at)
    return job


def _due_at(request: JobRequest, now: datetime) -> datetime:
    """When the job is due first. Never before now: `due_at` breaks ties, and a time in the past would win them all."""
    if request.run_at is not None:
        return max(now, request.run_at)
    return now + timedelta(seconds=request.delay_sec) if request.delay_sec else now
