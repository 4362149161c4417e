"""Simulations of both rules with the numbers that come out: why the penalty rule is not the default."""

from __future__ import annotations

from collections import Counter

import pytest

from app.scheduling.scheduler import SHARE, Policy, QueuedJob, Scheduler
from tests.scheduling.workload import id_of


class Simulation:
    """One queue whose picked jobs end at once; time is the number of submits so far."""

    def __init__(self, policy: Policy, **weights: int) -> None:
        self.scheduler = Scheduler(policy, SHARE)
        self._submits = 0
        for tenant, weight in weights.items():
            self.scheduler.set_tenant(tenant, weight=weight, max_running=None, paused=False)

    def submit(self, tenant: str, priority: int) -> QueuedJob:
        self._submits += 1
        return self.scheduler.enqueue(
            job_id=id_of(self._submits),
            seq=self._submits,
            tenant=tenant,
            queue="q",
            priority=priority,
            cost=1,
            due_at=self._submits,
            submitted_at=self._submits,
        )

    def dispatch(self) -> QueuedJob:
        pick = self.scheduler.pick("q")
        assert pick is not None
        self.scheduler.end(pick.job.tenant, "q")
        return pick.job

    def dispatches_while_always_deep(self, priorities: dict[str, int], *, number: int) -> Counter[str]:
        """Fifty jobs of each tenant wait at all times: each dispatch is followed by its tenant's submit."""
        for _ in range(50):
            for tenant, priority in priorities.items():
                self.submit(tenant, priority)
        served: Counter[str] = Counter()
        for _ in range(number):
            tenant = self.dispatch().tenant
            served[tenant] += 1
            self.submit(tenant, priorities[tenant])
        return served

    def position_of(self, job: QueuedJob) -> int:
        """As which number `job` comes out, from 1."""
        position = 1
        while self.dispatch() != job:
            position += 1
        return position

    def dispatches_before(self, job: QueuedJob, rivals: list[str]) -> int | None:
        """Each of `rivals` submits an urgent job in turn, one dispatch a submit; None: not in all of them."""
        for number, rival in enumerate(rivals):
            self.submit(rival, 0)
            if self.dispatch() == job:
                return number
        return None


@pytest.mark.parametrize(("policy", "heavy", "light"), [(Policy.PENALTY, 3983, 17), (Policy.VIRTUAL_TIME, 3000, 1000)])
def test_weights_three_to_one(policy: Policy, heavy: int, light: int) -> None:
    simulation = Simulation(policy, heavy=3, light=1)
    served = simulation.dispatches_while_always_deep({"heavy": 5, "light": 5}, number=4_000)
    assert served == {"heavy": heavy, "light": light}


@pytest.mark.parametrize(("policy", "position"), [(Policy.PENALTY, 997), (Policy.VIRTUAL_TIME, 1)])
def test_an_urgent_job_behind_a_thousand(policy: Policy, position: int) -> None:
    simulation = Simulation(policy)
    for _ in range(1_000):
        simulation.submit("ada", 5)
    assert simulation.position_of(simulation.submit("ada", 0)) == position


@pytest.mark.parametrize(
    ("policy", "all_urgent", "honest"), [(Policy.PENALTY, 3955, 45), (Policy.VIRTUAL_TIME, 2002, 1998)]
)
def test_marking_everything_urgent(policy: Policy, all_urgent: int, honest: int) -> None:
    simulation = Simulation(policy)
    served = simulation.dispatches_while_always_deep({"all urgent": 0, "honest": 5}, number=4_000)
    assert served == {"all urgent": all_urgent, "honest": honest}


@pytest.mark.parametrize(("policy", "dispatches"), [(Policy.PENALTY, None), (Policy.VIRTUAL_TIME, 20)])
def test_five_tenants_that_are_urgent_in_turn(policy: Policy, dispatches: int | None) -> None:
    simulation = Simulation(policy)
    patient = simulation.submit("patient", 10)
    rivals = [f"rival {number % 5}" for number in range(5_000)]
    assert simulation.dispatches_before(patient, rivals) == dispatches


@pytest.mark.parametrize(("priority", "dispatches"), [(10, 20), (0, 0)])
def test_tenants_never_seen_before_delay_a_job_by_no_more_than_its_priority(priority: int, dispatches: int) -> None:
    simulation = Simulation(Policy.VIRTUAL_TIME)
    job = simulation.submit("patient", priority)
    rivals = [f"rival {number}" for number in range(100)]
    assert simulation.dispatches_before(job, rivals) == dispatches
