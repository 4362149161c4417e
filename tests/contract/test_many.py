"""Many jobs, tenants, workers and restarts, in whatever order hypothesis thinks of: what must always hold, holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from app.flow.bulk import Report
from app.flow.cancel import CancelFilter
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job, State
from app.scheduling.scheduler import Policy
from tests.contract.crowd import Crowd
from tests.contract.model import CALLS, Call
from tests.databases import Database, Databases
from tests.flow.conftest import Kept
from tests.flow.harness import HOUR

T = TypeVar("T")
E = TypeVar("E")

TENANTS: Final = ("ada", "bob", "cyd")
QUEUES: Final = ("default", "other")
EXAMPLES: Final = {"sqlite": 25, "postgres": 8}
STEPS: Final = 35

which = st.integers(0, 1000)
"""One of those there are, whatever their number is by then."""
some = st.lists(which, min_size=1, max_size=6)
priorities = st.integers(0, 10)
some_queues = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2, unique=True).map(tuple)
requests = st.builds(
    JobRequest,
    tenant=st.sampled_from(TENANTS),
    test_suite=st.sampled_from(("unit", "smoke")),
    queue=st.sampled_from(QUEUES),
    priority=priorities,
    cost=st.sampled_from((1, 1, 3)),
    delay_sec=st.sampled_from((0, 0, 0, 5)),
    max_attempts=st.integers(1, 3),
    timeout_sec=st.sampled_from((None, None, 20)),
)
tenant_settings = st.builds(
    TenantSettings,
    weight=st.sampled_from((1, 1, 2, 5)),
    max_running=st.sampled_from((None, 1, 2)),
    max_queued=st.sampled_from((None, None, 5)),
    paused=st.sampled_from((False, False, False, True)),
)


def chosen(things: Sequence[T], number: int) -> T:
    return things[number % len(things)]


class Many(RuleBasedStateMachine):
    """Plays steps on a `Crowd`, each of which is looked at when it is done."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._crowd: Crowd

    def _do(self, step: Coroutine[Any, Any, None]) -> None:
        self._runner.run(step)
        self._runner.run(self._crowd.look())

    @property
    def _jobs(self) -> list[Job]:
        return list(self._crowd.seen.jobs.values())

    @property
    def _tokens(self) -> list[str]:
        return list(self._crowd.given)

    def _has_jobs(self) -> bool:
        return bool(self._jobs)

    def _has_tokens(self) -> bool:
        return bool(self._tokens)

    def _has_lines(self) -> bool:
        return bool(self._crowd.lines)

    @initialize(policy=st.sampled_from(list(Policy)), batch=st.lists(requests, min_size=3, max_size=8))
    def come(self, policy: Policy, batch: list[JobRequest]) -> None:
        self._crowd = self._runner.run(Crowd.come(self.database, policy))
        self._do(self._crowd.submit(batch))

    @rule(batch=st.lists(requests, min_size=1, max_size=5))
    def submit(self, batch: list[JobRequest]) -> None:
        self._do(self._crowd.submit(batch))

    @rule(queues=some_queues, limit=st.integers(1, 4), start=st.booleans())
    def claim(self, queues: tuple[str, ...], limit: int, start: bool) -> None:  # noqa: FBT001
        self._do(self._crowd.claim(ClaimRequest(worker="w", queues=queues, limit=limit, start=start)))

    @rule(queues=some_queues, limit=st.integers(1, 2), start=st.booleans())
    def claim_and_wait(self, queues: tuple[str, ...], limit: int, start: bool) -> None:  # noqa: FBT001
        wanted = ClaimRequest(worker="waits", queues=queues, limit=limit, start=start, wait_sec=600)
        self._do(self._crowd.claim(wanted))

    @precondition(_has_lines)
    @rule()
    def hang_up(self) -> None:
        self._do(self._crowd.hang_up())

    @precondition(_has_tokens)
    @rule(number=which, call=st.sampled_from(CALLS))
    def report(self, number: int, call: Call) -> None:
        self._do(self._crowd.report(chosen(self._tokens, number), call))

    @precondition(_has_tokens)
    @rule(number=st.integers(0, 3), call=st.sampled_from(CALLS))
    def report_newly_claimed(self, number: int, call: Call) -> None:
        self._do(self._crowd.report(chosen(self._tokens[::-1], number), call))

    @precondition(_has_tokens)
    @rule(numbers=some, errors=st.lists(st.sampled_from((None, "it broke")), min_size=6, max_size=6))
    def report_many(self, numbers: list[int], errors: list[str | None]) -> None:
        tokens = [chosen(self._tokens, number) for number in numbers]
        given = self._crowd.given
        reports = [Report(id=given[t], token=t, error=error) for t, error in zip(tokens, errors, strict=False)]
        self._do(self._crowd.report_many(reports))

    @precondition(_has_tokens)
    @rule(numbers=some)
    def beat_many(self, numbers: list[int]) -> None:
        self._do(self._crowd.beat_many([chosen(self._tokens, number) for number in numbers]))

    @precondition(_has_jobs)
    @rule(number=which, priority=priorities)
    def prioritize(self, number: int, priority: int) -> None:
        self._do(self._crowd.prioritize(chosen(self._jobs, number), priority))

    @precondition(_has_jobs)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        self._do(self._crowd.cancel(chosen(self._jobs, number)))

    @rule(
        tenant=st.sampled_from(TENANTS),
        queue=st.sampled_from((None, *QUEUES)),
        state=st.sampled_from((None, State.PENDING, State.QUEUED, State.SCHEDULED, State.RUNNING)),
    )
    def cancel_many(self, tenant: str, queue: str | None, state: State | None) -> None:
        self._do(self._crowd.cancel_many(CancelFilter(tenant=tenant, queue=queue, state=state)))

    @precondition(_has_jobs)
    @rule(number=which)
    def retry(self, number: int) -> None:
        self._do(self._crowd.retry(chosen(self._jobs, number)))

    @rule(name=st.sampled_from(TENANTS), wanted=tenant_settings)
    def set_tenant(self, name: str, wanted: TenantSettings) -> None:
        self._do(self._crowd.set_tenant(name, wanted))

    @rule(name=st.sampled_from(QUEUES), paused=st.sampled_from((False, False, True)))
    def set_queue(self, name: str, paused: bool) -> None:  # noqa: FBT001
        self._do(self._crowd.set_queue(name, paused=paused))

    @rule(seconds=st.sampled_from((0.5, 3.0, 6.0, 12.0, 31.0)))
    def pass_time(self, seconds: float) -> None:
        self._do(self._crowd.pass_time(seconds))

    @rule(wall_jumped=st.sampled_from((0.0, 0.0, 15.0, HOUR, -HOUR)))
    def restart(self, wall_jumped: float) -> None:
        self._do(self._crowd.restart(wall_jumped))

    def teardown(self) -> None:
        try:
            if hasattr(self, "_crowd"):
                self._runner.run(self._crowd.go())
        finally:
            self._runner.close()


@pytest.mark.usefixtures("no_jitter")
def test_whatever_happens_to_many_jobs_what_must_hold_holds(databases: Databases, kept: Kept) -> None:
    emptied = (kept.emptied(databases, "many") for _ in iter(int, 1))

    class OnThisDatabase(Many):
        def __init__(self) -> None:
            super().__init__()
            self.database = next(next(emptied))

    kind = next(next(emptied)).kind
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            derandomize=True,
            deadline=None,
            database=None,
            max_examples=EXAMPLES[kind],
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
        ),
    )
