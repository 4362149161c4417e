"""`make bench`: what the service costs on this machine, on both databases, one after the other in one run. The
machine's own speed changes from hour to hour: compare figures of one run only."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from sqlalchemy import event

from app.events import Event, JobPromoted, Recovered
from app.flow import dispatch, finish, submit
from app.flow.access import issue
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.watch.explain import explain
from app.keys import ANYONE, Grant, Role
from app.main import Service, running
from app.settings import read_settings
from tests.api.asgi import Call, app_of
from tests.databases import Database, SqliteDatabases, postgres_databases
from tests.input.idle import as_many_as_may_be, connected, p99, took_ms
from tests.served import serving

QUEUED: Final = 100_000
CLIENTS: Final = 64
REQUESTS: Final = 2_000
DELAYED: Final = 40
BLOCK: Final = 128
BLOCKS: Final = 41
JOB: Final = b'{"tenant": "acme", "test_suite": "s"}'
JSON: Final = [(b"host", b"here"), (b"content-type", b"application/json")]


class Listener:
    """Keeps what the service tells."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, told: Event) -> None:
        self.events.append(told)
        self._news.set()

    async def heard(self, kind: type[Event], times: int) -> None:
        """Wait until that many of a kind were told."""
        while sum(isinstance(told, kind) for told in self.events) < times:
            self._news.clear()
            await self._news.wait()

    def last(self, kind: type[Any]) -> Any:
        return [told for told in self.events if isinstance(told, kind)][-1]


@asynccontextmanager
async def _service(database: Database, listener: Listener) -> AsyncIterator[Service]:
    settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
    async with running(settings, listener, "bench") as service:
        yield service


@contextmanager
def databases() -> Iterator[list[Database]]:
    """One on each engine, for one run."""
    with tempfile.TemporaryDirectory() as folder, postgres_databases() as postgres:
        yield [SqliteDatabases(Path(folder)).create(), postgres.create()]


async def bench(database: Database) -> None:
    """All figures of one database."""
    listener = Listener()
    await _crowded(database)
    async with _service(database, listener) as service:
        core = service.core
        await _submits(database, core)
        await _metered(database, service)
        await _keyed(database, service)
        await _cycles(database, core)
        await _alone(database, core)
        await _promotions(database, core, listener)
        await _scraped(database, service)
        await _fill(core)
    async with _service(database, listener) as service:
        core = service.core
        recovered = listener.last(Recovered)
        _say(database, f"rebuild of {recovered.queued} queued jobs", f"{recovered.took_ms:.0f} ms")
        await _alone(database, core)
        await _scraped(database, service)
        await _explained(database, core)


async def _crowded(database: Database) -> None:
    """What many connections on which nothing is said cost one on which requests come, of a service that is served."""
    many = as_many_as_may_be()
    async with serving(database.url) as served:
        await took_ms(served)
        for idle in (0, many):
            async with connected(served, idle):
                took = await took_ms(served)
            _say(database, f"requests, {idle} idle connections", f"p50 {median(took):.1f} ms, p99 {p99(took):.1f} ms")


async def _submits(database: Database, core: Core) -> None:
    commits = _count_commits(core)
    took = await _by_clients(lambda n: submit.submit(core, [JobRequest(tenant=f"t{n % 5}", test_suite="s")]))
    _say(database, f"submits, {CLIENTS} clients", f"{REQUESTS / took:.0f}/s, {REQUESTS / commits():.0f} a commit")


async def _metered(database: Database, service: Service) -> None:
    """What it costs a submit over HTTP to be measured."""
    app = app_of(service)

    async def submit_some(measured: bool) -> None:  # noqa: FBT001 - one of the two that are compared
        with nullcontext() if measured else _deaf(service):
            await _by_clients(lambda _: Call("POST", b"/jobs", headers=JSON, body=[JOB]).of(app), BLOCK)

    _say(database, "a measured submit, unmeasured = 1", await _ratio(submit_some))


async def _keyed(database: Database, service: Service) -> None:
    """What it costs a submit over HTTP to show a key."""
    core, app = service.core, app_of(service)
    _, key = await issue.make_key(core, "bench", Grant(Role.TENANT, "acme"), None, by=ANYONE)
    headers = [*JSON, (b"authorization", f"Bearer {key.text}".encode())]

    async def submit_some(asked: bool) -> None:  # noqa: FBT001 - one of the two that are compared
        core.settings = replace(core.settings, keys="required" if asked else "off")
        await _by_clients(lambda _: Call("POST", b"/jobs", headers=headers, body=[JOB]).of(app), BLOCK)

    _say(database, "a submit with a key, without = 1", await _ratio(submit_some))
    core.settings = replace(core.settings, keys="off")


async def _ratio(block: Callable[[bool], Awaitable[None]]) -> str:
    """What the block takes of the loop's own time with, to without: blocks of both kinds in turn."""
    ratios = []
    for turn in range(BLOCKS):
        took = {}
        for which in (turn % 2 == 0, turn % 2 == 1):
            began = time.thread_time()
            await block(which)
            took[which] = time.thread_time() - began
        ratios.append(took[True] / took[False])
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.3f} (half of the blocks {low:.3f} to {high:.3f})"


@contextmanager
def _deaf(service: Service) -> Iterator[None]:
    """Nothing is counted in this block."""
    meter, listeners = service.meter, service.core.moves._listeners
    heard, meter._heard = meter._heard, {}
    listeners.remove(meter.follow)
    yield
    listeners.append(meter.follow)
    meter._heard = heard


