"""What goes over the wire: a struct for each body, query and answer, and how it becomes what `flow` takes or comes
from what `flow` gives. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from app.api.cursor import read_cursor
from app.api.fields import (
    Burst,
    Cap,
    Cost,
    Cursor,
    DelaySec,
    ErrorText,
    ExpiresAt,
    IdempotencyKey,
    JobId,
    Json,
    Label,
    LeaseSec,
    Limit,
    MaxAttempts,
    Name,
    Priority,
    Progress,
    RatePerSec,
    RunAt,
    TestSuite,
    TimeoutSec,
    Token,
    UnfinishedState,
    WaitSec,
    Weight,
    Worker,
)
from app.clock import rfc3339
from app.errors import FieldError
from app.flow.bulk import Report
from app.flow.cancel import CancelFilter
from app.flow.dispatch import ClaimRequest
from app.flow.look import JobFilter, QueueStats, Stats
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.flow.watch.explain import Code, Explanation, Kind, ToBeNext
from app.flow.watch.feed import MoveFilter
from app.keys import Grant, Role
from app.scheduling.job import Job, Outcome, State
from app.scheduling.scheduler import Policy
from app.store.keys import KeyRow

_ERROR_BYTES: Final = 4096
_NULL: Final = {"type": "null"}
_CUT: Final = " [cut]"


def cut(error: str) -> str:
    """The error as it is kept: at most 4 KiB of UTF-8."""
    encoded = error.encode()
    if len(encoded) <= _ERROR_BYTES:
        return error
    return encoded[: _ERROR_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


class Asked(Struct, kw_only=True, forbid_unknown_fields=True):
    """The root of what clients send. Where several fields are wrong, a missing one is named first, then those of
    `told_first`, then the others in the order they are written here."""

    if_missing: ClassVar[str | None] = None
    told_first: ClassVar[frozenset[str]] = frozenset()
    key_header: ClassVar[Literal["ignored", "taken", "refused"]] = "ignored"
    contradictions_schema: ClassVar[Mapping[str, Any]] = {}
    """What `contradictions` finds, as JSON Schema says it."""

    @classmethod
    def contradictions(cls, given: Mapping[str, object]) -> Iterable[FieldError]:  # noqa: ARG003
        """What is wrong between fields of which each may be right by itself."""
        return ()

    def given(self) -> dict[str, Any]:
        """The fields that were sent or have a default."""
        names = self.__struct_fields__
        return {name: value for name in names if (value := getattr(self, name)) is not UNSET}


class Nothing(Asked):
    """Of a call that takes no body or no query parameters."""


class SubmitBody(Asked):
    """One job."""

    if_missing = "tenant and test_suite are required"
    told_first = frozenset({"priority"})
    key_header = "taken"
    contradictions_schema = {"anyOf": [{"properties": {"run_at": False}}, {"properties": {"delay_sec": False}}]}

    tenant: Name
    test_suite: TestSuite
    priority: Priority = 0
    delay_sec: DelaySec | UnsetType = UNSET
    run_at: RunAt | UnsetType = UNSET
    queue: Name = "default"
    payload: Json = None
    cost: Cost = 1
    max_attempts: MaxAttempts = 3
    timeout_sec: TimeoutSec | None = None

    @classmethod
    def contradictions(cls, given: Mapping[str, object]) -> Iterable[FieldError]:
        if "delay_sec" in given and "run_at" in given:
            yield FieldError("run_at", "must not stand beside delay_sec")

    def to_request(self, idempotency_key: str | None = None) -> JobRequest:
        return JobRequest(
            tenant=self.tenant,
            test_suite=self.test_suite,
            queue=self.queue,
            priority=self.priority,
            delay_sec=None if self.run_at else self.delay_sec or 0,
            run_at=self.run_at.astimezone(UTC) if self.run_at else None,
            payload=self.payload,
            cost=self.cost,
            max_attempts=self.max_attempts,
            timeout_sec=self.timeout_sec,
            idempotency_key=idempotency_key,
        )


class BatchItem(SubmitBody):
    """One job of a batch."""

    idempotency_key: IdempotencyKey | UnsetType = UNSET

    def to_request(self, idempotency_key: str | None = None) -> JobRequest:
        return super().to_request(self.idempotency_key or idempotency_key)


class BatchBody(Asked):
    """Many jobs, all or nothing; each at most 1 MiB of JSON."""

    key_header = "refused"

    jobs: Annotated[list[BatchItem], Meta(min_length=1, max_length=10_000)]


class ListQuery(Asked):
    """Which jobs to list."""

    tenant: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    test_suite: TestSuite | UnsetType = UNSET
    limit: Limit = 100
    order: Literal["desc", "asc"] = "desc"
    cursor: Cursor | UnsetType = UNSET

    def to_filter(self) -> JobFilter:
        wanted = self.given()
        del wanted["order"]
        after_seq = read_cursor(wanted.pop("cursor", ""))
        return JobFilter(newest_first=self.order == "desc", after_seq=after_seq, **wanted)


class MovesQuery(Asked):
    """Which moves to tell of; `state` is the one moved to."""

    tenant: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    test_suite: TestSuite | UnsetType = UNSET

    def to_filter(self) -> MoveFilter:
        return MoveFilter(**self.given())


class ClaimBody(Asked):
    """What a worker asks for."""

    worker: Worker
    queues: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            max_length=1000,
            description="Each is picked empty before the next is tried.",
            extra={"must": "be a list of 1-1000 queue names"},
        ),
    ] = ("default",)
    limit: Limit = 1
    lease_sec: LeaseSec = 30
    wait_sec: WaitSec = 0
    start: bool = False

    def to_request(self) -> ClaimRequest:
        return ClaimRequest(**self.given())


class TokenBody(Asked):
    """The proof that a worker holds the job."""

    token: Token


class HeartbeatBody(TokenBody):
    """A worker still works."""

    lease_sec: LeaseSec | UnsetType = UNSET
    progress: Progress | UnsetType = UNSET

    def __post_init__(self) -> None:
        if isinstance(self.progress, float):
            self.progress += 0.0  # SQLite has no -0.0


class CompleteBody(TokenBody):
    """A worker is done."""

    result: Json = None


class FailBody(TokenBody):
    """A worker could not do it."""

    error: ErrorText
    retry: bool = True

    def cut_error(self) -> str:
        return cut(self.error)


class FinishItem(TokenBody):
    """How one attempt ended."""

    contradictions_schema = {"anyOf": [{"properties": {"outcome": {"const": "completed"}}}, {"required": ["error"]}]}

    id: JobId
    outcome: Literal["completed", "failed"]
    result: Json = None
    error: ErrorText | UnsetType = UNSET
    retry: bool = True

    @classmethod
    def contradictions(cls, given: Mapping[str, object]) -> Iterable[FieldError]:
        if given.get("outcome") == "failed" and "error" not in given:
            yield FieldError("error", "is required with outcome failed")

    def to_report(self) -> Report:
        if self.outcome == "completed":
            return Report(id=self.id, token=self.token, result=self.result)
        error = self.error if isinstance(self.error, str) else ""
        return Report(id=self.id, token=self.token, error=cut(error), retry=self.retry)


class FinishBody(Asked):
    """How many attempts ended, each judged by itself and at most 1 MiB of JSON."""

    results: Annotated[list[FinishItem], Meta(min_length=1, max_length=1000)]


class LeaseItem(TokenBody):
    """One lease that a worker holds."""

    id: JobId


class BeatsBody(Asked):
    """A worker still works on many jobs."""

    leases: Annotated[list[LeaseItem], Meta(min_length=1, max_length=1000)]
    lease_sec: LeaseSec | UnsetType = UNSET

    def length(self) -> int | None:
        return self.lease_sec if isinstance(self.lease_sec, int) else None


class PriorityBody(Asked):
    """How urgent a job is now."""

    if_missing = "priority must be 0-10"

    priority: Priority


class CancelBody(Asked):
    """Which jobs are no longer wanted."""

    tenant: Name
    queue: Name | UnsetType = UNSET
    test_suite: TestSuite | UnsetType = UNSET
    state: UnfinishedState | UnsetType = UNSET

    def to_filter(self) -> CancelFilter:
        wanted = self.given()
        if "state" in wanted:
            wanted["state"] = State(wanted["state"])
        return CancelFilter(**wanted)


class EraseBody(Asked):
    """Whether to look only."""

    dry_run: bool = False


class TenantBody(Asked):
    """All that is set of a tenant."""

    weight: Weight = 1
    rate_per_sec: RatePerSec | UnsetType | None = UNSET
    burst: Burst | UnsetType = UNSET
    max_running: Cap | None = None
    max_queued: Cap | None = None
    paused: bool = False

    def to_settings(self) -> TenantSettings:
        return TenantSettings(**self.given(), unlimited=self.rate_per_sec is None)


class TenantChanges(Asked):
    """What is to change of a tenant."""

    weight: Weight | UnsetType = UNSET
    rate_per_sec: RatePerSec | UnsetType | None = UNSET
    burst: Burst | UnsetType = UNSET
    max_running: Cap | UnsetType | None = UNSET
    max_queued: Cap | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET

    def to_changes(self) -> dict[str, Any]:
        rate_given = self.rate_per_sec is not UNSET
        return self.given() | ({"unlimited": self.rate_per_sec is None} if rate_given else {})


class QueueBody(Asked):
    """All that is set of a queue."""

    paused: bool = False


class KeyBody(Asked):
    """A key to be made: `tenant` with the role `tenant` and no other; `queues` for a worker that may not claim from
    all of them."""

    contradictions_schema = {
        "anyOf": [
            {
                "properties": {"role": {"const": Role.TENANT}, "tenant": {"type": "string"}, "queues": _NULL},
                "required": ["tenant"],
            },
            {"properties": {"role": {"const": Role.WORKER}, "tenant": _NULL}},
            {"properties": {"role": {"not": {"const": Role.TENANT}}, "tenant": _NULL, "queues": _NULL}},
        ]
    }

    name: Label
    role: Role
    tenant: Name | None = None
    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] | None = None
    expires_at: ExpiresAt | None = None

    @classmethod
    def contradictions(cls, given: Mapping[str, object]) -> Iterable[FieldError]:
        role = given.get("role")
        if role == Role.TENANT and given.get("tenant") is None:
            yield FieldError("tenant", "must be given with the role tenant")
        if role != Role.TENANT and given.get("tenant") is not None:
            yield FieldError("tenant", "must stand with the role tenant alone")
        if role != Role.WORKER and given.get("queues") is not None:
            yield FieldError("queues", "must stand with the role worker alone")

    def to_grant(self) -> Grant:
        return Grant(self.role, self.tenant, None if self.queues is None else frozenset(self.queues))


Time = Annotated[str, Meta(description="In UTC, with microseconds and Z.", extra_json_schema={"format": "date-time"})]


class Answer(Struct):
    """The root of what clients get."""

    @classmethod
    def of(cls, source: object, **beside: object) -> Self:
        """The answer whose fields are those of `source`, and `beside` what it does not have."""
        reading = _reading(cls, frozenset(beside))
        values = list(reading.read(source))
        for place, name in reading.gaps:
            values.insert(place, beside[name])
        told, text = None, ""
        for place in reading.times:
            moment = values[place]
            if isinstance(moment, datetime):
                if moment is not told:  # that of a new job is one and the same
                    told, text = moment, rfc3339(moment)
                values[place] = text
        return cls(*values)


class _Reading(NamedTuple):
    """How an answer is read from its source: what gives the values of all fields but those `beside` it, where those
    belong, and which places hold times."""

    read: Callable[[object], Sequence[object]]
    gaps: Sequence[tuple[int, str]]
    times: Sequence[int]


@cache
def _reading(kind: type[Answer], beside: frozenset[str]) -> _Reading:
    fields = list(enumerate(structs.fields(kind)))
    names = [field.name for _, field in fields if field.name not in beside]
    return _Reading(
        attrgetter(*names) if len(names) > 1 else lambda source: [getattr(source, name) for name in names],
        [(place, field.name) for place, field in fields if field.name in beside],
        [place for place, field in fields if field.type in (Time, Time | None)],
    )


class ErrorAnswer(Answer):
    """Every answer that is an error."""

    error: Annotated[str, Meta(description="One sentence a person can act on.")]
    details: Annotated[list[FieldError], Meta(description="Every bad field; may be empty.")]


class JobAnswer(Answer):
    """A job."""

    id: JobId
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
    submitted_at: Time
    run_at: Time
    queued_at: Time | None
    scheduled_at: Time | None
    started_at: Time | None
    completed_at: Time | None
    worker: str | None
    lease_expires_at: Time | None
    progress: float | None
    result: Any
    error: str | None
    retry_of: JobId | None


class MoveAnswer(Answer):
    """A job went from one state to another; `old_state` of a new one is null. The times are those after the move."""

    id: JobId
    seq: int
    tenant: str
    queue: str
    test_suite: str
    old_state: State | None
    new_state: State
    submitted_at: Time
    run_at: Time
    queued_at: Time | None
    scheduled_at: Time | None
    started_at: Time | None
    completed_at: Time | None


class MissedAnswer(Answer):
    """The client reads too slowly: so many moves, of all jobs, were not kept for it."""

    missed: int


class LeaseAnswer(Answer):
    """A worker's right to one attempt; `heartbeat_sec` is how often to beat."""

    token: str
    expires_at: Time
    heartbeat_sec: float


