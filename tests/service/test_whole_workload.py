"""10,000 jobs that real people submitted, through the client and a hundred workers that take the log's run times scaled
down, crash and come back, while the service is killed three times."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import httpx
import pytest

from app.client import AsyncClient, Context, GiveUp, NewJob, Worker
from app.client import State as ClientState
from app.scheduling.job import Outcome
from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy
from app.store.engine import open_engines
from tests import twin
from tests.databases import Database
from tests.served import Restarting
from tests.service.swf import Logged, needs_log, read_log

JOBS = 10_000
KILLS = (2_500, 5_000, 7_500)
WORKERS = 100
CONCURRENCY = 4
LEASE_SEC = 8
SCALE = 1e-5
CRASHES = 200
"""Of workers, spread over all the jobs."""


class Wire(httpx.AsyncHTTPTransport):
    """The way to the service, which a crash cuts: nothing is told any more, not even a release."""

    is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_cut:
            raise httpx.ConnectError("crashed")
        return await super().handle_async_request(request)


@dataclass
class Site:
    """All workers, and what they do."""

    url: str
    log: dict[str, Logged]
    chance: random.Random
    running: set[str] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)
    twice: list[str] = field(default_factory=list)
    crash_at: list[int] = field(default_factory=list)
    order: count[int] = field(default_factory=count)
    milestones: list[tuple[int, int, asyncio.Event]] = field(default_factory=list)

    async def handle(self, context: Context) -> None:
        """Do a job: as long as the log says, and as well."""
        job = context.job
        if job.id in self.running:
            self.twice.append(job.id)
        self.running.add(job.id)
        try:
            await asyncio.sleep(self.log[job.test_suite].run_sec * SCALE)
        finally:
            self.running.discard(job.id)
        self.ended[job.id] += 1
        while self.milestones and len(self.ended) >= self.milestones[0][0]:
            heapq.heappop(self.milestones)[-1].set()
        if self.log[job.test_suite].failed:
            raise GiveUp("exit 1")

    async def until_ended(self, jobs: int) -> None:
        """Wait until so many different jobs have been done."""
        reached = asyncio.Event()
        heapq.heappush(self.milestones, (jobs, next(self.order), reached))
        await reached.wait()

    async def work(self, name: str) -> None:
        """A worker that is started again whenever it has crashed."""
        while True:
            wire = Wire()
            async with AsyncClient(self.url, transport=wire) as client:
                worker = Worker(client, self.handle, concurrency=CONCURRENCY, lease_sec=LEASE_SEC, name=name)
                running = asyncio.create_task(worker.run(handle_signals=False))
                crash = asyncio.create_task(self._crash())
                try:
                    await asyncio.wait({running, crash}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    wire.is_cut = crash.done()
                    crash.cancel()
                    running.cancel()
                    await asyncio.wait({running, crash})

    async def _crash(self) -> None:
        """When this ends, the worker that waits for it crashes."""
        if not self.crash_at:
            await asyncio.Event().wait()
        await self.until_ended(self.crash_at.pop(self.chance.randrange(len(self.crash_at))))


async def _until_all_are_final(client: AsyncClient) -> None:
    counts = (await client.stats()).state_counts
    while counts[ClientState.COMPLETED] + counts[ClientState.FAILED] < JOBS:
        await asyncio.sleep(0.2)
        counts = (await client.stats()).state_counts


@needs_log
@pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning")  # a worker that crashes while it connects
@pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")
async def test_ten_thousand_jobs_outlive_crashing_workers_and_a_killed_service(database: Database) -> None:
    log = read_log(JOBS)
    chance = random.Random(database.kind)
    service = Restarting(database.url)
    site = Site(service.url, {job.number: job for job in log}, chance)
    site.crash_at = [chance.randrange(100, JOBS - 500) for _ in range(CRASHES)]
    async with service.run(), AsyncClient(service.url) as client:
        wanted = (NewJob(tenant=job.user, test_suite=job.number, max_attempts=100) for job in log)
        submitting = asyncio.create_task(client.submit_all(wanted))
        workers = [asyncio.create_task(site.work(f"worker-{number}")) for number in range(WORKERS)]
        for jobs in KILLS:
            await site.until_ended(jobs)
            await service.kill()
        assert len(await submitting) == JOBS
        await _until_all_are_final(client)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    async with open_engines(database.url) as engines:
        history = await twin.read_history(engines)
    expected = {job.number: ("failed" if job.failed else "completed", job.user) for job in log}
    assert {job.test_suite: (job.state, job.tenant) for job in history.jobs} == expected
    assert len(history.jobs) == JOBS
    assert site.twice == []
    outcomes = Counter(attempt.outcome for attempts in history.attempts.values() for attempt in attempts)
    assert outcomes[Outcome.COMPLETED] + outcomes[Outcome.FAILED] == JOBS
    assert outcomes[Outcome.LAPSED] > 0
    relived = twin.relive(history, Policy.VIRTUAL_TIME, SHARE)
    assert relived.wrong == []
    assert len(relived.picked) == outcomes.total()