async def _scraped(database: Database, service: Service) -> None:
    """A look at all metrics, and how much of it nobody else can use the loop."""
    took, in_loop = [], []
    for _ in range(20):
        began = time.perf_counter()
        await service.meter.scrape("")
        took.append(1000 * (time.perf_counter() - began))
        began = time.perf_counter()
        list(service.meter._gauges())
        in_loop.append(1000 * (time.perf_counter() - began))
    depth = service.core.order.queued_in("default")
    _say(database, f"scrape, {depth} queued", f"{median(took):.2f} ms, {median(in_loop):.2f} ms of it in the loop")


async def _explained(database: Database, core: Core) -> None:
    """What it costs to say why a job waits behind many: how long it takes, the longest turn of the loop in it, in the
    loop's own time, and what is left of claims while one explanation follows the other."""
    waiting = sorted(core.order.snapshot().jobs, key=lambda job: (job.priority, job.due_at))
    for job in (waiting[0], waiting[len(waiting) // 100], waiting[-1]):
        took, turns = [], []
        for _ in range(5):
            async with _watched_turns() as seen:
                began = time.perf_counter()
                told = await explain(core, job.id)
                took.append(1000 * (time.perf_counter() - began))
            turns.append(1000 * max(seen))
        ahead = f"{'' if told.ahead_exact else 'more than '}{told.ahead} ahead"
        _say(database, f"explain, {ahead}", f"{median(took):.1f} ms, longest turn of the loop {median(turns):.2f} ms")
    ratios = []
    for turn in range(BLOCKS // 2):
        claimed = {}
        for asked in (turn % 2 == 0, turn % 2 == 1):
            asking = asyncio.create_task(_explain_for_ever(core, waiting[-1].id) if asked else asyncio.sleep(0))
            claimed[asked] = await _claims(core)
            asking.cancel()
            await asyncio.wait([asking])
        ratios.append(claimed[True] / claimed[False])
    low, middle, high = quantiles(ratios, n=4)
    _say(database, "claims while explaining, alone = 1", f"{middle:.2f} (half of the times {low:.2f} to {high:.2f})")


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


async def _claims(core: Core) -> float:
    """How many claims a second."""
    return 500 / await _by_clients(lambda _: dispatch.claim(core, ClaimRequest(worker="w")), 500)


async def _cycles(database: Database, core: Core) -> None:
    async def cycle(_: int) -> None:
        for job in await dispatch.claim(core, ClaimRequest(worker="w", start=True)):
            await finish.complete(core, job.id, job.token or "")

    commits = _count_commits(core)
    took = await _by_clients(cycle)
    _say(
        database,
        f"claim + complete, {CLIENTS} workers",
        f"{REQUESTS / took:.0f}/s, {REQUESTS / commits():.0f} a commit",
    )


async def _alone(database: Database, core: Core) -> None:
    """One client, one worker, nobody else: submit, claim, complete."""
    parts: dict[str, list[float]] = {"submit": [], "claim": [], "complete": []}
    for _ in range(200):
        began = time.perf_counter()
        await submit.submit(core, [JobRequest(tenant="alone", test_suite="s")])
        submitted = time.perf_counter()
        [job] = await dispatch.claim(core, ClaimRequest(worker="w", start=True))
        claimed = time.perf_counter()
        await finish.complete(core, job.id, job.token or "")
        for part, sec in zip(
            parts, (submitted - began, claimed - submitted, time.perf_counter() - claimed), strict=True
        ):
            parts[part].append(1000 * sec)
    depth = core.order.queued_in("default")
    for part, took in parts.items():
        _say(
            database,
            f"{part} alone, {depth} queued",
            f"p50 {median(took):.2f} ms, p99 {quantiles(took, n=100)[98]:.2f} ms",
        )


async def _promotions(database: Database, core: Core, listener: Listener) -> None:
    """How late delayed jobs are queued on an idle service."""
    await submit.submit(core, [JobRequest(tenant=f"d{n}", test_suite="s", delay_sec=1 + n % 2) for n in range(DELAYED)])
    await listener.heard(JobPromoted, DELAYED)
    late = [told.late_ms for told in listener.events if isinstance(told, JobPromoted)]
    _say(database, f"{DELAYED} promotions, late by", f"p50 {median(late):.1f} ms, worst {max(late):.1f} ms")
    await dispatch.claim(core, ClaimRequest(worker="w", limit=DELAYED))


async def _fill(core: Core) -> None:
    for first in range(0, QUEUED, 10_000):
        batch = [
            JobRequest(tenant=f"t{n % 1000}", test_suite="s", priority=n % 11) for n in range(first, first + 10_000)
        ]
        await submit.submit(core, batch)


async def _by_clients(call: Callable[[int], Awaitable[object]], times: int = REQUESTS) -> float:
    numbers = iter(range(times))

    async def client() -> None:
        for number in numbers:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return time.perf_counter() - began


def _count_commits(core: Core) -> Callable[[], int]:
    """Counts real commits of the writer from here on."""
    commits: list[object] = []
    event.listen(core.engines.writer.sync_engine, "commit", commits.append)
    return lambda: len(commits)


def _say(database: Database, what: str, figure: str) -> None:
    sys.stdout.write(f"{database.kind:9} {what:40} {figure}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the figures."""
    with databases() as both:
        for database in both:
            asyncio.run(bench(database))


if __name__ == "__main__":
    main()
