"""What is asked without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from app.flow.core import Core
from app.flow.lease import existing_job
from app.scheduling.job import Attempt, Job, State
from app.store import attempts, jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list. `after_seq` is where the page before this one ended (exclusive)."""

    tenant: str | None = None
    state: State | None = None
    queue: str | None = None
    test_suite: str | None = None
    limit: int = 100
    newest_first: bool = True
    after_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs by `seq`; `next_seq` is the `after_seq` of the next page, None on the last one."""

    jobs: list[Job]
    next_seq: int | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many jobs there are; `tenant_counts` are queued jobs and leave out zeros."""

    queue_depth: int
    total_jobs: int
    tenant_counts: Mapping[str, int]
    state_counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class Stats(QueueStats):
    """The same over all queues, and for each of them."""

    queues: Mapping[str, QueueStats]


async def get_job(core: Core, job_id: str) -> Job:
    """One job. Raises `NotFound`, `Unavailable`."""
    async with core.reading() as connection:
        return await existing_job(connection, job_id)


async def list_jobs(core: Core, wanted: JobFilter) -> Page:
    """A page of jobs. Raises `Unavailable`."""
    columns = ("tenant", "state", "queue", "test_suite")
    equal = {name: value for name in columns if (value := getattr(wanted, name)) is not None}
    async with core.reading() as connection:
        found = await jobs.page(
            connection,
            equal=equal,
            newest_first=wanted.newest_first,
            after_seq=wanted.after_seq,
            limit=wanted.limit + 1,
        )
    page = found[: wanted.limit]
    return Page(page, page[-1].seq if len(found) > len(page) else None)


async def list_attempts(core: Core, job_id: str) -> list[Attempt]:
    """The ended attempts of a job, first to last. Raises `NotFound`, `Unavailable`."""
    async with core.reading() as connection:
        await existing_job(connection, job_id)
        return await attempts.of_job(connection, job_id)


def stats(core: Core) -> Stats:
    """How many jobs there are, out of memory: as fast with ten million as with ten."""
    queues = {name: _queue_stats(core, name) for name in core.counts.queues()}
    tenants: Counter[str] = Counter()
    states: Counter[State] = Counter()
    for queue in queues.values():
        tenants.update(queue.tenant_counts)
        states.update(queue.state_counts)
    return Stats(
        queue_depth=states[State.QUEUED],
        total_jobs=states.total(),
        tenant_counts=tenants,
        state_counts={state: states[state] for state in State},
        queues=queues,
    )


def _queue_stats(core: Core, queue: str) -> QueueStats:
    states = core.counts.of_queue(queue)
    return QueueStats(
        queue_depth=states[State.QUEUED],
        total_jobs=states.total(),
        tenant_counts=core.counts.queued_by_tenant(queue),
        state_counts={state: states[state] for state in State},
    )
