"""The worker, and clients, on the real service: killed, frozen, restarted, drained."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.client import AsyncClient, Context, GiveUp, Job, NewJob, Outcome, State, Worker
from tests.client.both import Either, Kind, connected
from tests.databases import Database, Databases
from tests.history.attacked import do_not_wait_for
from tests.served import PATIENCE_SEC, Served, serving


@asynccontextmanager
async def working(url: str, handler: Any, **options: Any) -> AsyncIterator[Worker]:
    """A worker for the while."""
    async with AsyncClient(url) as client, asyncio.timeout(PATIENCE_SEC * 2):
        worker = Worker(client, handler, **({"lease_sec": 3, "grace_sec": 5} | options))
        run = asyncio.create_task(worker.run(handle_signals=False))
        try:
            yield worker
        finally:
            worker.stop()
            await run


@asynccontextmanager
async def restartable(url: str) -> AsyncIterator[Restartable]:
    """A service that may be ended and started again at the same address."""
    async with AsyncExitStack() as stack:
        service = Restartable(url, stack)
        await service.start()
        yield service


class Restartable:
    """See `restartable`."""

    def __init__(self, database_url: str, stack: AsyncExitStack) -> None:
        self._database_url = database_url
        self._stack = stack
        self._port = 0
        self.served: Served

    async def start(self) -> None:
        """Start it, where it was."""
        self.served = await self._stack.enter_async_context(serving(self._database_url, port=self._port))
        self._port = urlsplit(self.served.url).port or 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"


async def all_ended(client: AsyncClient, own: str) -> list[Job]:
    """The jobs of this tenant, once all have ended."""
    async with asyncio.timeout(PATIENCE_SEC * 2):
        jobs = [job async for job in client.iter_jobs(tenant=own)]
        return [await client.wait_for(job.id) for job in jobs]


async def test_workers_do_every_job_once(service: Served, own: str) -> None:
    done: Counter[int] = Counter()

    async def handler(context: Context) -> Any:
        done[context.job.payload] += 1
        return {"doubled": context.job.payload * 2}

    async with AsyncClient(service.url) as client:
        await client.submit_all(NewJob(tenant=own, test_suite="suite", queue=own, payload=n) for n in range(100))
        async with (
            working(service.url, handler, queues=[own], lease_sec=30),
            working(service.url, handler, queues=[own], lease_sec=30),
        ):
            jobs = await all_ended(client, own)
    assert done == Counter(range(100))
    assert {job.state for job in jobs} == {State.COMPLETED}
    assert all(job.result == {"doubled": job.payload * 2} for job in jobs)
    assert {job.attempt for job in jobs} == {1}


async def test_each_end_of_a_handler_is_an_end_of_its_job(service: Served, own: str) -> None:
    def handler(context: Context) -> Any:
        match context.job.payload:
            case "give up":
                raise GiveUp("hopeless")
            case "fail":
                raise ValueError("broken")
            case "too large":
                return "x" * 70_000
        return "fine"

    async with AsyncClient(service.url) as client, working(service.url, handler, queues=[own], lease_sec=30):
        for payload in ("give up", "fail", "too large", "fine"):
            await client.submit(own, "suite", queue=own, payload=payload, max_attempts=1)
        jobs = {job.payload: job for job in await all_ended(client, own)}
    assert (jobs["give up"].state, jobs["give up"].error) == (State.FAILED, "hopeless")
    assert (jobs["fail"].state, jobs["fail"].error) == (State.FAILED, "ValueError: broken")
    assert jobs["too large"].state is State.FAILED
    assert "64 KiB" in (jobs["too large"].error or "")
    assert (jobs["fine"].state, jobs["fine"].result) == (State.COMPLETED, "fine")


async def test_a_cancelled_job_is_stopped_by_the_next_heartbeat(service: Served, own: str) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()
    reasons: list[str | None] = []

    async def handler(context: Context) -> None:
        begun.set()
        context.set_progress(0.5)
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(context.stop_reason)
            stopped.set()

    async with AsyncClient(service.url) as client, working(service.url, handler, queues=[own]):
        job = await client.submit(own, "suite", queue=own)
        await begun.wait()
        assert (await client.cancel_job(job.id)).state is State.CANCELLED
        await stopped.wait()
        [attempt] = await client.list_attempts(job.id)
    assert reasons == ["the lease is lost: the job is cancelled"]
    assert attempt.outcome is Outcome.CANCELLED


async def test_a_service_that_is_killed_loses_no_job_and_makes_none_twice(database: Database) -> None:
    """Clients submit and a worker works while it happens; neither is told."""
    is_enough = threading.Event()
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def submit_on(client: Either, own: str) -> int:
        number = 0
        while not is_enough.is_set():
            await client.submit("acme", f"{own} {number}")
            number += 1
        return number

    async def handler(context: Context) -> Any:
        suite = context.job.test_suite
        at_once[suite] += 1
        most[suite] = max(most[suite], at_once[suite])
        try:
            await asyncio.sleep(0.02)
        finally:
            at_once[suite] -= 1
        return suite

    kind: Kind = "blocking" if database.kind == "sqlite" else "async"
    async with (
        restartable(database.url) as service,
        connected(kind, service.url, deadline_sec=None) as client,
        working(service.url, handler, concurrency=8, lease_sec=6),
    ):
        submitting = [asyncio.create_task(submit_on(client, f"client {n}")) for n in range(2)]
        await service.served.logged("request_served", lambda event: event["path"] == "/jobs/finish")
        await service.served.kill()
        await do_not_wait_for(database)
        await service.start()
        await service.served.logged("request_served", lambda event: event["path"] == "/jobs")
        is_enough.set()
        acknowledged = await asyncio.gather(*submitting)
        jobs = await client.walked(tenant="acme", limit=1000)
        ended = [await client.wait_for(job.id) for job in jobs]
    submitted = Counter(f"client {n} {number}" for n, many in enumerate(acknowledged) for number in range(many))
    assert Counter(job.test_suite for job in ended) == submitted
    assert {job.state for job in ended} == {State.COMPLETED}
    assert all(job.result == job.test_suite for job in ended)
    assert set(most.values()) == {1}


async def test_a_frozen_service_loses_its_jobs_by_the_workers_own_clock(sqlite_databases: Databases) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()
    reasons: list[str | None] = []

    async def handler(context: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(context.stop_reason)
            stopped.set()

    async with (
        serving(sqlite_databases.create().url) as served,
        AsyncClient(served.url) as client,
        working(served.url, handler, lease_sec=3, grace_sec=0) as worker,
    ):
        await client.submit("acme", "suite")
        await begun.wait()
        served.signal(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        frozen_at = loop.time()
        await stopped.wait()
        assert loop.time() - frozen_at > 1.0
        served.signal(signal.SIGCONT)
        worker.stop()
        worker.stop()
    assert reasons == ["no heartbeat was answered for the lease's 3 s"]


async def test_a_service_that_drains_takes_results_and_lets_waiting_claims_go(sqlite_databases: Databases) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(_: Context) -> str:
        begun.set()
        await may_end.wait()
        return "done"

    database = sqlite_databases.create()
    async with (
        serving(database.url) as served,
        AsyncClient(served.url) as client,
        working(served.url, handler, lease_sec=90) as worker,
    ):
        job = await client.submit("acme", "suite")
        await begun.wait()
        began = asyncio.get_running_loop().time()
        assert await served.stop() == 0  # neither the lease nor the waiting claim holds it
        assert asyncio.get_running_loop().time() - began < 20
        may_end.set()
        async with serving(database.url, port=urlsplit(served.url).port):
            assert (await client.wait_for(job.id, PATIENCE_SEC)).result == "done"
            worker.stop()


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_process_finishes_what_it_can_and_releases_the_rest(
    service: Served, own: str, number: signal.Signals
) -> None:
    script = f"""
