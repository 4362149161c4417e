"""What is told of tenants by name, as far as the settings allow: their names are the clients' to invent, and not
everybody who may look at the metrics may know them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Summary
from prometheus_client.core import GaugeMetricFamily

from app.flow.core import Core
from app.flow.counts import Counts
from app.flow.moves import Moved
from app.flow.watch.few_names import OTHER, FewNames
from app.scheduling.job import State


class Tenants:
    """Counters of tenants, and how many unfinished jobs each has."""

    def __init__(self, names: FewNames, registry: CollectorRegistry) -> None:
        self._names = names
        moves = Counter(
            "fairlane_tenant_moves", "Jobs of a tenant that entered a state.", ("tenant", "to"), registry=registry
        )
        cost = Counter(
            "fairlane_tenant_dispatched_cost", "Cost of a tenant's jobs that were claimed.", ("tenant",),
            registry=registry,
        )  # fmt: skip
        wait = Summary(
            "fairlane_tenant_wait_seconds", "From queued to scheduled, by tenant.", ("tenant",), registry=registry
        )
        refusals = Counter(
            "fairlane_tenant_submit_refusals", "Submits of a tenant refused with 429.", ("tenant", "reason"),
            registry=registry,
        )  # fmt: skip
        self._moves, self._cost, self._wait = cache(moves.labels), cache(cost.labels), cache(wait.labels)
        self._refusals = cache(refusals.labels)

    def meet_those_known(self, core: Core) -> None:
        """Give places to the tenants that somebody set up, then to those with most unfinished jobs."""
        self._names.meet(core.admission.configured())
        unfinished = Tally[str]()
        for (tenant, _), n in core.counts.tally().by_tenant.items():
            unfinished[tenant] += n
        self._names.meet(tenant for tenant, _ in unfinished.most_common())

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened."""
        entered = Tally((self._names.of(moved.tenant), moved.new) for moved in moves if moved.new is not None)
        for (tenant, state), n in entered.items():
            self._moves(tenant, state).inc(n)

    def claimed(self, tenant: str, cost: int, wait_sec: float) -> None:
        """A job of the tenant was claimed."""
        label = self._names.of(tenant)
        self._cost(label).inc(cost)
        self._wait(label).observe(wait_sec)

    def refused(self, tenant: str, reason: str) -> None:
        """A submit of the tenant was."""
        self._refusals(self._names.of(tenant), reason).inc()

    def gauges(self, counts: Counts) -> Iterator[GaugeMetricFamily]:
        """How many unfinished jobs each has now; the work is the labels', however many tenants there are."""
        jobs = GaugeMetricFamily("fairlane_tenant_jobs", "Unfinished jobs of a tenant.", labels=("tenant", "state"))
        for state in State:
            if state.is_final:
                continue
            rest = counts.by_state[state]
            for tenant in self._names.kept:
                n = counts.of_tenant(tenant)[state]
                rest -= n
                jobs.add_metric((tenant, state), n)
            jobs.add_metric((OTHER, state), rest)
        yield jobs