class ClaimedJob(JobAnswer):
    """A job in the hands of the worker that asked."""

    lease: LeaseAnswer

    @classmethod
    def claimed(cls, job: Job) -> Self:
        if job.token is None or job.lease_sec is None or job.lease_expires_at is None:
            raise ValueError(f"job {job.id} was claimed without a lease")
        heartbeat_sec = round(job.lease_sec / 3, 3)
        expires_at = rfc3339(job.lease_expires_at)
        return cls.of(job, lease=LeaseAnswer(token=job.token, expires_at=expires_at, heartbeat_sec=heartbeat_sec))


class ClaimAnswer(Answer):
    """The jobs of a claim, in the order picked."""

    jobs: list[ClaimedJob]


class BatchAnswer(Answer):
    """The jobs of a batch, in its order."""

    jobs: list[JobAnswer]


class BatchIds(Answer):
    """The ids alone, for `Prefer: return=minimal`."""

    ids: list[JobId]


class HeartbeatAnswer(Answer):
    """Until when the lease is good."""

    expires_at: Time


class FinishedItem(Answer):
    """What became of one report; `state` is the job's as far as it is known."""

    id: JobId
    ok: bool
    state: State | None
    error: str | None


class FinishAnswer(Answer):
    """What became of each report, in order."""

    results: list[FinishedItem]


