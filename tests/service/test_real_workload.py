"""The first 1,000 jobs that real people submitted, through the real server, one request at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx

from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy
from app.store.engine import open_engines
from tests import twin
from tests.databases import Database
from tests.served import Restarting
from tests.service.swf import Logged, needs_log, read_log

JOBS = 1000
KILL_AFTER = 400
CLIENTS = 3


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
                    await service.kill()


async def _submit(service: Restarting, log: list[Logged]) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        for job in log:
            body = {"tenant": job.user, "test_suite": job.number}
            await service.post(client, "/jobs", body, **{"Idempotency-Key": job.number})


@needs_log
async def test_every_job_of_a_real_log_ends_as_it_did_and_in_the_order_of_the_rules(database: Database) -> None:
    log = read_log(JOBS)
    fails = {job.number for job in log if job.failed}
    service, ended = Restarting(database.url), list[str]()
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