import logging, sys, time
import app.client.worker
from app.client import AsyncClient, Worker

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
app.client.worker._UNWIND_SEC = 0.2

def handle(context):
    sys.stdout.write(f"begun {{context.job.payload}}\\n")  # at once: another thread logs to it
    sys.stdout.flush()
    if context.job.payload == "quick":
        return sys.stdin.readline().strip()
    time.sleep(3600)

client = AsyncClient({service.url!r})
Worker(client, handle, queues=[{own!r}], concurrency=2, grace_sec=3600, lease_sec=3600).run_forever()
"""
    async with AsyncClient(service.url) as client:
        quick = await client.submit(own, "suite", queue=own, payload="quick")
        slow = await client.submit(own, "suite", queue=own, payload="slow")
        never = await client.submit(own, "suite", queue=own, payload="never")
        async with _started(script) as process, asyncio.timeout(PATIENCE_SEC * 2):
            assert process.stdin is not None
            await _printed(process, b"begun quick", b"begun slow")
            process.send_signal(number)
            await _printed(process, b"is told to end, with 2 jobs in hand")
            process.stdin.write(b"done\n")
            await client.wait_for(quick.id)
            process.send_signal(number)  # ends the grace
            assert await process.wait() == 0
        assert (await client.get_job(quick.id)).result == "done"
        states = [(await client.get_job(job.id)).state for job in (quick, slow, never)]
        assert states == [State.COMPLETED, State.QUEUED, State.QUEUED]
        assert (await client.get_job(slow.id)).attempt == 0
        [attempt] = await client.list_attempts(slow.id)
        assert attempt.outcome is Outcome.RELEASED


@asynccontextmanager
async def _started(script: str) -> AsyncIterator[Process]:
    """A program that is gone in the end, whatever has become of it."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _printed(process: Process, *words: bytes) -> None:
    """Wait until each of these has been printed."""
    assert process.stdout is not None
    awaited = set(words)
    while awaited:
        line = await process.stdout.readline()
        assert line, f"the worker ended before {awaited}"
        sys.stdout.write(line.decode())  # pytest shows it if the test fails
        awaited = {each for each in awaited if each not in line}