class BeatItem(Answer):
    """Until when one lease is good, or why it is lost."""

    id: JobId
    ok: bool
    expires_at: Time | None
    error: str | None


class BeatsAnswer(Answer):
    """What became of each lease, in order."""

    results: list[BeatItem]


class CancelledAnswer(Answer):
    """How many jobs were cancelled."""

    cancelled: int


class AttemptAnswer(Answer):
    """An ended attempt."""

    number: int
    worker: str
    queued_at: Time
    scheduled_at: Time
    started_at: Time | None
    ended_at: Time
    outcome: Outcome
    error: str | None
    weight: int
    cost: int


class QueueCounts(Answer):
    """How many jobs there are in a queue; `tenant_counts` are queued ones and leave out zeros."""

    queue_depth: int
    total_jobs: int
    tenant_counts: Mapping[str, int]
    state_counts: Mapping[State, int]

    @classmethod
    def counted(cls, counts: QueueStats | Stats, **beside: object) -> Self:
        return cls.of(counts, **beside)


class StatsAnswer(QueueCounts):
    """How many jobs there are, in all and in each queue."""

    queues: dict[str, QueueCounts]

    @classmethod
    def total(cls, stats: Stats) -> Self:
        queues = {name: QueueCounts.counted(counts) for name, counts in stats.queues.items()}
        return cls.counted(stats, queues=queues)


