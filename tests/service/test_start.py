"""The start of the service: what it does by itself, what it refuses, and in which words."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from app.store import migrate
from tests.databases import Database, Databases, Sqlite
from tests.history.attacked import do_not_wait_for
from tests.served import PATIENCE_SEC, PROGRAM, serving, start


async def _refusal(url: str, **settings: Any) -> str:
    """What a service that does not start prints, from the first line of its program on."""
    served = await start(url, program=PROGRAM, **settings)
    assert await served.exited() == 1
    return served.text


async def test_a_second_server_on_a_file_refuses_and_names_the_first(sqlite_databases: Databases) -> None:
    url = sqlite_databases.create().url
    async with serving(url) as first:
        process = f"process {first.process.pid}"
        address = first.url.removeprefix("http://")
        refusal = await _refusal(url)
        assert process in refusal
        assert address in refusal
        assert "Traceback" not in refusal
        async with first.client() as client:
            assert (await client.get("/health/ready")).status_code == 200


async def test_a_killed_server_leaves_its_database_to_the_next(database: Database) -> None:
    async with serving(database.url, leader_ttl_sec=PATIENCE_SEC) as first:
        await first.kill()
        async with serving(database.url) as second:
            waited = "standing_by" in [event["event"] for event in second.events]
            assert waited == (database.kind == "postgres")
            await do_not_wait_for(database)
            await second.logged("dispatch_begun")


async def test_the_start_says_what_it_recovered(database: Database) -> None:
    async with serving(database.url) as served, served.client() as client:
        for delay in (0, 0, 0, 3600):
            body = {"tenant": "acme", "test_suite": "suite", "delay_sec": delay}
            assert (await client.post("/jobs", json=body)).status_code == 201
        assert len((await client.post("/jobs/claim", json={"worker": "w"})).json()["jobs"]) == 1
        await served.kill()
    await do_not_wait_for(database)
    async with serving(database.url, program=PROGRAM, policy="penalty", log_format="console") as served:
        pass
    assert "[SCHEDULER] recovered queued=2 pending=1 leased=1 policy=penalty in " in served.text


async def test_an_empty_sqlite_file_is_migrated_and_an_empty_postgres_refused_unless_told(
    empty_database: Database,
) -> None:
    if empty_database.kind == "postgres":
        refusal = await _refusal(empty_database.url)
        assert "fairlane migrate up" in refusal
        assert "Traceback" not in refusal
        assert (await migrate.status(empty_database.url)).current is None
    async with serving(empty_database.url, migrate="true") as served, served.client() as client:
        assert (await client.get("/stats")).json()["total_jobs"] == 0
        assert (await served.logged("schema_migrated"))["old"] is None


async def test_a_database_that_is_not_there_is_said_in_a_sentence(unused_port: int) -> None:
    refusal = await _refusal(f"postgresql://user:secret@127.0.0.1:{unused_port}/fairlane")
    assert "the database cannot be reached" in refusal
    assert "secret" not in refusal
    assert "Traceback" not in refusal


async def test_a_file_that_is_no_database_is_said_in_a_sentence_and_left_as_it_is(tmp_path: Path) -> None:
    file, contents = tmp_path / "fairlane.db", b"no database " * 1000
    await asyncio.to_thread(file.write_bytes, contents)
    refusal = await _refusal(f"sqlite:///{file}")
    assert f"names the file {file}, which is no SQLite database" in refusal
    assert "Traceback" not in refusal
    assert await asyncio.to_thread(file.read_bytes) == contents


@pytest.fixture
def postgres(postgres_databases: Databases) -> Iterator[Database]:
    """A database for what only Postgres can do."""
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)


async def test_a_role_without_rights_is_said_in_a_sentence(postgres: Database) -> None:
    role = f"nobody_{uuid4().hex}"
    await postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    parts = urlsplit(postgres.url)
    url = urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"))
    refusal = await _refusal(url)
    await postgres.execute(f"DROP ROLE {role}")
    assert "the database cannot be used: permission denied" in refusal
    assert "Traceback" not in refusal


@pytest.fixture
def unwritable() -> Iterator[Callable[[Path], None]]:
    """Makes a folder one that nobody can write to, not even root, whom no permission stops."""
    bound: list[Path] = []

    def bind(folder: Path) -> None:
        for options in ("bind", "remount,bind,ro"):
            run = ["mount", "-o", options, str(folder), str(folder)]
            mounted = subprocess.run(run, check=False, capture_output=True, text=True)
            if mounted.returncode != 0:
                pytest.skip(f"only root can make a folder that root cannot write to: {mounted.stderr.strip()}")
            bound[:] = [folder]

    yield bind
    for folder in bound:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("is_there", [False, True], ids=["a file to be made", "a file that is there"])
async def test_a_folder_that_cannot_be_written_to_is_said_in_a_sentence(
    sqlite_databases: Databases, unwritable: Callable[[Path], None], *, is_there: bool
) -> None:
    database = sqlite_databases.create(migrated=is_there)
    assert isinstance(database, Sqlite)
    unwritable(database.path.parent)
    refusal = await _refusal(database.url)
    assert "the database cannot be reached" in refusal
    assert "Read-only file system" in refusal
    assert "Traceback" not in refusal


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"port": "eighty"}, "FAIRLANE_PORT must be a whole number from 0 to 65535, not 'eighty'"),
        ({"policy": "fifo"}, "FAIRLANE_POLICY must be virtual-time or penalty, not 'fifo'"),
        ({"tick_ms": "0"}, "FAIRLANE_TICK_MS must be a whole number from 1 to 60000"),
        ({"priority_step": "NaN"}, "FAIRLANE_PRIORITY_STEP must be a number from 0"),
        ({"default_burst": "5"}, "needs FAIRLANE_DEFAULT_RATE_PER_SEC"),
        ({"proirity_step": "1"}, "FAIRLANE_PROIRITY_STEP is not a setting"),
        ({"database_url": "mysql://x"}, "must begin with sqlite:/// or postgresql://"),
        ({"database_url": "sqlite:///:memory:"}, "must name a plain file"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_refused_in_words(settings: dict[str, str], words: str) -> None:
    refusal = await _refusal(**{"url": "sqlite:///never.db", **{_argument(k): v for k, v in settings.items()}})
    assert words in refusal
    assert "Traceback" not in refusal


def _argument(setting: str) -> str:
    return "url" if setting == "database_url" else setting


async def test_a_port_in_use_is_said_before_anything_is_touched(empty_database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusal = await _refusal(empty_database.url, port=taken.getsockname()[1], migrate="true")
    assert "choose another FAIRLANE_PORT" in refusal
    assert (await migrate.status(empty_database.url)).current is None


async def test_the_console_has_the_lines_that_operators_know(database: Database) -> None:
    async with serving(database.url, log_format="console", port=0) as served:
        pass
    assert "[SCHEDULER] started with interval=500ms" in served.text


async def test_no_payload_no_token_and_no_key_is_ever_logged(database: Database) -> None:
    async with serving(database.url, log_level="debug") as served, served.client() as client:
        body = {"tenant": "acme", "test_suite": "suite", "payload": {"pass": "payload-secret"}}
        await client.post("/jobs", json=body, headers={"Idempotency-Key": "key-secret"})
        await client.post("/jobs", json=body | {"priority": 1}, headers={"Idempotency-Key": "key-secret"})
        [job] = (await client.post("/jobs/claim", json={"worker": "w", "start": True})).json()["jobs"]
        token = job["lease"]["token"]
        await client.post(f"/jobs/{job['id']}/complete", json={"token": "not" + token})
        await client.post(f"/jobs/{job['id']}/complete", json={"token": token, "result": "payload-secret"})
        await client.post(f"/jobs/{job['id']}/complete?token={token}", json={"token": token})
        assert await served.stop() == 0
    for secret in ("payload-secret", "key-secret", token):
        assert secret not in served.text


async def test_a_signal_during_the_start_ends_it(database: Database) -> None:
    async with serving(database.url, leader_ttl_sec=PATIENCE_SEC) as first:
        first.signal(signal.SIGSTOP)  # a holder that does not answer is waited out on Postgres
        second = await start(database.url)
        if database.kind == "postgres":
            await second.logged("standing_by")
            await second.logged("server_listening")
            second.signal(signal.SIGTERM)
        assert (await second.exited() == 0) == (database.kind == "postgres")
        first.signal(signal.SIGCONT)
        async with first.client() as client, asyncio.timeout(PATIENCE_SEC):
            # It may have stood still for so long that it says so until its next tick.
            while (await client.get("/health/ready")).status_code != 200:  # noqa: ASYNC110 - it is told over HTTP
                await asyncio.sleep(0.05)


async def test_an_address_that_others_reach_is_served_only_when_that_is_said(sqlite_databases: Databases) -> None:
    url = sqlite_databases.create().url
    for host in ("0.0.0.0", "::"):  # noqa: S104 - that it is refused is the point
        refusal = await _refusal(url, host=host)
        assert f"others can reach {host}" in refusal
        assert "FAIRLANE_KEYS=required" in refusal
        assert "Traceback" not in refusal
    async with serving(url, host="0.0.0.0", keys="off") as served, served.client() as client:  # noqa: S104
        assert (await client.get("/stats")).status_code == 200
    async with serving(url, host="0.0.0.0", keys="required") as served, served.client() as client:  # noqa: S104
        assert (await client.get("/stats")).status_code == 401
        assert (await client.get("/health/ready")).status_code == 200
        await served.logged("admin_key_missing")
