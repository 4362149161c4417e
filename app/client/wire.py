"""What goes over the wire, typed: what is sent and what comes back. Fields are those of the HTTP interface; those
that a newer service adds are ignored. All times are aware, in UTC."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from msgspec import Struct, field


class State(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether a job in this state never changes again."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELLED)


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    LAPSED = "lapsed"
    TIMED_OUT = "timed out"
    RELEASED = "released"
    CANCELLED = "cancelled"


def new_key() -> str:
    """An idempotency key that nobody has used."""
    return uuid4().hex


class JobRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked for with a job; each field is told at `submit`."""

    tenant: str
    test_suite: str
    priority: int = 0
    delay_sec: int | None = None
    run_at: datetime | None = None
    queue: str = "default"
    payload: Any = None
    cost: int = 1
    max_attempts: int = 3
    timeout_sec: int | None = None


class NewJob(JobRequest, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a batch; each field is told at `submit`.

    It has its idempotency key from its making on: however often this very object is sent, it is stored once.
    """

    idempotency_key: str = field(default_factory=new_key)


class Hold(Struct, frozen=True):
    """A job and the token of the lease under which it is held."""

    id: str
    token: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, ...)"  # a token belongs into no log


class Completed(Hold, frozen=True, kw_only=True, tag_field="outcome", tag="completed"):
    """A report that a job is done. `result` is any JSON of at most 64 KiB."""

    result: Any = None


class Failed(Hold, frozen=True, kw_only=True, tag_field="outcome", tag="failed"):
    """A report that a job could not be done. The service keeps 4 KiB of `error`; with `retry`, and if attempts are
    left, the job is tried again after a backoff."""

    error: str
    retry: bool = True


class Job(Struct, frozen=True, kw_only=True):
    """A job as it was when the service answered.

    `effective_priority` is its place in the queue as it was queued, `delay_sec` what was asked for, `attempt` how
    many leases were counted so far, `run_at` when it is or was due, `progress` 0-1 as its worker last said, `error`
    the last attempt's, `retry_of` the job that it repeats.
    """

    id: str
    tenant: str
    test_suite: str
    queue: str
    priority: int
    effective_priority: int | None
    cost: int
    state: State
    delay_sec: int | None
    payload: Any
    attempt: int
    max_attempts: int
    timeout_sec: int | None
    submitted_at: datetime
    run_at: datetime
    queued_at: datetime | None
    scheduled_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    worker: str | None
    lease_expires_at: datetime | None
    progress: float | None
    result: Any
    error: str | None
    retry_of: str | None

    @property
    def is_final(self) -> bool:
        """Whether it never changes again."""
        return self.state.is_final


class Lease(Struct, frozen=True, kw_only=True):
    """A worker's right to one attempt, good until `expires_at` by the service's clock; to be renewed every
    `heartbeat_sec` seconds."""

    token: str
    expires_at: datetime
    heartbeat_sec: float

    def __repr__(self) -> str:
        return f"Lease(expires_at={self.expires_at!r})"  # a token belongs into no log


class ClaimedJob(Job, frozen=True, kw_only=True):
    """A job in the hands of the worker that claimed it."""

    lease: Lease

    @property
    def hold(self) -> Hold:
        """What proves that the job is ours."""
        return Hold(self.id, self.lease.token)


class Attempt(Struct, frozen=True, kw_only=True):
    """An ended attempt. `number` counts within the job, released ones too; `weight` is the tenant's at dispatch."""

    number: int
    worker: str
    queued_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    error: str | None
    weight: int
    cost: int


class JobPage(Struct, frozen=True, kw_only=True):
    """Some jobs of a list; `next_cursor` leads to those after them, None if these are the last."""

    jobs: list[Job]
    next_cursor: str | None


class Beat(Struct, frozen=True, kw_only=True):
    """What became of one lease of a bulk heartbeat. If not `ok` it is lost: stop working; `error` says why."""

    id: str
    ok: bool
    expires_at: datetime | None
    error: str | None


class Report(Struct, frozen=True, kw_only=True):
    """What became of one report of several. If not `ok` it changed nothing; `error` says why."""

    id: str
    ok: bool
    state: State | None
    error: str | None


class QueueCounts(Struct, frozen=True, kw_only=True):
    """How many jobs a queue has. `tenant_counts` are queued ones, without the tenants that have none."""

    queue_depth: int
    total_jobs: int
    tenant_counts: dict[str, int]
    state_counts: dict[State, int]


class Stats(QueueCounts, frozen=True, kw_only=True):
    """How many jobs there are, in all and in each queue."""

    queues: dict[str, QueueCounts]


class Reason(Struct, frozen=True, kw_only=True):
    """One thing that keeps a job from being picked. `code` is `delayed`, `cap`, `paused_tenant`, `paused_queue`,
    `others_first`, `no_worker`, `leased` or `final`; `text` is a sentence for a person."""

    code: str
    text: str


class Terms(Struct, frozen=True, kw_only=True):
    """What a queued job's place follows from, in shares: the smallest `key` goes first, ties by `due_at` (under the
    penalty rule by `submitted_at`) and then by `seq`.

    By virtual time `key` is `virtual_time` (its lane's) + `own_charges` (of its lane's jobs before it) + `head_start`
    (`step` * `priority`), and `charge` is what its lane pays for it. Under the penalty rule it is the effective
    priority, and these are None.
    """

    policy: str
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


class Estimate(Struct, frozen=True, kw_only=True):
    """When a job is picked if all goes on as it did lately: in eight of ten cases between `earliest` and `latest`."""

    earliest: datetime
    likely: datetime
    latest: datetime


class Change(Struct, frozen=True, kw_only=True):
    """A change: `resume_queue`, `resume_tenant`, `raise_max_running` or `priority`. `name` is the queue's, the tenant's
    or the job's, `value` what to set, None for a pause to lift."""

    change: str
    name: str
    value: int | None


class ToBeNext(Struct, frozen=True, kw_only=True):
    """What would make a job the next of its queue, in the order in which to do it: none if it is the next, None if
    nothing would, and `text` says why."""

    changes: list[Change] | None
    text: str


class Bound(Struct, frozen=True, kw_only=True):
    """How many jobs of another tenant can go before a job from now on, at most: of one of weight 1, and of those that
    have jobs ahead of it now. `credit` is in shares."""

    credit: float
    of_weight_1: int
    by_tenant: dict[str, int]
    text: str


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job waits. `ahead` is how many queued jobs go first if nothing else arrives, None if it is not queued;
    there are more if not `ahead_exact`."""

    id: str
    state: State
    ahead: int | None
    ahead_exact: bool
    ahead_by_tenant: dict[str, int]
    terms: Terms | None
    reasons: list[Reason]
    estimate: Estimate | None
    to_be_next: ToBeNext
    bound: Bound | None


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant. `rate_per_sec` and `burst` are those in force; None is no limit."""

    name: str
    weight: int
    rate_per_sec: float | None
    burst: int | None
    max_running: int | None
    max_queued: int | None
    paused: bool
    queued: int
    running: int
    created_at: datetime
    updated_at: datetime


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key, without what is secret of it. `queues`: what a worker may claim from, None is all; `last_used_at` is exact
    to a minute."""

    id: str
    name: str
    role: str
    tenant: str | None
    queues: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewApiKey(ApiKey, frozen=True, kw_only=True):
    """A new key. `key` is what its holder gives to a client; it is shown this once."""

    key: str

    def __repr__(self) -> str:
        return f"NewApiKey(id={self.id!r}, name={self.name!r}, role={self.role!r})"


class Replica(Struct, frozen=True, kw_only=True):
    """A server of the service; `role` is `dispatcher` or `standby`. Nothing was heard of it for `lag_sec`."""

    name: str
    address: str
    version: str
    role: str
    started_at: datetime
    dispatching_since: datetime | None
    last_seen_at: datetime
    lag_sec: float


class Erasure(Struct, frozen=True, kw_only=True):
    """How far a tenant is erased: jobs that this call has deleted, those that are left, and how many of them are not
    final. Once `is_gone`, nothing of it is left."""

    erased: int
    left: int
    unfinished: int
    is_gone: bool


class Queue(Struct, frozen=True, kw_only=True):
    """A queue. A paused one is not claimed from."""

    name: str
    paused: bool
    queued: int
    running: int
