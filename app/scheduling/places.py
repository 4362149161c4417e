"""All jobs that waited at one moment, for whoever compares them with something else."""

from __future__ import annotations

from collections.abc import Iterator

from app.scheduling.policies import Ordering


def id_number(job_id: str) -> int:
    """An id of 32 hex digits as a number, which takes half as much memory."""
    return int(job_id, 16)


class Places:
    """Which jobs waited, and where; they can be taken out one by one."""

    def __init__(self, ordering: Ordering, jobs: dict[int, bytes]) -> None:
        self._ordering = ordering
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        """Their ids."""
        return (f"{number:032x}" for number in self._jobs)

    def take(self, job_id: str) -> tuple[int, int, int] | None:
        """(seq, priority, effective priority) of a job that waited, None if it did not; it is here no more."""
        packed = self._jobs.pop(id_number(job_id), None)
        if packed is None:
            return None
        job = self._ordering.unpack(packed, tenant="", queue="")
        return job.seq, job.priority, job.effective_priority
