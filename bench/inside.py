"""What the parts of the service cost that others wait for, seen from inside one process: to be measured, to show a key,
to look at all metrics, to say why a job waits. Ratios are of the loop's own time, blocks of both kinds in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Final

from app.events import Event, JobPromoted
from app.flow import dispatch, submit
from app.flow.access import issue
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.watch.explain import explain
from app.keys import ANYONE, Grant, Role
from app.main import Service, running
from app.scheduling.job import State
from app.settings import read_settings
from bench.figures import RATIO, Figure
from bench.stage import SHOWN_AS, Plan, Stage
from tests.api.asgi import Call, app_of

_CLIENTS: Final = 64
_DELAYED: Final = 40
_APART: Final = timedelta(milliseconds=25)
_LOOKS: Final = 20
_PATIENCE_SEC: Final = 60.0
_FILLED_AT_ONCE: Final = 10_000
_JOB: Final = b'{"tenant": "acme", "test_suite": "s"}'
_JSON: Final = [(b"host", b"here"), (b"content-type", b"application/json")]

MS: Final = "ms"
LONGEST_TURN: Final = "longest turn of the loop, ms"


async def inside(stage: Stage) -> list[Figure]:
    """All of it, on one database after the other."""
    figures: list[Figure] = []
    for kind, who in SHOWN_AS.items():
        async with stage.database(kind) as database:
            promoted = _Promotions()
            settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
            async with running(settings, promoted, "bench") as service:
                shown = _Shown(who, stage.plan)
                await shown.metered(service)
                await shown.keyed(service)
                await shown.promoted(service.core, promoted)
                await shown.scraped(service)
                await _fill(service.core, stage.plan.deep)
                await shown.scraped(service)
                await shown.explained(service.core)
                await shown.claims_beside(service.core)
                figures += shown.figures
    rows = list(dict.fromkeys(figure.row for figure in figures))
    return sorted(figures, key=lambda figure: rows.index(figure.row))


class _Promotions:
    """Keeps how late delayed jobs were queued."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self._news = asyncio.Event()

    def __call__(self, told: Event) -> None:
        if isinstance(told, JobPromoted):
            self.late_ms.append(told.late_ms)
            self._news.set()

    async def heard(self, times: int) -> None:
        async with asyncio.timeout(_PATIENCE_SEC):
            while len(self.late_ms) < times:
                self._news.clear()
                await self._news.wait()


