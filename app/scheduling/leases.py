"""Who holds what until when, by the monotonic clock: pure bookkeeping that finds what lapses next."""

from __future__ import annotations

from typing import NamedTuple

from app.scheduling.heap import IndexedHeap
from app.scheduling.job import Job


class Lease(NamedTuple):
    """A worker's right to one attempt of the job with number `seq`. `expires_at` and `timeout_at` (None: it
    may run for ever) are monotonic nanoseconds. `job` is the job as its row was last seen, unless it is too large to
    keep, and but for when the lease expires: what an ending supposes, and the row decides."""

    job_id: str
    token: str
    seq: int
    expires_at: int
    timeout_at: int | None = None
    job: Job | None = None

    @property
    def ends_at(self) -> int:
        """When it ends by itself, for whichever reason comes first."""
        return self.expires_at if self.timeout_at is None else min(self.expires_at, self.timeout_at)

    @property
    def times_out(self) -> bool:
        """Whether it ends because the job's time is up, not because nobody beat."""
        return self.timeout_at is not None and self.timeout_at <= self.expires_at


class Leases:
    """All leases, found by job and by end. Every operation costs O(log n) for each lease it touches."""

    def __init__(self) -> None:
        self._by_job: dict[str, Lease] = {}
        self._ends: IndexedHeap[str] = IndexedHeap()

    def __len__(self) -> int:
        return len(self._by_job)

    def get(self, job_id: str) -> Lease | None:
        """The present lease of a job."""
        return self._by_job.get(job_id)

    def tokens(self) -> dict[str, str]:
        """The token of each lease by job, as a copy."""
        return {job_id: lease.token for job_id, lease in self._by_job.items()}

    def put(self, lease: Lease) -> None:
        """Note a lease, or that it has changed, or that it is to be found again after `take_ended`."""
        self._by_job[lease.job_id] = lease
        key = (lease.ends_at, lease.seq)
        if lease.job_id in self._ends:
            self._ends.rekey(lease.job_id, key)
        else:
            self._ends.push(lease.job_id, key)

    def drop(self, job_id: str) -> None:
        """The lease is over; without effect if there is none."""
        if self._by_job.pop(job_id, None) is not None and job_id in self._ends:
            self._ends.remove(job_id)

    def take_ended(self, now: int, limit: int) -> list[Lease]:
        """Up to `limit` leases that ended by `now`, the earliest first. Each is found once; `put` it back
        if it could not be dropped."""
        ended: list[Lease] = []
        while len(ended) < limit and self._ends and self._by_job[self._ends.peek()].ends_at <= now:
            ended.append(self._by_job[self._ends.pop()])
        return ended

    def next_end(self) -> int | None:
        """When the next lease ends by itself; None if there is none."""
        return self._by_job[self._ends.peek()].ends_at if self._ends else None