class ReasonAnswer(Answer):
    """One thing that keeps a job from being picked."""

    code: Code
    text: Annotated[str, Meta(description="A sentence for a person.")]


class TermsAnswer(Answer):
    """What a queued job's place follows from, in shares: the smallest `key` goes first. It is `virtual_time` (its
    lane's) + `own_charges` (of its lane's jobs before it) + `head_start` (`step` * `priority`); under the penalty rule
    it is the effective priority, and these are null."""

    policy: Policy
    key: float
    virtual_time: float | None
    clock: float | None
    own_charges: float | None
    head_start: float | None
    step: float | None
    charge: Annotated[float | None, Meta(description="What its lane pays when it is picked.")]
    priority: int
    effective_priority: int
    weight: int
    cost: int
    due_at: Time
    submitted_at: Time
    seq: int


class EstimateAnswer(Answer):
    """When it is picked if all goes on as it did lately: in eight of ten cases between `earliest` and `latest`."""

    earliest: Time
    likely: Time
    latest: Time


class ChangeAnswer(Answer):
    """A change; `name` is the queue's, the tenant's or the job's, `value` what to set, null for a pause to lift."""

    change: Kind
    name: str
    value: int | None


class ToBeNextAnswer(Answer):
    """What would make it the next of its queue, in the order in which to do it: none if it is the next, null if
    nothing would, and `text` says why."""

    changes: list[ChangeAnswer] | None
    text: str

    @classmethod
    def found(cls, to_be_next: ToBeNext) -> Self:
        if to_be_next.changes is None:
            return cls.of(to_be_next)
        changes = [ChangeAnswer.of(change, change=change.kind) for change in to_be_next.changes]
        return cls.of(to_be_next, changes=changes)


