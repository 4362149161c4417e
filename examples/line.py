"""A queue to try things on: the code that decides in the service, without service, workers or time. docs/fairness.md
is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from app.scheduling.scheduler import SHARE, Bound, Policy, Scheduler


class Line:
    """One queue. What is submitted waits in it, and what is served has ended at once. A level of priority is worth a
    share; `weights` are those of tenants that have another one than 1."""

    def __init__(self, **weights: int) -> None:
        self.order = Scheduler(Policy.VIRTUAL_TIME, SHARE)
        self.submitted = 0
        for tenant, weight in weights.items():
            self.order.set_tenant(tenant, weight=weight, max_running=None, paused=False)

    def submit(self, tenant: str, priority: int = 0, cost: int = 1, times: int = 1) -> str:
        """So many jobs, one after the other; the last one's id."""
        for _ in range(times):
            self.submitted += 1
            self.order.enqueue(
                job_id=_id(self.submitted),
                seq=self.submitted,
                tenant=tenant,
                queue="q",
                priority=priority,
                cost=cost,
                due_at=self.submitted,
                submitted_at=self.submitted,
            )
        return _id(self.submitted)

    def next(self) -> tuple[str, str]:
        """Serve the next job; its id and its tenant. `ValueError` if none waits."""
        pick = self.order.pick("q")
        if pick is None:
            raise ValueError("nothing waits")
        self.order.end(pick.job.tenant, "q")
        return pick.job.id, pick.job.tenant

    def serve(self, times: int) -> dict[str, int]:
        """The next ones; how many of each tenant that were."""
        return dict(Counter(self.next()[1] for _ in range(times)))

    def before(self, job: str, meanwhile: Callable[[], object] = lambda: None) -> dict[str, int]:
        """Serve until the job comes out, with something that happens before each; whose jobs came out before it."""
        served: Counter[str] = Counter()
        while True:
            meanwhile()
            picked, tenant = self.next()
            if picked == job:
                return dict(served)
            served[tenant] += 1

    def place(self, job: str) -> dict[str, int]:
        """What `explain` says goes first, by tenant."""
        outlook = self.order.outlook(job, most=10_000)
        if outlook is None:
            raise ValueError(f"{job} does not wait")
        while outlook.count(1000):
            pass
        outlook.close()
        return dict(outlook.by_tenant)

    def bound(self, job: str) -> Bound:
        """What `explain` says of how often the job can be overtaken from now on."""
        outlook = self.order.outlook(job, most=10_000)
        bound = outlook.standing.bound if outlook else None
        if bound is None:
            raise ValueError(f"nothing bounds how often {job} is overtaken")
        return bound


def _id(number: int) -> str:
    return f"{number:032x}"
