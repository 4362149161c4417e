"""Measures a service: it hears what the log hears, follows the moves, and answers whoever asks for the metrics."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPMethod
from typing import Any, Final

from prometheus_client import Metric, ProcessCollector

from app import events
from app.events import Event
from app.flow.core import Core
from app.flow.housekeeping import Housekeeper
from app.flow.moves import Ended, Moved
from app.flow.watch.few_names import FewNames
from app.metrics.exposition import write
from app.metrics.gauges import gauges, gauges_of_any
from app.metrics.instruments import Instruments
from app.metrics.tenants import Tenants
from app.scheduling.job import State
from app.settings import Settings

_NEW, _GONE = "new", "gone"
_REFUSALS: Final = ("rate", "max_queued")
_LOOPS: Final = ("ticker", "writer", "moves")
_OTHER_METHOD, _NO_ROUTE = "other", "none"


class Meter:
    """The metrics of one service. `hear` is told every event, `follow` every move that is durable; both are cheap."""

    def __init__(self, settings: Settings) -> None:
        self._instruments = Instruments()
        ProcessCollector(namespace="fairlane", registry=self._instruments.registry)
        names = FewNames(settings.metrics_tenants)
        self._tenants = Tenants(names, self._instruments.registry) if settings.metrics_tenants else None
        self._core: Core
        self._housekeeper: Housekeeper | None = None
        self._heard: Mapping[type[Event], Callable[[Any], None]] = {
            events.DifferenceMended: lambda e: self._instruments.audit_differences().inc(e.count),
            events.GroupCommitted: self._committed,
            events.JobPromoted: self._promoted,
            events.LoopFailed: lambda e: self._instruments.loop_failures(e.loop).inc(),
            events.ProposalRefused: lambda _: self._instruments.refused_proposals().inc(),
            events.Recovered: lambda _: self._instruments.recoveries().inc(),
            events.RequestServed: self._served,
            events.RowSkipped: lambda _: self._instruments.skipped_rows().inc(),
            events.SubmitRefused: self._refused,
            events.WriterFailed: lambda _: self._instruments.writer_failures().inc(),
        }

    def watch(self, core: Core, housekeeper: Housekeeper) -> None:
        """Measure this service from now on: memory is filled, and nothing has been served yet."""
        self._core, self._housekeeper = core, housekeeper
        if self._tenants is not None:
            self._tenants.meet_those_known(core)
        for queue in core.queue_labels.kept:
            self._instruments.begin_queue(queue)
        for reason in _REFUSALS:
            self._instruments.submit_refusals(reason)
        for loop in (*_LOOPS, *housekeeper.ages()):
            self._instruments.loop_failures(loop)
        core.moves.listen(self.follow)

    def look_on(self, onlooker: Core) -> None:
        """There is nothing in memory to measure: this replica stands by. What was counted stays."""
        self._core, self._housekeeper = onlooker, None

    def hear(self, event: Event) -> None:
        """Something happened."""
        heard = self._heard.get(type(event))
        if heard is not None:
            heard(event)

    def follow(self, moves: Sequence[Moved]) -> None:
        """These have happened."""
        label, instruments = self._core.queue_labels.of, self._instruments
        tally = Tally((label(moved.queue), moved.old or _NEW, moved.new or _GONE) for moved in moves)
        for (queue, old, new), n in tally.items():
            instruments.begin_queue(queue)
            instruments.moves(queue, old, new).inc(n)
        ended = Tally((label(moved.queue), moved.ended.outcome) for moved in moves if moved.ended is not None)
        for (queue, outcome), n in ended.items():
            instruments.attempts(queue, outcome).inc(n)
        for moved in moves:
            if moved.ended is not None:
                self._ended(moved.queue, moved.ended)
            elif moved.new is State.SCHEDULED:
                self._claimed(moved)
        if self._tenants is not None:
            self._tenants.follow(moves)

    async def scrape(self, accept: str) -> tuple[str, bytes]:
        """The media type and the text of all metrics for a reader who sent this `Accept` header."""
        now = list(self._gauges())  # here, in the loop, where memory stands still meanwhile
        return await asyncio.to_thread(lambda: write(self._with_the_rest(now), accept))

    def _gauges(self) -> Iterator[Metric]:
        yield from gauges_of_any(self._core)
        if self._housekeeper is None:
            return
        yield from gauges(self._core, self._housekeeper)
        if self._tenants is not None:
            yield from self._tenants.gauges(self._core.counts)

    def _with_the_rest(self, gauges: Sequence[Metric]) -> Iterator[Metric]:
        yield from self._instruments.registry.collect()
        yield from gauges

    def _claimed(self, moved: Moved) -> None:
        job = moved.job
        if job is None or job.queued_at is None or job.scheduled_at is None:
            return
        wait_sec = (job.scheduled_at - job.queued_at).total_seconds()
        self._instruments.wait(self._core.queue_labels.of(moved.queue)).observe(wait_sec)
        if self._tenants is not None:
            self._tenants.claimed(moved.tenant, job.cost, wait_sec)

    def _ended(self, in_queue: str, attempt: Ended) -> None:
        if attempt.started_at is not None:
            run_sec = (attempt.ended_at - attempt.started_at).total_seconds()
            self._instruments.run(self._core.queue_labels.of(in_queue)).observe(run_sec)

    def _committed(self, event: events.GroupCommitted) -> None:
        self._instruments.group().observe(event.took_ms / 1000)
        self._instruments.commit().observe(event.commit_ms / 1000)
        self._instruments.group_writes().observe(event.writes)

    def _promoted(self, event: events.JobPromoted) -> None:
        self._instruments.lateness().observe(max(0.0, event.late_ms / 1000))

    def _served(self, event: events.RequestServed) -> None:
        method = event.method if event.method in HTTPMethod.__members__ else _OTHER_METHOD
        route = event.route or _NO_ROUTE
        self._instruments.requests(method, route, event.status).inc()
        self._instruments.request(method, route).observe(event.took_ms / 1000)

    def _refused(self, event: events.SubmitRefused) -> None:
        self._instruments.submit_refusals(event.reason).inc()
        if self._tenants is not None:
            self._tenants.refused(event.tenant, event.reason)
