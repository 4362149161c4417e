"""A workload that real people submitted, through the real server: the first 1,000 jobs of the KTH SP2 log of the
Parallel Workloads Archive (Lars Malinowsky provided it, Dror Feitelson converted it)."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy
from app.store.engine import open_engines
from tests import twin
from tests.databases import Database
from tests.served import Served, serving

LOG = Path(__file__).parents[3] / "shared" / "data" / "kth-sp2-1996.swf.gz"
JOBS = 1000
KILL_AFTER = 400
CLIENTS = 3


class Logged(NamedTuple):
    """A line of the log: who submitted job `number`, and whether it failed."""

    number: str
    user: str
    failed: bool


def _read_log(n: int) -> list[Logged]:
    with gzip.open(LOG, "rt") as lines:
        rows = [line.split() for line in lines if not line.startswith(";")][:n]
    return [Logged(row[0], f"user-{row[11]}", row[10] != "1") for row in rows]


class Restarting:
    """A service that is started again whenever it was killed, and requests that outlive that."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._up = asyncio.Event()
        self.served: Served

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """The service for the duration of the block."""
        turning = asyncio.create_task(self._turn())
        try:
            yield
        finally:
            turning.cancel()
            await asyncio.wait({turning})

    async def post(self, client: httpx.AsyncClient, path: str, body: Any, **headers: str) -> Any:
        """The answer of a 2xx, asked for until the service gives it."""
        while True:
            await self._up.wait()
            try:
                answer = await client.post(self.served.url + path, json=body, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.05)  # between the kill and the moment in which it is noticed
                continue
            assert answer.is_success, (path, answer.status_code, answer.text)
            return answer.json()

    async def _turn(self) -> None:
        while True:
            async with serving(self._database.url) as self.served:
                self._up.set()
                await self.served.exited()
                self._up.clear()


async def _work(service: Restarting, name: str, fails: set[str], ended: list[str]) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        while len(ended) < JOBS:
            wanted = {"worker": name, "start": True, "lease_sec": 3}
            for job in (await service.post(client, "/jobs/claim", wanted))["jobs"]:
                report: dict[str, Any] = {"token": job["lease"]["token"]}
                if job["test_suite"] in fails:
                    await service.post(client, f"/jobs/{job['id']}/fail", {**report, "error": "exit 1", "retry": False})
                else:
                    await service.post(client, f"/jobs/{job['id']}/complete", report)
                ended.append(job["id"])
                if len(ended) == KILL_AFTER:
                    service.served.process.kill()


async def _submit(service: Restarting, log: list[Logged]) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        for job in log:
            body = {"tenant": job.user, "test_suite": job.number}
            await service.post(client, "/jobs", body, **{"Idempotency-Key": job.number})


@pytest.mark.skipif(not LOG.exists(), reason=f"the log {LOG.name} is not here")
async def test_every_job_of_a_real_log_ends_as_it_did_and_in_the_order_of_the_rules(database: Database) -> None:
    log = _read_log(JOBS)
    fails = {job.number for job in log if job.failed}
    service, ended = Restarting(database), list[str]()
    async with service.run(), asyncio.TaskGroup() as clients:
        clients.create_task(_submit(service, log))
        for number in range(CLIENTS):
            clients.create_task(_work(service, f"client-{number}", fails, ended))
    async with open_engines(database.url) as engines:
        history = await twin.read_history(engines)
    assert [(job.test_suite, job.tenant) for job in history.jobs] == [(job.number, job.user) for job in log]
    expected = {job.number: "failed" if job.failed else "completed" for job in log}
    assert {job.test_suite: job.state for job in history.jobs} == expected
    assert Counter(expected.values())["failed"] > 100
    relived = twin.relive(history, Policy.VIRTUAL_TIME, SHARE)
    assert relived.wrong == []
    assert len(relived.picked) >= JOBS
