"""What is counted and timed as it happens. A registry of its own for each service: nothing here is global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.scheduling.job import Outcome

INSTANT_SEC: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
"""Buckets for what the service does itself."""

REQUEST_SEC: Final = (*INSTANT_SEC, 10, 30)
"""The same, and claims that wait."""

LATE_SEC: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)
"""Buckets for what should not be there at all."""

JOB_SEC: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)
"""Buckets for what jobs take, from a moment to a day."""

GROUP_WRITES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Instruments:
    """Each attribute gives, for the values of its labels in order, what to count or time with."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.moves = self._counter(
            "job_moves", "Jobs that went from one state to another.", "queue", "from", "to"
        )  # fmt: skip
        self.attempts = self._counter("attempts", "Attempts that ended.", "queue", "outcome")
        self.wait = self._histogram("wait_seconds", "From queued to scheduled.", JOB_SEC, "queue")
        self.run = self._histogram("run_seconds", "From started to the end of the attempt.", JOB_SEC, "queue")
        self.lateness = self._histogram("promotion_lateness_seconds", "From due to queued, of delayed jobs.", LATE_SEC)
        self.group = self._histogram(
            "group_seconds", "A group of writes, from its beginning until it is durable.", INSTANT_SEC
        )
        self.commit = self._histogram("commit_seconds", "The COMMIT of a group of writes alone.", INSTANT_SEC)
        self.group_writes = self._histogram("group_writes", "Writes that shared a commit.", GROUP_WRITES)
        self.requests = self._counter("http_requests", "Requests that were answered.", "method", "route", "status")
        self.request = self._histogram(
            "http_request_seconds", "Requests, from their first byte to the answer's last.", REQUEST_SEC,
            "method", "route",
        )  # fmt: skip
        self.submit_refusals = self._counter(
            "submit_refusals", "Submits refused with 429: too fast, or too many jobs waiting.", "reason"
        )
        self.refused_proposals = self._counter(
            "refused_proposals", "Jobs the order proposed and the database no longer had queued."
        )
        self.audit_differences = self._counter(
            "audit_differences", "Differences between memory and the database that the audit has mended."
        )
        self.skipped_rows = self._counter("skipped_rows", "Rows that could not be moved as their time demanded.")
        self.loop_failures = self._counter("loop_failures", "Background loops that raised.", "loop")
        self.writer_failures = self._counter("writer_failures", "Groups of writes that could not be committed.")
        self.recoveries = self._counter(
            "recoveries", "Times memory was read from the database: at the start, or after a doubtful commit."
        )
        self.begin_queue = cache(self._begin_queue)

    def _begin_queue(self, queue: str) -> None:
        """Show what can happen in `queue` as zero: the first time would not be seen to be a rise otherwise."""
        self.wait(queue)
        self.run(queue)
        for outcome in Outcome:
            self.attempts(queue, outcome)

    def _counter(self, name: str, means: str, *labels: str) -> Callable[..., Counter]:
        made = Counter(f"fairlane_{name}", means, labels, registry=self.registry)
        return cache(made.labels if labels else lambda: made)

    def _histogram(self, name: str, means: str, buckets: Sequence[float], *labels: str) -> Callable[..., Histogram]:
        made = Histogram(f"fairlane_{name}", means, labels, buckets=buckets, registry=self.registry)
        return cache(made.labels if labels else lambda: made)
