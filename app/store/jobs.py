"""Statements on jobs. Every change of state is one guarded statement, built from a legal `Move`, that says
which rows it moved; whoever calls it compares that with what was meant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from app.scheduling.job import Job, Move, State
from app.scheduling.records import UnnamedJob
from app.store import dialect, many, parts
from app.store.schema import IS_ACTIVE, IS_PENDING, IS_QUEUED, job_attempts, jobs
from app.store.slices import in_slices

CLAIM: Final = Move(State.QUEUED, State.SCHEDULED)
START: Final = Move(State.SCHEDULED, State.RUNNING)
PROMOTE: Final = Move(State.PENDING, State.QUEUED)

_LEASED: Final = ("id", "token")
_LEASE: Final = (
    "token",
    "charge",
    "dispatch_weight",
    "scheduled_at",
    "worker",
    "lease_sec",
    "lease_expires_at",
)
_NO_LEASE: Final[Mapping[str, Any]] = {"token": None, "lease_sec": None, "lease_expires_at": None}
_WAITING_AGAIN: Final[Mapping[str, Any]] = {
    **_NO_LEASE,
    "scheduled_at": None,
    "started_at": None,
    "worker": None,
    "charge": None,
    "dispatch_weight": None,
    "progress": None,
}
_LEAVING: Final[Mapping[State, Mapping[str, Any]]] = {
    State.COMPLETED: _NO_LEASE,
    State.FAILED: _NO_LEASE,
    State.CANCELLED: _NO_LEASE,
    State.QUEUED: _WAITING_AGAIN,
    State.PENDING: {**_WAITING_AGAIN, "queued_at": None, "effective_priority": None},
}
"""What a row loses when it enters a state other than by claim, start or promotion."""


# Building a statement costs more than running it, so those that every job needs are built once.
_IS_PENDING: Final = jobs.c.state == PROMOTE.old
_IS_QUEUED: Final = jobs.c.state == CLAIM.old
_IS_SCHEDULED: Final = jobs.c.state == START.old
_ONE_MORE_ATTEMPT: Final = jobs.c.attempt + 1
_WHOLE_ROW: Final = tuple(jobs.c)
_ID: Final = (jobs.c.id,)
_IN_STATE: Final = {state: jobs.c.state == state for state in State}
_GET: Final = select(jobs).where(jobs.c.id == bindparam("job_id"))
_WITHOUT: Final = jobs.c.id.not_in(bindparam("without", expanding=True))
_BY_RUN_AT: Final = (jobs.c.run_at, jobs.c.seq)
_NEXT_DUE: Final = select(jobs.c.run_at).where(IS_PENDING, _WITHOUT).order_by(*_BY_RUN_AT).limit(1)
_DUE: Final = (
    select(jobs)
    .where(IS_PENDING, jobs.c.run_at <= bindparam("now"), _WITHOUT)
    .order_by(*_BY_RUN_AT)
    .limit(bindparam("most", type_=Integer()))
)


def _new(names: Iterable[str]) -> dict[str, Any]:
    return {name: bindparam("new_" + name, type_=jobs.c[name].type) for name in names}


@cache
def _move(move: Move, names: frozenset[str]) -> ReturningUpdate[Any]:
    token = bindparam("held", type_=jobs.c.token.type)
    return (
        update(jobs)
        .where(jobs.c.id == bindparam("job_id"), dialect.tested_only(_IN_STATE[move.old]))
        .where(jobs.c.token.is_not_distinct_from(token))
        .values({"state": move.new, **_LEAVING[move.new], **_new(sorted(names))})
        .returning(*jobs.c)
    )


_NEW: Final = (
    "seq",
    "id",
    "tenant",
    "test_suite",
    "queue",
    "priority",
    "effective_priority",
    "cost",
    "state",
    "delay_sec",
    "payload",
    "attempt",
    "max_attempts",
    "timeout_sec",
    "submitted_at",
    "due_at",
    "run_at",
    "queued_at",
    "retry_of",
    "idempotency_key",
    "request_digest",
)
"""What a job has that nobody has claimed yet."""

_new_row: Final = attrgetter(*_NEW)


def new_rows(new: Sequence[Job]) -> parts.Inserts:
    """Rows of jobs that nobody has claimed yet."""
    return parts.Inserts.into(jobs, _NEW, [_new_row(job) for job in new])


async def get(connection: AsyncConnection, job_id: str) -> Job | None:
    """One job."""
    row = (await connection.execute(_GET, {"job_id": job_id})).one_or_none()
    return None if row is None else Job(*row)


async def with_seqs(connection: AsyncConnection, seqs: Sequence[int]) -> list[Job]:
    """Those of the jobs with these numbers that there are, in the same order; some tens at most."""
    found = {row.seq: Job(*row) for row in await connection.execute(select(jobs).where(jobs.c.seq.in_(seqs)))}
    return [found[seq] for seq in seqs if seq in found]


async def with_keys(connection: AsyncConnection, keys: Iterable[tuple[str, str]]) -> list[Job]:
    """The jobs that were submitted under any of these (tenant, idempotency key)."""
    rows = [{"tenant": tenant, "idempotency_key": key} for tenant, key in keys]
    found = await many.select_each(connection, jobs, rows, keys=["tenant", "idempotency_key"])
    return [Job(*row) for row in found]


async def page(
    connection: AsyncConnection,
    *,
    equal: Mapping[str, Any],
    newest_first: bool,
    after_seq: int | None,
    limit: int,
) -> list[Job]:
    """Up to `limit` jobs by `seq` whose columns equal what `equal` names, beyond `after_seq`."""
    seq = jobs.c.seq
    wanted: list[ColumnElement[bool]] = [jobs.c[column] == value for column, value in equal.items()]
    if after_seq is not None:
        wanted.append(seq < after_seq if newest_first else seq > after_seq)
    order = seq.desc() if newest_first else seq
    rows = await connection.execute(select(jobs).where(*wanted).order_by(order).limit(limit))
    return [Job(*row) for row in rows]


async def newest_seq(connection: AsyncConnection) -> int:
    """The number of the newest job; 0 if there is none."""
    return (await connection.execute(select(func.max(jobs.c.seq)))).scalar_one() or 0


async def unfinished(
    connection: AsyncConnection, equal: Mapping[str, Any], *, after_seq: int, upto_seq: int, limit: int
) -> list[Job]:
    """The first `limit` jobs by `seq`, after one number up to another, that are not final and whose columns equal
    what `equal` names."""
    seq = jobs.c.seq
    wanted = [jobs.c[column] == value for column, value in equal.items()]
    is_unfinished = jobs.c.state.in_([state for state in State if not state.is_final])
    rows = await connection.execute(
        select(jobs).where(*wanted, is_unfinished, seq > after_seq, seq <= upto_seq).order_by(seq).limit(limit)
    )
    return [Job(*row) for row in rows]


async def next_due(connection: AsyncConnection, *, without: Sequence[str] = ()) -> datetime | None:
    """When the first pending job is due, not looking at those whose ids are in `without`."""
    return (await connection.execute(_NEXT_DUE, {"without": without})).scalar_one_or_none()


async def due(connection: AsyncConnection, now: datetime, limit: int, *, without: Sequence[str] = ()) -> list[Job]:
    """The first `limit` pending jobs due by `now`, by (run_at, seq)."""
    given = {"now": now, "without": without, "most": limit}
    return [Job(*row) for row in await connection.execute(_DUE, given)]


async def promote_if_pending(connection: AsyncConnection, promoted: Sequence[Mapping[str, Any]]) -> int:
    """Pending → queued. Each of `promoted` has the `id` of one job, its `effective_priority` and `queued_at`; how
    many moved."""
    moved = await many.update_each(
        connection,
        jobs,
        promoted,
        keys=["id"],
        values=["effective_priority", "queued_at"],
        same={"state": PROMOTE.new},
        where=_IS_PENDING,
        returning=_ID,
    )
    return len(moved)


async def claim_if_queued(connection: AsyncConnection, leases: Sequence[Mapping[str, Any]]) -> list[Job]:
    """Queued → scheduled. Each of `leases` has the `id` of one job and all that a lease writes. Only the jobs that
    were still queued come back, in no order."""
    rows = await many.update_each(
        connection,
        jobs,
        leases,
        keys=["id"],
        values=_LEASE,
        same={"state": CLAIM.new, "attempt": _ONE_MORE_ATTEMPT},
        where=_IS_QUEUED,
        returning=_WHOLE_ROW,
    )
    return [Job(*row) for row in rows]


def starts(leased: Sequence[Job], now: datetime) -> parts.Updates:
    """Scheduled → running, of jobs that are still as these say."""
    rows = [(job.id, job.token) for job in leased]
    return parts.Updates(jobs, _LEASED, (), rows, {"state": START.new, "started_at": now}, _IS_SCHEDULED)


def started(job: Job, now: datetime) -> Job:
    """What a leased job is after its start."""
    return replace(job, state=START.new, started_at=now)


async def move_if_unchanged(connection: AsyncConnection, job: Job, move: Move, values: Mapping[str, Any]) -> Job | None:
    """Move a job out of the state and from under the lease that `job` was read with.

    None if the row has changed since: another session won the race.
    """
    statement = _move(move, frozenset(values))
    given = {"job_id": job.id, "held": job.token, **{"new_" + name: value for name, value in values.items()}}
    row = (await connection.execute(statement, given)).one_or_none()
    return None if row is None else Job(*row)


def moved(job: Job, move: Move, values: Mapping[str, Any]) -> Job:
    """What `job` is after a move other than claim, start or promotion."""
    return replace(job, state=move.new, **_LEAVING[move.new], **values)


def moves(move: Move, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> parts.Updates:
    """Move leased jobs, each of another id. Each of `rows` is the `id` and the `token` of one as it was read, and the
    values of the columns `names`."""
    same = {"state": move.new, **_LEAVING[move.new]}
    return parts.Updates(jobs, _LEASED, names, rows, same, _IN_STATE[move.old])


async def reprioritize_if_unchanged(
    connection: AsyncConnection, job: Job, priority: int, effective_priority: int | None
) -> Job | None:
    """Set both priorities of a job that still waits as `job` says; None if the row has changed since."""
    statement = (
        update(jobs)
        .where(jobs.c.id == job.id, dialect.tested_only(_IN_STATE[job.state]), jobs.c.priority == job.priority)
        .values(priority=priority, effective_priority=effective_priority)
        .returning(*jobs.c)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else Job(*row)


async def renew_if_held(connection: AsyncConnection, beats: Sequence[Mapping[str, Any]]) -> int:
    """Prolong leases. Each of `beats` has the `id` of one job, the `token` of its lease, and its `lease_expires_at` and
    `progress`; how many are under these very leases."""
    renewed = await many.update_each(
        connection, jobs, beats, keys=_LEASED, values=["lease_expires_at", "progress"], returning=_ID
    )
    return len(renewed)


async def queued(connection: AsyncConnection) -> AsyncGenerator[tuple[list[UnnamedJob], list[int]]]:
    """Every queued job as the order needs it, and since when each is queued, in microseconds; in slices. There may be
    a million, so no value is looked at by SQLAlchemy, and none is fetched twice: most are due when they are submitted,
    and queued then."""
    c, (hex_id, micros) = jobs.c, dialect.MADE_OF[connection.dialect.name]
    submitted_later, queued_later = func.nullif(c.submitted_at, c.due_at), func.nullif(c.queued_at, c.due_at)
    named = (c.id, c.seq, c.tenant, c.queue, c.priority, c.cost, c.effective_priority, c.due_at)
    wanted = select(*map(dialect.as_given, (*named, submitted_later, queued_later))).where(IS_QUEUED)
    async for rows in in_slices(connection, wanted, 5_000):
        some, since = list[UnnamedJob](), list[int]()
        for job_id, seq, tenant, queue, priority, cost, effective, due_at, submitted_at, queued_at in rows:
            due = micros(due_at)
            submitted = due if submitted_at is None else micros(submitted_at)
            some.append((hex_id(job_id), seq, tenant, queue, priority, cost, due, submitted, effective))
            since.append(due if queued_at is None else micros(queued_at))
        yield some, since


async def leased(connection: AsyncConnection) -> list[Job]:
    """Every scheduled or running job."""
    return [Job(*row) for row in await connection.execute(select(jobs).where(IS_ACTIVE))]


async def count_by_worker(connection: AsyncConnection, limit: int) -> Sequence[Any]:
    """(worker, how many leases it holds, since when the oldest, how many workers there are in all), those with the
    most first. Looks at the active jobs alone."""
    c = jobs.c
    held, oldest = func.count(), func.min(c.scheduled_at, type_=c.scheduled_at.type)
    counted = select(c.worker, held, oldest, func.count().over()).where(IS_ACTIVE).group_by(c.worker)
    return (await connection.execute(counted.order_by(held.desc(), c.worker).limit(limit))).all()


async def count_finished(connection: AsyncConnection) -> Sequence[Any]:
    """(queue, state, how many jobs) of the final states."""
    queue, state = dialect.tested_only(jobs.c.queue), dialect.tested_only(jobs.c.state)
    counted = select(queue, state, func.count()).where(jobs.c.completed_at.is_not(None)).group_by(queue, state)
    found: Sequence[Any] = (await connection.execute(counted)).all()
    return found


async def count_pending(connection: AsyncConnection) -> Sequence[Any]:
    """(queue, tenant, how many pending jobs)."""
    queue, tenant = dialect.tested_only(jobs.c.queue), dialect.tested_only(jobs.c.tenant)
    counted = select(queue, tenant, func.count()).where(IS_PENDING).group_by(queue, tenant)
    found: Sequence[Any] = (await connection.execute(counted)).all()
    return found


# --- Finished jobs leave -------------------------------------------------------------------------------------

_ATTEMPTS: Final = (
    select(func.coalesce(func.max(job_attempts.c.number), 0))
    .where(job_attempts.c.job_id == jobs.c.id)
    .scalar_subquery()
    .label("attempts")
)


async def finished_before(
    connection: AsyncConnection, moment: datetime, *, after: tuple[datetime, int] | None, limit: int
) -> Sequence[Any]:
    """(completed_at, seq, id, attempts) of the first `limit` jobs to end before `moment`, beyond one found before."""
    found: Sequence[Any] = (await connection.execute(select_finished(moment, after, limit))).all()
    return found


def select_finished(moment: datetime, after: tuple[datetime, int] | None, limit: int) -> Select[Any]:
    """The statement of `finished_before`."""
    c = jobs.c
    wanted = [c.completed_at.is_not(None), c.completed_at < moment]
    if after is not None:
        ended, seq = after
        wanted.append(or_(c.completed_at > ended, and_(c.completed_at == ended, c.seq > seq)))
        wanted.append(c.completed_at >= ended)  # what an index is entered by
    return select(c.completed_at, c.seq, c.id, _ATTEMPTS).where(*wanted).order_by(c.completed_at, c.seq).limit(limit)


async def finished_of(connection: AsyncConnection, tenant: str, after_seq: int, limit: int) -> Sequence[Any]:
    """(seq, id, attempts) of the first `limit` finished jobs of a tenant by `seq`, beyond `after_seq`."""
    c = jobs.c
    wanted = select(c.seq, c.id, _ATTEMPTS).where(c.tenant == tenant, c.completed_at.is_not(None), c.seq > after_seq)
    return (await connection.execute(wanted.order_by(c.seq).limit(limit))).all()


async def count_of(connection: AsyncConnection, tenant: str) -> int:
    """How many jobs a tenant has, in all states."""
    return (await connection.execute(select(func.count()).where(jobs.c.tenant == tenant))).scalar_one()


async def has_any(connection: AsyncConnection, tenant: str) -> bool:
    """Whether a tenant has a job, in any state."""
    return (await connection.execute(select(jobs.c.seq).where(jobs.c.tenant == tenant).limit(1))).first() is not None


async def delete_if_finished(connection: AsyncConnection, ids: Sequence[str]) -> list[tuple[str, str, str, State]]:
    """Delete jobs, and with them their attempts; (id, queue, tenant, state) of each that was there and final."""
    c = jobs.c
    are_final = delete(jobs).where(c.id.in_(ids), c.completed_at.is_not(None))
    gone = await connection.execute(are_final.returning(c.id, c.queue, c.tenant, c.state))
    return [(job_id, queue, tenant, State(state)) for job_id, queue, tenant, state in gone]


# --- For the audit: light enough to look at everything again and again ---------------------------------------


def queued_places(connection: AsyncConnection) -> AsyncIterator[Sequence[Any]]:
    """(id, seq, priority, effective_priority) of every queued job, in slices: all that can change while it waits."""
    c = jobs.c
    wanted = select(c.id, c.seq, c.priority, c.effective_priority).where(IS_QUEUED)
    return in_slices(connection, wanted)


def lease_tokens(connection: AsyncConnection) -> AsyncIterator[Sequence[Any]]:
    """(id, token) of every scheduled or running job, in slices."""
    return in_slices(connection, select(jobs.c.id, jobs.c.token).where(IS_ACTIVE))


async def count_unfinished(connection: AsyncConnection) -> list[tuple[str, str, State, int]]:
    """(queue, tenant, state, how many jobs) of the states that are not final."""
    c = jobs.c
    waiting = select(c.queue, c.tenant, func.count()).where(IS_QUEUED).group_by(c.queue, c.tenant)
    counted = [(queue, tenant, State.PENDING, n) for queue, tenant, n in await count_pending(connection)]
    counted += [(queue, tenant, State.QUEUED, n) for queue, tenant, n in await connection.execute(waiting)]
    leased = select(c.queue, c.tenant, c.state, func.count()).where(IS_ACTIVE).group_by(c.queue, c.tenant, c.state)
    counted += [(queue, tenant, State(state), n) for queue, tenant, state, n in await connection.execute(leased)]
    return counted


async def count_by_state(connection: AsyncConnection) -> dict[State, int]:
    """How many jobs there are in each state, without those in which there are none. Reads an index, not the rows."""
    counted = await connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
    return {State(state): n for state, n in counted}


async def count_between(connection: AsyncConnection, after_seq: int, upto_seq: int) -> Sequence[Any]:
    """(queue, state, how many) of the jobs with these numbers."""
    c = jobs.c
    counted = select(c.queue, c.state, func.count()).where(c.seq > after_seq, c.seq <= upto_seq)
    return (await connection.execute(counted.group_by(c.queue, c.state))).all()


async def places(connection: AsyncConnection, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """The tenant and the queue of those of the jobs that there are; a thousand ids at most."""
    c = jobs.c
    found = await connection.execute(select(c.id, c.tenant, c.queue).where(c.id.in_(ids)))
    return {row.id: (row.tenant, row.queue) for row in found}


async def with_ids(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, Job]:
    """Those of the jobs that there are, by id."""
    found = await many.select_each(connection, jobs, [{"id": job_id} for job_id in ids], keys=["id"])
    return {row.id: Job(*row) for row in found}


async def count_leased(connection: AsyncConnection, tenants: Sequence[str]) -> dict[str, int]:
    """How many scheduled or running jobs each of the tenants has, without zeros."""
    c = jobs.c
    counted = select(c.tenant, func.count()).where(IS_ACTIVE, c.tenant.in_(tenants)).group_by(c.tenant)
    return {row.tenant: row[1] for row in await connection.execute(counted)}
