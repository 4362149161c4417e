"""Many jobs, tenants, workers and restarts, in whatever order hypothesis thinks of: what must always hold, holds."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from app.flow.cancel import CancelFilter
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import State
from app.scheduling.scheduler import Policy
from tests.contract.crowd import Crowd
from tests.contract.model import CALLS
from tests.databases import Database, Databases, run_apart
from tests.flow.conftest import Kept
from tests.flow.harness import HOUR

TENANTS: Final = ("ada", "bob", "cyd")
QUEUES: Final = ("default", "other")
STEPS: Final = 60


@dataclass(frozen=True)
class Step:
    """Something that a `Crowd` does."""

    name: str
    arguments: dict[str, Any]

    def of(self, crowd: Crowd) -> Coroutine[Any, Any, None]:
        does: Coroutine[Any, Any, None] = getattr(crowd, self.name)(**self.arguments)
        return does


any_of_them = st.integers(0, 200)
one_of_the_newest = st.integers(0, 4)
which = one_of_the_newest | any_of_them
queues = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2, unique=True).map(tuple)
request = st.builds(
    JobRequest,
    tenant=st.sampled_from(TENANTS),
    test_suite=st.sampled_from(("unit", "smoke")),
    queue=st.sampled_from(QUEUES),
    priority=st.integers(0, 10),
    cost=st.sampled_from((1, 1, 3)),
    delay_sec=st.sampled_from((0, 0, 0, 5)),
    max_attempts=st.integers(1, 3),
    timeout_sec=st.sampled_from((None, None, 20)),
)
claim = st.builds(
    ClaimRequest,
    worker=st.just("w"),
    queues=queues,
    limit=st.integers(1, 4),
    start=st.booleans(),
    wait_sec=st.sampled_from((0, 0, 0, 600)),
)
tenant = st.builds(
    TenantSettings,
    weight=st.sampled_from((1, 1, 2, 5)),
    max_running=st.sampled_from((None, 1, 2)),
    max_queued=st.sampled_from((None, None, 5)),
    paused=st.sampled_from((False, False, False, True)),
)
cancels = st.builds(
    CancelFilter,
    tenant=st.sampled_from(TENANTS),
    queue=st.sampled_from((None, *QUEUES)),
    test_suite=st.sampled_from((None, None, "unit")),
    state=st.sampled_from((None, State.PENDING, State.QUEUED, State.SCHEDULED, State.RUNNING)),
)
KINDS: Final[dict[str, tuple[int, dict[str, SearchStrategy[Any]]]]] = {
    "submit": (8, {"requests": st.lists(request, min_size=1, max_size=5)}),
    "claim": (12, {"request": claim}),
    "hang_up": (1, {}),
    "report": (16, {"number": which, "call": st.sampled_from(CALLS)}),
    "report_many": (
        3,
        {
            "numbers": st.lists(which, min_size=1, max_size=6),
            "errors": st.lists(st.sampled_from((None, "it broke")), min_size=6, max_size=6),
        },
    ),
    "beat_many": (2, {"numbers": st.lists(which, min_size=1, max_size=6)}),
    "prioritize": (3, {"number": which, "priority": st.integers(0, 10)}),
    "cancel": (2, {"number": which}),
    "cancel_many": (1, {"wanted": cancels}),
    "retry": (2, {"number": which}),
    "set_tenant": (3, {"name": st.sampled_from(TENANTS), "settings": tenant}),
    "set_queue": (2, {"name": st.sampled_from(QUEUES), "paused": st.sampled_from((False, False, True))}),
    "pass_time": (7, {"seconds": st.sampled_from((0.5, 3.0, 6.0, 12.0, 31.0))}),
    "restart": (2, {"wall_jumped": st.sampled_from((0.0, 15.0, HOUR, -HOUR))}),
}


def _step(name: str) -> SearchStrategy[Step]:
    _, arguments = KINDS[name]
    return st.builds(Step, name=st.just(name), arguments=st.fixed_dictionaries(arguments))


steps = st.sampled_from([name for name, (weight, _) in KINDS.items() for _ in range(weight)]).flatmap(_step)
days = st.lists(steps, min_size=STEPS, max_size=STEPS)
first = st.lists(request, min_size=3, max_size=8)


async def _live(database: Database, policy: Policy, batch: list[JobRequest], day: list[Step]) -> None:
    crowd = await Crowd.come(database, policy)
    try:
        for step in (Step("submit", {"requests": batch}), *day):
            await step.of(crowd)
            await crowd.look()
        await crowd.compare_with_a_twin()
    finally:
        await crowd.go()


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("policy", list(Policy))
def test_whatever_happens_to_many_jobs_what_must_hold_holds(databases: Databases, kept: Kept, policy: Policy) -> None:
    database = next(kept.emptied(databases, "many"))

    @settings(
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=8 if database.kind == "sqlite" else 4,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if database.kind == "sqlite" else [Phase.generate],
    )
    @given(batch=first, day=days)
    def play(batch: list[JobRequest], day: list[Step]) -> None:
        run_apart(_live(next(kept.emptied(databases, "many")), policy, batch, day))

    play()
