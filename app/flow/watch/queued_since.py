"""Since when the longest waiting job waits, without looking at any other. It follows the moves, commit by commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from operator import itemgetter

from app.flow.moves import Moved
from app.flow.watch.few_names import FewNames
from app.scheduling.job import State


class QueuedSince:
    """The queued jobs by label of their queue, the longest waiting first. Times are given out in growing order, so
    whoever is queued now stands behind all others: a move costs O(1), and so does the question."""

    def __init__(self, labels: FewNames) -> None:
        self._labels = labels
        self._lines: dict[str, OrderedDict[str, datetime]] = {}

    def load(self, queued: Iterable[tuple[str, str, datetime]]) -> None:
        """Replace everything: (queue, job, queued_at) of all queued jobs, in any order."""
        self._lines.clear()
        for queue, job_id, queued_at in sorted(queued, key=itemgetter(2)):
            self._line(queue)[job_id] = queued_at

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened."""
        for moved in moves:
            if State.QUEUED in (moved.old, moved.new):
                # One that joins may be there still, if it left by hand.
                self._line(moved.queue).pop(moved.job_id, None)
            if moved.new is State.QUEUED and moved.job is not None and moved.job.queued_at is not None:
                self._line(moved.queue)[moved.job_id] = moved.job.queued_at

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def keep(self, is_queued: Callable[[str], bool]) -> None:
        """Drop the jobs that wait no longer, as those may that left by hand."""
        for line in self._lines.values():
            for job_id in [job_id for job_id in line if not is_queued(job_id)]:
                del line[job_id]

    def put_in_order(self) -> None:
        """Jobs have joined that are queued since earlier than others, by hand."""
        for label, line in self._lines.items():
            self._lines[label] = OrderedDict(sorted(line.items(), key=itemgetter(1)))

    def oldest(self, label: str) -> datetime | None:
        """Since when the longest waiting job waits, of the queues under `label`; None if none does."""
        line = self._lines.get(label)
        return next(iter(line.values())) if line else None

    def first(self, limit: int) -> list[str]:
        """The jobs that wait the longest, of all queues, the longest first."""
        heads = (islice(((at, job_id) for job_id, at in line.items()), limit) for line in self._lines.values())
        return [job_id for _, job_id in islice(merge(*heads), limit)]

    def _line(self, queue: str) -> OrderedDict[str, datetime]:
        label = self._labels.of(queue)
        line = self._lines.get(label)
        if line is None:
            line = self._lines[label] = OrderedDict()
        return line
