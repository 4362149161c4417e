"""Why jobs wait, for the pages of jobs that people look at: each explained once for all who look at it."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Final

from app.api.page.shared import Shared
from app.flow.core import Core
from app.flow.watch.explain import Explanation, explain
from app.scheduling.job import Job, State

_KEPT: Final = 100


class Explanations:
    """Of the jobs that were looked at last."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: OrderedDict[tuple[str, State], Shared[Explanation]] = OrderedDict()

    async def of(self, job: Job) -> Explanation | None:
        """Why it waits; None if it does not. Raises `NotFound`, `Unavailable`."""
        if job.state not in (State.PENDING, State.QUEUED):
            return None
        key = job.id, job.state  # once it has moved, what was said of it before is not true any more
        shared = self._kept.setdefault(key, Shared(partial(explain, self._core, job.id), self._core.clock))
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return await shared.get()