class BoundAnswer(Answer):
    """How many jobs of another tenant can go before it from now on, at most: of one of weight 1, and of those that have
    jobs ahead of it now. `credit` is in shares; docs/fairness.md says what it is."""

    credit: float
    of_weight_1: int
    by_tenant: dict[str, int]
    text: str


class ExplainAnswer(Answer):
    """Why a job waits."""

    id: JobId
    state: State
    ahead: Annotated[
        int | None, Meta(description="Queued jobs that go first if nothing else arrives; null if it is not queued.")
    ]
    ahead_exact: Annotated[bool, Meta(description="Whether those are all; if not, there are more.")]
    ahead_by_tenant: dict[str, int]
    terms: TermsAnswer | None
    reasons: list[ReasonAnswer]
    estimate: EstimateAnswer | None
    to_be_next: ToBeNextAnswer
    bound: BoundAnswer | None

    @classmethod
    def found(cls, explanation: Explanation) -> Self:
        """The answer that tells it."""
        return cls.of(
            explanation,
            ahead_by_tenant=dict(explanation.ahead_by_tenant),
            terms=explanation.terms and TermsAnswer.of(explanation.terms),
            reasons=[ReasonAnswer.of(reason) for reason in explanation.reasons],
            estimate=explanation.estimate and EstimateAnswer.of(explanation.estimate),
            to_be_next=ToBeNextAnswer.found(explanation.to_be_next),
            bound=explanation.bound and BoundAnswer.of(explanation.bound),
        )


class TenantAnswer(Answer):
    """A tenant; `rate_per_sec` and `burst` are those in force, null: no limit."""

    name: str
    weight: int
    rate_per_sec: float | None
    burst: int | None
    max_running: int | None
    max_queued: int | None
    paused: bool
    queued: int
    running: int
    created_at: Time
    updated_at: Time


class ErasureAnswer(Answer):
    """How far a tenant is erased: jobs that this call has deleted, those that are left, and how many of them are not
    final. Once `is_gone`, nothing of it is left."""

    erased: int
    left: int
    unfinished: int
    is_gone: bool


class QueueAnswer(Answer):
    """A queue."""

    name: str
    paused: bool
    queued: int
    running: int


class KeyAnswer(Answer):
    """A key, without what is secret of it. `last_used_at` is exact to a minute."""

    id: JobId
    name: str
    role: Role
    tenant: str | None
    queues: Annotated[list[str] | None, Meta(description="Of a worker: what it may claim from; null: from all.")]
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None

    @classmethod
    def row(cls, row: KeyRow, **beside: object) -> Self:
        """The answer that tells of a key."""
        grant = row.grant
        queues = None if grant.queues is None else sorted(grant.queues)
        return cls.of(row, role=grant.role, tenant=grant.tenant, queues=queues, **beside)


class NewKeyAnswer(KeyAnswer):
    """A new key."""

    key: Annotated[str, Meta(description="What its holder sends. It is shown this once.")]


class ReplicaAnswer(Answer):
    """A server on this database."""

    name: str
    address: Annotated[str, Meta(description="Where other replicas reach it.")]
    version: str
    role: Annotated[str, Meta(description="Whether it is the `dispatcher`, or `standby`.")]
    started_at: Time
    dispatching_since: Annotated[Time | None, Meta(description="Null unless it dispatches.")]
    last_seen_at: Time
    lag_sec: Annotated[float, Meta(description="For how long nothing was heard of it, by the database's clock.")]


class HealthAnswer(Answer):
    """All is well."""

    status: Literal["live"]


class ReadyAnswer(Answer):
    """Requests are served."""

    status: Literal["ready"]
    role: Annotated[str, Meta(description="Whether this replica is the `dispatcher`, or `standby`.")]
