"""A SQLite file in trouble under load: locked by another program, on a disk that is full or breaks. Who writes is told,
who reads is served, nothing acknowledged is lost, and once the trouble is over everything is as before."""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.databases import Sqlite, SqliteDatabases
from tests.disks import clear, fill, small_disk
from tests.effort import EFFORT
from tests.faults.clients import Clients, at_work

pytestmark = pytest.mark.torture

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def file(sqlite_databases: SqliteDatabases) -> Iterator[Sqlite]:
    made = sqlite_databases.create()
    yield made
    sqlite_databases.drop(made)


@asynccontextmanager
async def locked_by_another_program(file: Sqlite) -> AsyncIterator[None]:
    command = (sys.executable, "-c", _HOLD, str(file.path))
    other = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    assert await other.stdout.readline() == b"locked\n"
    try:
        yield
    finally:
        other.stdin.close()
        await other.wait()


async def test_another_program_holds_a_lock_on_the_file(file: Sqlite) -> None:
    async with at_work(file, "locked file") as clients:
        for _ in range(EFFORT):
            async with clients.trouble("lock"), locked_by_another_program(file):
                await clients.refused(10)
                await assert_reads_go_on(clients)
                await clients.see_ready(200)


async def assert_reads_go_on(clients: Clients) -> None:
    async with clients.served.client() as client:
        answers = [await client.get(path) for path in ("/jobs?limit=5", "/stats", "/tenants")]
    assert [answer.status_code for answer in answers] == [200] * 3


# --- A full disk -------------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(8) as made:
        yield made


async def test_the_disk_is_full(disk: Path, file: Sqlite) -> None:
    here = Sqlite(Path(shutil.copy(file.path, disk)))
    async with at_work(here, "full disk") as clients:
        for number in range(EFFORT):
            await put_tenant(clients, f"leaving {number}")
            async with clients.trouble("full disk"):
                fill(disk)
                await clients.refused(30)
                await assert_reads_go_on(clients)
                assert await erased(clients, f"leaving {number}") == 503
                clear(disk)
            assert await erased(clients, f"leaving {number}") == 200


async def put_tenant(clients: Clients, name: str) -> None:
    async with clients.served.client() as client:
        assert (await client.put(f"/tenants/{name}", json={})).is_success


async def erased(clients: Clients, tenant: str) -> int:
    """The status of an attempt to delete all that is kept of a tenant."""
    async with clients.served.client() as client:
        return (await client.post(f"/tenants/{tenant}/erase", json={})).status_code


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits a process from outside")
async def test_the_disk_takes_nothing(file: Sqlite) -> None:
    async with at_work(file, "disk that takes nothing") as clients:
        pid, limit = clients.served.process.pid, resource.RLIMIT_FSIZE
        _, most = resource.prlimit(pid, limit)
        for _ in range(EFFORT):
            async with clients.trouble("disk that takes nothing"):
                resource.prlimit(pid, limit, (0, most))
                await clients.refused(30)
                await assert_reads_go_on(clients)
                resource.prlimit(pid, limit, (most, most))
