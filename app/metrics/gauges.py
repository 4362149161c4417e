"""What is read from memory when somebody asks. It costs a fixed amount a label: no row is counted, and nobody waits
for the writer."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from app.flow.core import Core
from app.flow.housekeeping import Housekeeper
from app.flow.watch.few_names import OTHER
from app.scheduling.job import State

_VERSION: Final = version("fairlane")


def gauges_of_any(core: Core) -> Iterator[GaugeMetricFamily]:
    """What there is to tell of every replica."""
    yield _one("ready", "1 while requests are served, as /health/ready says.", core.health().ready)
    yield _one("dispatching", "1 while this replica dispatches, 0 while it stands by.", core.role == "dispatcher")
    yield _one(
        "cut_off", "1 while the replica that dispatches is not reached from here.", core.cut_off_from is not None
    )
    yield _build(core)


def gauges(core: Core, housekeeper: Housekeeper) -> Iterator[GaugeMetricFamily]:
    """All others, as they are now."""
    yield _jobs(core)
    yield _oldest_wait(core)
    yield from _loops(core, housekeeper)
    yield _one("leases", "Leases that workers hold.", len(core.leases))
    yield _one("waiting_claims", "Claims that wait for a job.", len(core.waiting))
    yield _one("waiting_writes", "Writes that wait for the group at work to end.", core.writer.backlog)
    yield _one(
        "writer_busy_seconds", "Since when the group at work is at it; 0 if there is none.", core.writer.busy_sec
    )
    yield _one("writer_in_doubt", "1 while the outcome of the last commit is unknown.", core.writer.is_in_doubt)


def _one(name: str, means: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fairlane_{name}", means, value)


def _jobs(core: Core) -> GaugeMetricFamily:
    jobs = GaugeMetricFamily("fairlane_jobs", "Jobs there are.", labels=("queue", "state"))
    rest = {state: core.counts.by_state[state] for state in State}
    for queue in core.queue_labels.kept:
        states = core.counts.of_queue(queue)
        for state in State:
            rest[state] -= states[state]
            jobs.add_metric((queue, state), states[state])
    for state, n in rest.items():
        jobs.add_metric((OTHER, state), n)
    return jobs


def _oldest_wait(core: Core) -> GaugeMetricFamily:
    waits = GaugeMetricFamily(
        "fairlane_oldest_wait_seconds", "How long the longest waiting job waits; 0 if none does.", labels=("queue",)
    )
    now = core.clock.now()
    for queue in (*core.queue_labels.kept, OTHER):
        since = core.queued_since.oldest(queue)
        waits.add_metric((queue,), 0.0 if since is None else (now - since).total_seconds())
    return waits


def _loops(core: Core, housekeeper: Housekeeper) -> Iterator[GaugeMetricFamily]:
    age = GaugeMetricFamily("fairlane_loop_age_seconds", "Since a loop last came to its end.", labels=("loop",))
    period = GaugeMetricFamily("fairlane_loop_period_seconds", "How often a loop should.", labels=("loop",))
    ticker = (core.clock.monotonic() - core.last_tick_at, core.settings.tick_ms / 1000)
    for loop, (age_sec, period_sec) in {"ticker": ticker, **housekeeper.ages()}.items():
        age.add_metric((loop,), age_sec)
        period.add_metric((loop,), period_sec)
    yield age
    yield period


def _build(core: Core) -> GaugeMetricFamily:
    build = GaugeMetricFamily(
        "fairlane_build_info", "1; the labels say what runs.", labels=("version", "database", "policy")
    )
    build.add_metric((_VERSION, core.engines.dialect, core.order.policy), 1)
    return build
