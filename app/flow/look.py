"""What is asked without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

from app.flow.core import Core
from app.flow.lease import existing_job
from app.scheduling.job import Attempt, Job, State
from app.store import attempts, jobs

_STATES: Final = tuple(State)


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
    counts = core.counts
    return Stats(
        **_numbers(counts.by_state),
        tenant_counts=counts.queued_of_tenants(),
        queues={
            name: QueueStats(**_numbers(counts.of_queue(name)), tenant_counts=counts.queued_by_tenant(name))
            for name in counts.queues()
        },
    )


class _Numbers(TypedDict):
    queue_depth: int
    total_jobs: int
    state_counts: Mapping[State, int]


def _numbers(states: Counter[State]) -> _Numbers:
    n = states.get  # not [], which asks Python code for each zero; there may be ten thousands of queues
    return {
        "queue_depth": n(State.QUEUED, 0),
        "total_jobs": sum(states.values()),
        "state_counts": {state: n(state, 0) for state in _STATES},
    }
