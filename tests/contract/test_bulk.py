"""`POST /jobs/finish` and `POST /jobs/heartbeat`: a thousand in one call, each judged as if it had come by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import httpx
import pytest

from app.api.application import create_app
from app.clock import rfc3339
from app.errors import Conflict, NotFound
from app.flow import finish, lease
from app.flow.look import get_job
from app.flow.submit import JobRequest
from app.scheduling.job import Job, State
from tests.api.asgi import client_of
from tests.contract.player import NEVER_GIVEN
from tests.databases import Database
from tests.flow.harness import Moment, Running, commits_of, failing, in_one_group, service, token_of
from tests.flow.views import assert_memory_equals_sql

MOST: Final = 1000
GROUP: Final = 256
"""So many writes share a transaction: what is beyond them is in another one, which may fail by itself."""

Item = dict[str, Any]
FAILS: Final[tuple[Moment, ...]] = ("begin", "statement", "commit", "after commit")


@asynccontextmanager
async def served(database: Database) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """A service, and a client of its HTTP side."""
    async with service(database) as running, client_of(create_app(running.core, running.heard)) as client:
        yield running, client


@dataclass
class Scene:
    """Jobs in every state, and what workers have to say of them, by the kind of answer that it deserves."""

    items: list[Item] = field(default_factory=list)
    held: list[Job] = field(default_factory=list)


async def set_up(running: Running, count: int) -> Scene:
    """The same, in the same order, on every service; only ids and tokens differ."""
    scene, core = Scene(), running.core
    for queue in ("running", "scheduled"):
        requests = [JobRequest(tenant="acme", test_suite=f"{queue} {n}", queue=queue) for n in range(count // 2)]
        await running.submit_all(requests)
        scene.held += await running.claim(count // 2, queue, start=queue == "running")
    for job in scene.held[3::10]:
        await running.release(job)
    await in_one_group(core, *(running.cancel(job) for job in scene.held[4::10]))
    return scene


def reports_on(scene: Scene) -> list[Item]:
    """Reports of every kind: good ones, repeated ones, one after another, lost ones, unknown ones."""
    held = scene.held
    reports: list[Item] = []
    for n, job in enumerate(held):
        item = {"id": job.id, "token": token_of(job)}
        done = {"outcome": "completed", "result": {"n": n}}
        kinds: tuple[Item, ...] = (
            {**item, **done},
            {**item, "outcome": "failed", "error": f"error {n}"},
            {**item, "outcome": "failed", "error": f"error {n}", "retry": False},
            {**item, **done},  # released before
            {**item, **done},  # cancelled before
            {**item, **done, "token": NEVER_GIVEN},
            {**item, **done, "token": token_of(held[n - 1])},
            {**item, **done, "id": f"{n:032x}"},
            {**item, **done},
            {**item, "outcome": "failed", "error": ""},
        )
        reports.append(kinds[n % 10])
        if n % 10 == 8:  # said once more, and then otherwise
            reports += [{**item, **done}, {**item, "outcome": "failed", "error": "no, it failed"}]
    return reports


async def judged_alone(running: Running, item: Item) -> Item:
    """What the same report is answered that comes by itself."""
    call = _complete if item["outcome"] == "completed" else _fail
    return await _judged(item["id"], call(running, item))


async def _complete(running: Running, item: Item) -> Job:
    return await finish.complete(running.core, item["id"], item["token"], item["result"])


async def _fail(running: Running, item: Item) -> Job:
    retry = item.get("retry", True)
    return await finish.fail(running.core, item["id"], item["token"], item["error"], retry=retry)


async def _judged(job_id: str, call: Awaitable[Job]) -> Item:
    try:
        return {"id": job_id, "ok": True, "state": (await call).state, "error": None}
    except Conflict as error:
        return {"id": job_id, "ok": False, "state": error.state, "error": str(error)}
    except NotFound as error:
        return {"id": job_id, "ok": False, "state": None, "error": str(error)}


async def test_a_thousand_reports_are_answered_in_order_as_if_each_had_come_alone(
    database: Database, sqlite: Database
) -> None:
    async with served(database) as (running, client), service(sqlite, sqlite_synchronous="normal") as twin:
        scene, twins = await set_up(running, 820), await set_up(twin, 820)
        reports, alone = reports_on(scene)[:MOST], reports_on(twins)[:MOST]
        with commits_of(running.core) as commits:
            answer = await client.post("/jobs/finish", json={"results": reports})
        assert answer.status_code == 200
        results = answer.json()["results"]
        assert [result["id"] for result in results] == [item["id"] for item in reports]
        assert len(commits) <= MOST // GROUP + 2
        expected = [await judged_alone(twin, item) for item in alone]
        names = {ours.id: theirs.id for ours, theirs in zip(scene.held, twins.held, strict=True)}
        assert [{**result, "id": names.get(result["id"], result["id"])} for result in results] == expected
        kinds = {(result["ok"], result["state"]) for result in results}
        assert kinds >= {(True, state) for state in ("completed", "pending", "queued", "failed")}
        assert kinds >= {(False, state) for state in (None, "scheduled", "running", "cancelled")}
        await assert_memory_equals_sql(running.core)
        # What is said again is answered again, as the jobs are now.
        again = (await client.post("/jobs/finish", json={"results": reports})).json()["results"]
        assert all(repeated["ok"] for repeated, result in zip(again, results, strict=True) if result["ok"])
        assert await database.value("SELECT max(number) FROM job_attempts") == 1


async def test_of_reports_on_one_job_the_first_counts(database: Database) -> None:
    async with served(database) as (running, client):
        await running.submit()
        held = await running.claim_one(start=True)
        item = {"id": held.id, "token": token_of(held)}
        body = {
            "results": [
                {**item, "token": "x", "outcome": "failed", "error": "not mine"},
                {**item, "outcome": "completed", "result": 1},
                {**item, "outcome": "completed", "result": 2},
                {**item, "outcome": "failed", "error": "broke", "retry": False},
            ]
        }
        for _ in range(2):
            results = (await client.post("/jobs/finish", json=body)).json()["results"]
            assert [result["ok"] for result in results] == [False, True, True, True]
            assert {result["state"] for result in results[1:]} == {"completed"}
        job = await get_job(running.core, held.id)
        assert (job.state, job.result, job.error) == (State.COMPLETED, 1, None)


async def test_a_thousand_beats_are_answered_in_order_and_each_judged(database: Database) -> None:
    async with served(database) as (running, client):
        scene = await set_up(running, 800)
        running.clock.advance(20)
        leases = [{"id": job.id, "token": token_of(job)} for job in scene.held]
        leases += [{**item, "token": NEVER_GIVEN} for item in leases[:60]]
        leases += [{**item, "id": f"{n:032x}"} for n, item in enumerate(leases[:60])]
        leases += leases[:80]  # some a second time
        assert len(leases) == MOST
        with commits_of(running.core) as commits:
            answer = await client.post("/jobs/heartbeat", json={"leases": leases, "lease_sec": 100})
        results = answer.json()["results"]
        assert [result["id"] for result in results] == [item["id"] for item in leases]
        assert len(commits) <= MOST // GROUP + 2
        held = {job.id for n, job in enumerate(scene.held) if n % 10 not in (3, 4)}
        for result, item in zip(results, leases, strict=True):
            is_good = item["id"] in held and item["token"] != NEVER_GIVEN
            assert result["ok"] == is_good
            assert (result["expires_at"] is not None, result["error"] is None) == (is_good, is_good)
        assert {result["error"] for result in results} >= {
            None,
            "job not found",
            "the lease is lost: the job is queued",
        }
        await running.tick(after=99)  # far beyond what the claims asked for
        written = await get_job(running.core, scene.held[0].id)
        assert written.state is State.RUNNING
        assert written.lease_expires_at is not None
        assert rfc3339(written.lease_expires_at) == results[-80]["expires_at"]  # the last beat counts
        running.clock.advance(2)
        while await running.tick() == 0:  # it ends them in bounded steps
            pass
        assert len(running.core.leases) == 0
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("call", ["finish", "heartbeat"])
async def test_one_malformed_item_and_no_item_is_judged(database: Database, call: str) -> None:
    async with served(database) as (running, client):
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(3))
        held = await running.claim(3, start=True)
        name, more = ("results", {"outcome": "completed"}) if call == "finish" else ("leases", {})
        good = [{"id": job.id, "token": token_of(job), **more} for job in held]
        before = [await get_job(running.core, job.id) for job in held]
        running.clock.advance(5)
        bad: list[tuple[Any, list[str]]] = [
            ({**good[1], "id": "x"}, ["id"]),
            ({**good[1], "id": good[1]["id"].upper() + "0"}, ["id"]),
            ({**good[1], "id": good[1]["id"] + "\n"}, ["id"]),
            ({**good[1], "id": None}, ["id"]),
            ({**good[1], "id": ["0" * 32]}, ["id"]),
            ({**good[1], "id": "\x00" * 32, "token": "\x00"}, ["token", "id"]),
            ({**good[1], "token": "", "colour": "red"}, ["token", "colour"]),
            ({"id": good[1]["id"], **more}, ["token"]),
            (None, []),
            ([], []),
        ]
        for item, fields in bad:
            answer = await client.post(f"/jobs/{call}", json={name: [good[0], item, good[2]]})
            assert answer.status_code == 400
            named = [detail["field"] for detail in answer.json()["details"]]
            assert sorted(named) == sorted([f"{name}[1].{f}" for f in fields] or [f"{name}[1]"]), item
            assert answer.json()["error"].startswith(f"{name}[1]"), item
        assert [await get_job(running.core, job.id) for job in held] == before


@pytest.mark.parametrize("moment", FAILS)
async def test_reports_that_could_not_be_written_are_503_and_may_all_be_sent_again(
    database: Database, moment: Moment
) -> None:
    """None of them was written, or all if only the end of their transaction was lost."""
    async with served(database) as (running, client):
        count = 300
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(count))
        held = await running.claim(count, start=True)
        reports = [
            {"id": job.id, "token": token_of(job)}
            | ({"outcome": "completed", "result": n} if n % 2 else {"outcome": "failed", "error": "x", "retry": False})
            for n, job in enumerate(held)
        ]
        # The failed and the completed have one each on SQLite.
        after_the_first = int(moment == "statement" and database.kind == "sqlite")
        with failing(running.core, moment, statement="UPDATE jobs", after=after_the_first):
            answer = await client.post("/jobs/finish", json={"results": reports})
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (503, True)
        assert answer.json()["details"] == []
        running.clock.advance(1)
        written = await database.value("SELECT count(*) FROM jobs WHERE completed_at IS NOT NULL")
        assert written == (count if moment == "after commit" else 0)
        answers = [(await client.post("/jobs/finish", json={"results": reports})).json() for _ in range(2)]
        assert answers[0] == answers[1]
        wanted = [(job.id, True, ("failed", "completed")[n % 2], None) for n, job in enumerate(held)]
        assert [tuple(result.values()) for result in answers[0]["results"]] == wanted
        assert await database.value("SELECT count(*) FROM job_attempts") == count
        await assert_memory_equals_sql(running.core)


@pytest.mark.parametrize("moment", FAILS)
async def test_beats_that_could_not_be_written_are_503_and_lose_no_lease(database: Database, moment: Moment) -> None:
    async with served(database) as (running, client):
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(20))
        held = await running.claim(20, start=True)
        body = {"leases": [{"id": job.id, "token": token_of(job)} for job in held]}
        running.clock.advance(29)
        with failing(running.core, moment, statement="UPDATE jobs"):
            assert (await client.post("/jobs/heartbeat", json=body)).status_code == 503
        results = (await client.post("/jobs/heartbeat", json=body)).json()["results"]
        assert all(result["ok"] for result in results)
        await running.tick(after=29)
        await running.tick()
        assert len(running.core.leases) == 20
        assert [job.state for job in [await running.complete(job) for job in held]] == [State.COMPLETED] * 20


async def test_an_item_that_the_database_refuses_is_not_judged_and_hurts_no_other(sqlite: Database) -> None:
    """A fault of ours is a 500, whatever it is about; what was written stays written."""
    async with service(sqlite) as running:
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(3))
        held = await running.claim(3, start=True)
        await sqlite.execute(
            f"CREATE TRIGGER broken BEFORE UPDATE OF state ON jobs WHEN NEW.id = '{held[1].id}'"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        async with client_of(create_app(running.core, running.heard)) as client:
            reports = [{"id": job.id, "token": token_of(job), "outcome": "completed"} for job in held]
            answer = await client.post("/jobs/finish", json={"results": reports})
        assert answer.status_code == 500
        assert [(await get_job(running.core, job.id)).state for job in held] == ["completed", "running", "completed"]
        await assert_memory_equals_sql(running.core)


async def test_a_beat_alone_and_one_among_many_promise_the_same(database: Database) -> None:
    async with served(database) as (running, client):
        await running.submit_all(JobRequest(tenant="acme", test_suite=f"job {n}") for n in range(2))
        alone, among = await running.claim(2, lease_sec=50)
        running.clock.advance(10)
        end = await lease.heartbeat(running.core, alone.id, token_of(alone))
        body = {"leases": [{"id": among.id, "token": token_of(among)}]}
        [result] = (await client.post("/jobs/heartbeat", json=body)).json()["results"]
        assert abs((end - datetime.fromisoformat(result["expires_at"])).total_seconds()) < 0.001
        assert rfc3339(end)[:19] == result["expires_at"][:19]
