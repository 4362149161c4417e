"""This version on the schema of the next one, as in the middle of an upgrade and after one that is taken back: where
the schema says that it may, jobs live their whole lives there; where not, it does not start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.client import AsyncClient
from app.errors import SchemaOutdated
from app.store import migrate
from tests.ahead import HEAD, Ahead
from tests.databases import Database, Databases
from tests.history.attacked import do_not_wait_for
from tests.served import PATIENCE_SEC, serving, start


@pytest.fixture
def ahead(tmp_path: Path) -> Ahead:
    """A version to come."""
    return Ahead.within(tmp_path)


@pytest.fixture
def postgres(postgres_databases: Databases) -> Iterator[Database]:
    """A Postgres, which is migrated under those who use it."""
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)


async def post(client: httpx.AsyncClient, path: str, code: int = 200, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == code, (path, answer.text)
    return answer.json()


async def submit(client: httpx.AsyncClient, suite: str, **more: Any) -> str:
    return str((await post(client, "/jobs", 201, tenant="acme", test_suite=suite, queue="lives", **more))["id"])


async def claim(client: httpx.AsyncClient, limit: int = 1) -> list[dict[str, Any]]:
    answer = await post(client, "/jobs/claim", worker="w", queues=["lives"], limit=limit, start=True, wait_sec=10)
    jobs: list[dict[str, Any]] = answer["jobs"]
    return jobs


async def state_of(client: httpx.AsyncClient, job: str) -> str:
    return str((await client.get(f"/jobs/{job}")).json()["state"])


async def live(client: httpx.AsyncClient) -> str:
    """One job each way, and one that is left queued."""
    assert (await client.put("/tenants/acme", json={"weight": 3, "max_running": 50})).status_code == 200
    done = await submit(client, "done", payload={"a": [1]})
    [job] = await claim(client)
    report = {"token": job["lease"]["token"]}
    assert job["id"] == done
    await post(client, f"/jobs/{done}/heartbeat", progress=0.5, **report)
    await post(client, f"/jobs/{done}/complete", result={"passed": 1}, **report)

    ways = [await submit(client, suite) for suite in ("failed", "released", "reported")]
    for job in await claim(client, 3):
        report = {"token": job["lease"]["token"]}
        match job["test_suite"]:
            case "failed":
                await post(client, f"/jobs/{job['id']}/fail", error="it broke", retry=False, **report)
            case "released":
                await post(client, f"/jobs/{job['id']}/release", **report)
            case _:
                results = [{"id": job["id"], "outcome": "completed", **report}]
                assert (await post(client, "/jobs/finish", results=results))["results"][0]["ok"]
    assert [await state_of(client, job) for job in ways] == ["failed", "queued", "completed"]
    again = (await post(client, f"/jobs/{ways[0]}/retry", 201))["id"]
    await post(client, f"/jobs/{again}/cancel")
    later = await submit(client, "later", delay_sec=1)
    assert (await client.patch(f"/jobs/{later}", json={"priority": 9})).status_code == 200
    assert (await claim(client))[0]["id"] == ways[1]
    assert (await claim(client))[0]["id"] == later
    [attempt] = (await client.get(f"/jobs/{done}/attempts")).json()
    assert attempt["outcome"] == "completed"
    return await submit(client, "left")


async def test_jobs_live_on_a_schema_that_has_expanded(database: Database, ahead: Ahead) -> None:
    ahead.add()
    await ahead.upgrade(database.url)
    async with serving(database.url) as served, served.client() as client:
        told = await served.logged("schema_ahead")
        assert (told["current"], told["own"]) == ("next", HEAD)
        left = await live(client)
        await served.kill()
    await do_not_wait_for(database)
    async with serving(database.url) as served, served.client() as client:
        assert [job["id"] for job in await claim(client)] == [left]
        await post(client, "/jobs/cancel", tenant="acme")
        await post(client, "/tenants/acme/erase")
        assert (await client.get("/stats")).json()["total_jobs"] == 0
        assert await served.stop() == 0


async def test_a_schema_expands_under_a_server_at_work(postgres: Database, ahead: Ahead) -> None:
    ahead.add()
    async with serving(postgres.url) as served, served.client() as client:
        left = await live(client)
        is_expanded, answers = asyncio.Event(), []

        async def go_on() -> None:
            left = 10
            async with AsyncClient(served.url) as clients:
                while left:
                    answers.append(await clients.submit("acme", "meanwhile"))
                    left -= is_expanded.is_set()

        async with asyncio.timeout(PATIENCE_SEC):
            going_on = asyncio.create_task(go_on())
            await ahead.upgrade(postgres.url)
            is_expanded.set()
            await going_on
        assert {(await client.get(f"/jobs/{job.id}")).status_code for job in answers} == {200}
        assert [job["id"] for job in await claim(client)] == [left]
        await live(client)
        assert [event for event in served.events if event.get("level") == "error"] == []


MIGRATION_WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'fairlane migrate' AND wait_event_type = 'Lock'"
)


async def test_a_migration_that_is_held_up_holds_up_no_server(postgres: Database, ahead: Ahead) -> None:
    ahead.add()
    reader = await asyncpg.connect(postgres.url)
    async with serving(postgres.url) as served, served.client() as client, asyncio.timeout(2 * PATIENCE_SEC):
        async with reader.transaction():
            await reader.fetch("SELECT seq FROM jobs")
            migrating = asyncio.create_task(ahead.upgrade(postgres.url))
            while not await postgres.value(MIGRATION_WAITS):  # each look is a connection
                assert not migrating.done()
            await submit(client, "meanwhile")
            assert not migrating.done()
        await migrating
        assert await postgres.value("SELECT version_num FROM alembic_version") == "next"
        await submit(client, "afterwards")
    await reader.close()


async def test_nothing_is_taken_away_from_a_server_at_work(postgres: Database, ahead: Ahead, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for_us, not_for_us = ahead, Ahead.within(tmp_path / "other")
    for version in (for_us, not_for_us):
        version.add("pass", kind="contracting")
    not_for_us.add("pass", revision="x", down="next", kind="contracting", oldest="x")
    async with serving(postgres.url) as first, serving(postgres.url) as second:
        await second.logged("standing_by")
        await _until_registered(postgres, 2)
        processes = ".* process ".join(str(served.process.pid) for served in (first, second))
        with pytest.raises(
            SchemaOutdated, match=f" process {processes} .* works on .*, and x takes away what it needs"
        ):
            await not_for_us.upgrade(postgres.url)
        assert (await migrate.status(postgres.url)).current == HEAD
        await for_us.upgrade(postgres.url)
        assert await first.stop() == 0
        await second.logged("dispatch_begun")
        assert await second.stop() == 0
    await not_for_us.upgrade(postgres.url)


async def _until_registered(postgres: Database, count: int) -> None:
    async with asyncio.timeout(PATIENCE_SEC):
        while await postgres.value("SELECT count(*) FROM replicas") != count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("release", "is_refused"), [("0.9.12", True), ("0.10.0.dev1", False), ("0.10.1", False)])
async def test_nothing_is_taken_away_from_a_server_that_lags_behind_the_schema(
    postgres: Database, ahead: Ahead, tmp_path: Path, release: str, *, is_refused: bool
) -> None:
    (tmp_path / "other").mkdir()
    before, after = ahead, Ahead.within(tmp_path / "other")
    for version in (before, after):
        version.add("pass", release="0.10.0")
    after.add("pass", revision="x", down="next", kind="contracting", oldest="next")
    await before.upgrade(postgres.url)
    await postgres.execute(
        "INSERT INTO replicas (name, address, version, started_at, last_seen_at)"
        f" VALUES ('a process', 'there:8080', '{release}', now(), now())"
    )
    if is_refused:
        named = re.escape(f"a process (version {release}, listening on there:8080) works on this database")
        with pytest.raises(SchemaOutdated, match=named):
            await after.upgrade(postgres.url)
        await postgres.execute("UPDATE replicas SET last_seen_at = now() - interval '2 minutes'")
    await after.upgrade(postgres.url)
    assert await postgres.value("SELECT version_num FROM alembic_version") == "x"


async def test_a_schema_that_has_contracted_is_not_served(database: Database, ahead: Ahead) -> None:
    ahead.add('run("ALTER TABLE copies DROP COLUMN position")', kind="contracting", oldest="next")
    await ahead.upgrade(database.url)
    served = await start(database.url)
    assert await served.exited() == 1
    assert (
        f"the database's schema (next) is newer than this version's ({HEAD}) and takes a version of next" in served.text
    )
    assert "Traceback" not in served.text
