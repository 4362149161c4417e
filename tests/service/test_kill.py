"""`kill -9` under load: nothing acknowledged is lost, nothing is there twice, and what comes out afterwards is
what a service that never died would have given."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import pytest

from app.clock import parse_rfc3339
from app.scheduling.job import State
from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy
from app.store.engine import open_engines
from tests import twin
from tests.databases import Database
from tests.served import Served, serving

TENANTS = {"red": {"weight": 3}, "green": {"weight": 1, "max_running": 2}, "blue": {"weight": 2}, "grey": {}}
QUEUES = ("default", "gpu")
KILLS = 3


@dataclass
class Acknowledged:
    """What clients were told with a 2xx."""

    submitted: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    tokens: Counter[str] = field(default_factory=Counter)


async def _post(client: httpx.AsyncClient, path: str, body: dict[str, Any] | None, **headers: str) -> Any | None:
    """The answer's body, or None if the service died meanwhile or said that it cannot now."""
    try:
        answer = await client.post(path, json=body, headers=headers)
    except httpx.TransportError:
        return None
    assert answer.status_code in (200, 201, 409, 503), (path, answer.status_code, answer.text)
    return answer.json() if answer.is_success else None


async def _submit(client: httpx.AsyncClient, chance: random.Random, told: Acknowledged) -> None:
    while True:
        body: dict[str, Any] = {
            "tenant": chance.choice(list(TENANTS)),
            "test_suite": "suite",
            "queue": chance.choice(QUEUES),
            "priority": chance.randint(0, 10),
            "cost": chance.choice([1, 1, 1, 7]),
            "delay_sec": chance.choice([0, 0, 0, 1]),
        }
        job = await _post(client, "/jobs", body, **{"Idempotency-Key": uuid.UUID(int=chance.getrandbits(128)).hex})
        if job is None:
            return
        told.submitted.add(job["id"])
        if chance.random() < 0.05 and (cancelled := await _post(client, f"/jobs/{job['id']}/cancel", None)):
            told.cancelled.add(cancelled["id"])


async def _work(client: httpx.AsyncClient, chance: random.Random, told: Acknowledged, name: str) -> None:
    while True:
        wanted = {
            "worker": name,
            "queues": chance.sample(QUEUES, 2),
            "limit": chance.randint(1, 3),
            "start": chance.random() < 0.7,
            "lease_sec": chance.choice([2, 3600]),
        }
        answer = await _post(client, "/jobs/claim", wanted)
        if answer is None:
            return
        for job in answer["jobs"]:
            told.tokens[job["lease"]["token"]] += 1
            await _finish(client, chance, told, job)
        await asyncio.sleep(0)


async def _finish(client: httpx.AsyncClient, chance: random.Random, told: Acknowledged, job: dict[str, Any]) -> None:
    path, token = f"/jobs/{job['id']}", {"token": job["lease"]["token"]}
    way = chance.choice(["complete"] * 6 + ["fail", "fail for good", "release", "nothing"])
    if way == "complete":
        if job["state"] == "scheduled":
            await _post(client, path + "/start", token)
        if await _post(client, path + "/complete", token):
            told.completed.add(job["id"])
    elif way == "release":
        await _post(client, path + "/release", token)
    elif way != "nothing":
        failed = await _post(client, path + "/fail", {**token, "error": "no", "retry": way == "fail"})
        if failed and failed["state"] == "failed":
            told.failed.add(job["id"])


async def _load(served: Served, chance: random.Random, told: Acknowledged) -> None:
    """Clients at work until the service is gone."""
    async with served.client() as client, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(_submit(client, chance, told))
        for number in range(4):
            group.create_task(_work(client, chance, told, f"worker-{number}"))


async def _set_up(served: Served) -> list[tuple[datetime, twin.Step]]:
    """The tenants, and when each setting came into force."""
    steps: list[tuple[datetime, twin.Step]] = []
    async with served.client() as client:
        for name, settings in TENANTS.items():
            answer = await client.put(f"/tenants/{name}", json=settings)
            steps.append(_step(answer.json()))
    return steps


def _step(tenant: dict[str, Any]) -> tuple[datetime, twin.Step]:
    def put_in_force(alive: twin.Twin) -> None:
        alive.order.set_tenant(
            tenant["name"],
            weight=tenant["weight"],
            max_running=tenant["max_running"],
            paused=tenant["paused"],
        )

    return parse_rfc3339(tenant["updated_at"]), put_in_force


@asynccontextmanager
async def _killed_after(database: Database, sec: float, **settings: object) -> AsyncIterator[Served]:
    async with serving(database.url, **settings) as served:
        asyncio.get_running_loop().call_later(sec, served.process.kill)
        yield served


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_kill_under_load_loses_nothing_and_leaves_no_trace_in_the_order(
    database: Database, policy: Policy
) -> None:
    chance, told = random.Random(f"{policy} {database.kind}"), Acknowledged()
    steps: list[tuple[datetime, twin.Step]] = []
    for kill in range(KILLS):
        async with _killed_after(database, 2.0 + chance.random(), policy=policy) as served:
            if kill == 0:
                steps += await _set_up(served)
            if kill == 1:
                async with served.client() as client:
                    paused = await client.patch("/tenants/blue", json={"paused": True})
                steps.append(_step(paused.json()))
            await _load(served, chance, told)
            await served.exited()
    async with open_engines(database.url) as engines:
        history = await twin.read_history(engines)
    states = {job.id: job.state for job in history.jobs}
    assert len(states) > 100
    assert told.submitted <= states.keys()
    assert {states[job_id] for job_id in told.completed} <= {State.COMPLETED}
    assert {states[job_id] for job_id in told.failed} <= {State.FAILED}
    assert {states[job_id] for job_id in told.cancelled} <= {State.CANCELLED}
    assert set(told.tokens.values()) <= {1}
    relived = twin.relive(history, policy, SHARE, steps)
    assert relived.wrong == []
    assert len(relived.picked) > 100
    counted = Counter(states.values())
    async with serving(database.url, policy=policy) as served:
        recovered = await served.logged("recovered")
    assert recovered["queued"] == counted[State.QUEUED]
    assert recovered["pending"] == counted[State.PENDING]
    assert recovered["leased"] == counted[State.SCHEDULED] + counted[State.RUNNING]
