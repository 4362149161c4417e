"""How what was given out compares with a fair division of it, taken down every few seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from app.flow.core import Core
from app.flow.watch.last_hour import Given
from app.scheduling.shares import Demand, fair_shares

DIVIDE_EVERY_SEC: Final = 5.0

_MOST_COMPARED: Final = 2000
"""With more tenants than that in one queue nobody's share is looked at: it would take too long."""


async def divide_given(core: Core) -> bool:
    """Note who was given how much since the last time, and who was due how much of it. Never more of it waits.

    A tenant wanted what it was given and, if it may run more, what it still has queued, at the mean cost of what the
    queue gave out.
    """
    given: Counter[str] = Counter()
    due: defaultdict[str, float] = defaultdict(float)
    for queue, of_queue in core.last_hour.take_given().items():
        given.update(of_queue.cost)
        for name, cost in _due(core, queue, of_queue).items():
            due[name] += cost
    if given:
        core.last_hour.divide(given, due)
    return False


def _due(core: Core, queue: str, given: Given) -> Mapping[str, float]:
    queued = core.counts.queued_by_tenant(queue)
    if len(queued) + len(given.cost) > _MOST_COMPARED:
        return given.cost
    wanted = defaultdict[str, float](float, given.cost)
    for name, jobs in queued.items():
        if core.order.is_pickable(queue, name):
            wanted[name] += jobs * given.mean_cost
    demands = {name: Demand(core.admission.settings(name).weight, cost) for name, cost in wanted.items()}
    return fair_shares(given.cost.total(), demands)
