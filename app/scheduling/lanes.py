"""A tenant and its lanes: who may run, and what waits in which order. Only state and what can be read
from it; the rules that change it are the queue's."""

from __future__ import annotations

from app.scheduling.line import Line
from app.scheduling.records import TenantState

DEFAULT_WEIGHT = 1


class Tenant:
    """A tenant's settings, how many of its jobs run (over all queues), and its lanes by queue name."""

    __slots__ = ("lanes", "max_running", "name", "paused", "running", "weight")

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = DEFAULT_WEIGHT
        self.max_running: int | None = None
        self.paused = False
        self.running = 0
        self.lanes: dict[str, Lane] = {}

    @property
    def may_run(self) -> bool:
        """Whether the tenant is neither paused nor at its cap."""
        return not self.paused and (self.max_running is None or self.running < self.max_running)

    @property
    def is_blank(self) -> bool:
        """Whether it is like a tenant never heard of, so that forgetting it changes nothing."""
        return not (self.lanes or self.running or self.paused) and (
            self.weight == DEFAULT_WEIGHT and self.max_running is None
        )

    def state(self) -> TenantState:
        """What `Scheduler.load` takes to make this tenant again."""
        return TenantState(self.name, self.weight, self.max_running, self.paused, self.running)


class Lane:
    """The queued jobs of one tenant in one queue, packed, with the share it has used, in units. Its `number` is its
    own among all lanes there ever were."""

    __slots__ = ("jobs", "number", "queue", "tenant", "virtual_time")

    def __init__(self, number: int, queue: str, tenant: Tenant, virtual_time: int) -> None:
        self.number = number
        self.queue = queue
        self.tenant = tenant
        self.virtual_time = virtual_time
        self.jobs: Line[bytes] = Line()

    @property
    def is_pickable(self) -> bool:
        """Whether it has a queued job and its tenant may run one. The queue's own pause is not asked."""
        return len(self.jobs) > 0 and self.tenant.may_run
