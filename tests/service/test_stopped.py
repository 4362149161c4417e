"""SIGSTOP: a worker that stands still for two lease times and then goes on as if nothing had been, and a service that
stands still for longer than leases are."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from app.scheduling.job import Outcome, State
from tests.cli.running import Fairlane
from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.history.attacked import Attacked, attacked
from tests.history.record import Voice
from tests.history.table import Tell
from tests.history.terms import Terms
from tests.served import PATIENCE_SEC

_LEASE_SEC: Final = 3
_QUEUES: Final = ("trusting", "prudent")
_TRUSTING: Final = """
import sys, httpx
url, lease_sec = sys.argv[1:]
def post(path, **body):
    return httpx.post(url + path, json=body)
[job] = post("/jobs/claim", worker="trusting", queues=["trusting"], start=True, lease_sec=int(lease_sec)).json()["jobs"]
print("holds it", flush=True)
sys.stdin.readline()  # the work; it is stopped in the middle of it
print(post(f"/jobs/{job['id']}/complete", token=job["lease"]["token"], result="late").status_code, flush=True)
"""
"""A worker that knows nothing of time and reports whatever comes."""


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[Process]:
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", *command, stdin=PIPE, stdout=PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SEC):
        return (await process.stdout.readline()).decode().strip()


async def _in_state(voice: Voice, job_id: str, state: State) -> dict[str, Any]:
    """The job, once it is in that state."""
    async with asyncio.timeout(PATIENCE_SEC):
        while (job := (await voice.look_at(job_id)).answer)["state"] != state:  # noqa: ASYNC110 - it is told over HTTP
            await asyncio.sleep(0.05)
    return dict(job)


async def _done_by(voice: Voice, queue: str) -> None:
    """Another worker takes what comes into the queue, and does it."""
    [job] = (await voice.claim(queues=[queue], start=True, wait_sec=20)).answer["jobs"]
    assert (await voice.report("complete", job["id"], job["lease"]["token"], result="in time")).is_ok


async def _outcomes(service: Attacked, job_id: str) -> list[str]:
    rows = await service.database.fetch(f"SELECT outcome FROM job_attempts WHERE job_id = '{job_id}' ORDER BY number")
    return [str(outcome) for (outcome,) in rows]


@pytest.mark.torture
async def test_the_late_result_of_a_stopped_worker_is_refused_and_another_has_done_the_job_once(
    database: Database, tell: Tell
) -> None:
    async with (
        attacked(database, chance_of(f"a stopped worker, {database.kind}")) as service,
        service.site.voice("another") as voice,
    ):
        jobs = [(await voice.submit({"tenant": "patient", "test_suite": q, "queue": q})).answer["id"] for q in _QUEUES]
        fairlane = Fairlane(service.site.url)
        worker = ("worker", "-q", "prudent", "-c", "1", "--lease", str(_LEASE_SEC), "--", "sleep", "600")
        async with (
            _process(_TRUSTING, service.site.url, str(_LEASE_SEC)) as trusting,
            fairlane.process(*worker) as prudent,
        ):
            assert await _line(trusting) == "holds it"
            for job_id in jobs:
                await _in_state(voice, job_id, State.RUNNING)
            with service.history.fault("SIGSTOP of two workers"):
                for process in (trusting, prudent):
                    process.send_signal(signal.SIGSTOP)
                await asyncio.gather(asyncio.sleep(2 * _LEASE_SEC), *(_done_by(voice, queue) for queue in _QUEUES))
                for process in (trusting, prudent):
                    process.send_signal(signal.SIGCONT)
            assert trusting.stdin is not None
            trusting.stdin.write(b"done\n")
            assert await _line(trusting) == "409"
            again = (await voice.submit({"tenant": "patient", "test_suite": "again", "queue": "prudent"})).answer["id"]
            await _in_state(voice, again, State.RUNNING)  # so it has given up the one before, its only place
            await voice.cancel(again)
        for job_id in jobs:
            assert (await voice.look_at(job_id)).answer["result"] == "in time"
            assert await _outcomes(service, job_id) == [Outcome.LAPSED, Outcome.COMPLETED]
        await service.verdict(Terms(), tell, "SIGSTOP of workers")


@pytest.mark.torture
async def test_a_service_that_stood_still_goes_on_and_gives_no_job_to_two(database: Database, tell: Tell) -> None:
    """What lapsed meanwhile lapses once it goes on; who beats in time then has lost nothing that was not lapsed. On
    Postgres the claim to dispatch is as old as the stop, and nobody has taken it."""
    chance = chance_of(f"a service that stood still, {database.kind}")
    async with attacked(database, chance) as service:
        async with service.site.at_work():
            for _ in range(EFFORT):
                await asyncio.sleep(chance.uniform(0.3, 0.8))
                with service.history.fault("SIGSTOP of the service"):
                    service.served.signal(signal.SIGSTOP)
                    await asyncio.sleep(2.2)
                    service.served.signal(signal.SIGCONT)
            await asyncio.sleep(1)
        await service.verdict(Terms(), tell, "SIGSTOP of the service")