class _Shown:
    """Measures one service, and keeps the figures."""

    def __init__(self, who: str, plan: Plan) -> None:
        self._who = who
        self._plan = plan
        self.figures: list[Figure] = []

    def _show(self, row: str, measure: str, samples: list[float]) -> None:
        self.figures.append(Figure("inside", row, self._who, measure, tuple(samples)))

    async def metered(self, service: Service) -> None:
        """What it costs a submit over HTTP to be measured."""
        app = app_of(service)

        async def submit_some(measured: bool) -> None:  # noqa: FBT001 - one of the two that are compared
            with nullcontext() if measured else _deaf(service):
                await _by_clients(lambda: Call("POST", b"/jobs", headers=_JSON, body=[_JOB]).of(app), self._plan.block)

        self._show("a measured submit to an unmeasured one", RATIO, await self._ratios(submit_some))

    async def keyed(self, service: Service) -> None:
        """What it costs a submit over HTTP to show a key."""
        core, app = service.core, app_of(service)
        _, key = await issue.make_key(core, "bench", Grant(Role.TENANT, "acme"), None, by=ANYONE)
        headers = [*_JSON, (b"authorization", f"Bearer {key.text}".encode())]

        async def submit_some(asked: bool) -> None:  # noqa: FBT001 - one of the two that are compared
            core.settings = replace(core.settings, keys="required" if asked else "off")
            await _by_clients(lambda: Call("POST", b"/jobs", headers=headers, body=[_JOB]).of(app), self._plan.block)

        self._show("a submit with a key to one without", RATIO, await self._ratios(submit_some))
        core.settings = replace(core.settings, keys="off")

    async def promoted(self, core: Core, promotions: _Promotions) -> None:
        """How late delayed jobs are queued on an idle service."""
        now = core.clock.now()
        delayed = [
            JobRequest(tenant=f"d{n}", test_suite="s", delay_sec=None, run_at=now + (n + 8) * _APART)
            for n in range(_DELAYED)
        ]
        submitted = await submit.submit(core, delayed)
        await promotions.heard(sum(each.job.state is State.PENDING for each in submitted))  # not those due by now
        self._show("a delayed job is late by", MS, promotions.late_ms)

    async def scraped(self, service: Service) -> None:
        """A look at all metrics, and how much of it nobody else can use the loop."""
        took, in_loop = [], []
        for _ in range(_LOOKS):
            began = time.perf_counter()
            await service.meter.scrape("")
            took.append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            list(service.meter._gauges())
            in_loop.append(1000 * (time.perf_counter() - began))
        row = f"/metrics, {service.core.order.queued_in('default'):,} queued"
        self._show(row, MS, took)
        self._show(row, "in the loop, ms", in_loop)

    async def explained(self, core: Core) -> None:
        """What it costs to say why a job waits behind many."""
        waiting = sorted(core.order.snapshot().jobs, key=lambda job: (job.priority, job.due_at))
        for place in (0, len(waiting) // 100, len(waiting) - 1):
            took, turns = [], []
            for _ in range(self._plan.rounds):
                async with _watched_turns() as seen:
                    began = time.perf_counter()
                    await explain(core, waiting[place].id)
                    took.append(1000 * (time.perf_counter() - began))
                turns.append(1000 * max(seen))
            row = f"explain, of {len(waiting):,} queued the one at place {place:,}"
            self._show(row, MS, took)
            self._show(row, LONGEST_TURN, turns)

    async def claims_beside(self, core: Core) -> None:
        """What is left of claims while one explanation follows the other."""
        last = max(core.order.snapshot().jobs, key=lambda job: (job.priority, job.due_at))
        ratios, claims = [], 4 * self._plan.block
        for turn in range(self._plan.blocks // 2):
            rates = {}
            for asked in (turn % 2 == 0, turn % 2 == 1):
                asking = asyncio.create_task(_explain_for_ever(core, last.id) if asked else asyncio.sleep(0))
                began = time.perf_counter()
                await _by_clients(lambda: dispatch.claim(core, ClaimRequest(worker="w")), claims)
                rates[asked] = claims / (time.perf_counter() - began)
                asking.cancel()
                await asyncio.wait([asking])
            ratios.append(rates[True] / rates[False])
        self._show("claims while explaining to claims alone", RATIO, ratios)

    async def _ratios(self, block: Callable[[bool], Awaitable[None]]) -> list[float]:
        ratios = []
        for turn in range(self._plan.blocks):
            took = {}
            for which in (turn % 2 == 0, turn % 2 == 1):
                began = time.thread_time()
                await block(which)
                took[which] = time.thread_time() - began
            ratios.append(took[True] / took[False])
        return ratios


@contextmanager
def _deaf(service: Service) -> Iterator[None]:
    """Nothing is counted in this block."""
    meter, listeners = service.meter, service.core.moves._listeners
    heard, meter._heard = meter._heard, {}
    listeners.remove(meter.follow)
    yield
    listeners.append(meter.follow)
    meter._heard = heard


@asynccontextmanager
async def _watched_turns() -> AsyncIterator[list[float]]:
    """How long each turn of the loop takes of its thread's time, in seconds."""
    turns: list[float] = [0.0]

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            turns.append(now - last)
            last = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    yield turns
    watching.cancel()
    await asyncio.wait([watching])


async def _explain_for_ever(core: Core, job_id: str) -> None:
    while True:
        await explain(core, job_id)


async def _fill(core: Core, jobs: int) -> None:
    for first in range(0, jobs, _FILLED_AT_ONCE):
        numbers = range(first, min(first + _FILLED_AT_ONCE, jobs))
        await submit.submit(core, [JobRequest(tenant=f"t{n % 1000}", test_suite="s", priority=n % 11) for n in numbers])


async def _by_clients(call: Callable[[], Awaitable[object]], times: int) -> None:
    left = iter(range(times))

    async def client() -> None:
        for _ in left:
            await call()

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
