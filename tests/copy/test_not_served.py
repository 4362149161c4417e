"""What is done beside a service on a database that nobody serves: half a copy, its source, and what was copied away."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from app.errors import NotServed
from app.store import copies, migrate
from app.store import copy as moving
from app.store.copied_rows import NoCopy
from app.store.engine import open_engines
from tests.copy.moving import Pair, add_jobs, everything, ignore
from tests.copy.test_command import fairlane
from tests.databases import Database, Sqlite

HALF, BEGUN, AWAY = "is an unfinished copy of", "into .* was begun at", "was copied into"
KEY = ("keys", "create", "late", "--role", "reader")


async def half_of_a_copy(pair: Pair) -> None:
    """Only SQL typed by hand makes a row that cannot be kept."""
    await add_jobs(pair.source, "first")
    await pair.source.execute(
        "INSERT INTO tenants (name) VALUES ('late')",
        "INSERT INTO jobs (tenant, test_suite, error) VALUES ('late', 'by hand', 'a' || char(0))",
    )
    with pytest.raises(NoCopy):
        await pair.copy()


async def finish(pair: Pair) -> None:
    """The row is mended, and the copy comes to its end."""
    await pair.source.execute("DELETE FROM jobs WHERE tenant = 'late'")
    await pair.copy()


async def refused(database: Database, why: str, *command: str) -> None:
    """It does not do that to this database, nor change anything else."""
    before = await everything(database)
    told = await asyncio.to_thread(fairlane, *command, "--database-url", database.url, code=1)
    assert told.startswith("Error: ")
    assert re.search(why, told)
    assert await everything(database) == before


async def test_no_key_is_made_or_taken_back(sqlite_to_postgres: Pair) -> None:
    source, target = sqlite_to_postgres.source, sqlite_to_postgres.target
    made = await asyncio.to_thread(fairlane, *KEY, "--database-url", source.url)
    key_id = made.split("_")[1]
    await half_of_a_copy(sqlite_to_postgres)
    for command in (KEY, ("keys", "revoke", key_id)):
        await refused(source, BEGUN, *command)
        await refused(target, HALF, *command)
    assert "late" in await asyncio.to_thread(fairlane, "keys", "list", "--database-url", source.url)

    await finish(sqlite_to_postgres)
    await refused(source, AWAY, "keys", "revoke", key_id)
    assert "taken back" in await asyncio.to_thread(fairlane, "keys", "revoke", key_id, "--database-url", target.url)


async def test_the_schema_is_not_taken_back_to_one_that_knows_of_no_copies(sqlite_to_postgres: Pair) -> None:
    source, target = sqlite_to_postgres.source, sqlite_to_postgres.target
    down = ("migrate", "down", "--yes", "0003")
    await half_of_a_copy(sqlite_to_postgres)
    await refused(source, BEGUN, *down)
    await refused(target, HALF, *down)

    await finish(sqlite_to_postgres)
    await refused(source, AWAY, *down)
    await moving.reopen(source.url, ignore)
    for database in (source, target):
        await asyncio.to_thread(fairlane, *down, "--database-url", database.url)
        await migrate.upgrade(database.url)


async def test_half_a_copy_can_be_emptied(sqlite_to_postgres: Pair) -> None:
    await half_of_a_copy(sqlite_to_postgres)
    await migrate.downgrade(sqlite_to_postgres.target.url, "base")
    await finish(sqlite_to_postgres)


async def test_what_only_reads_goes_on(files: Pair, tmp_path: Path) -> None:
    await add_jobs(files.source, "only")
    await files.copy()
    snapshot = Sqlite(tmp_path / "snapshot.db")
    for command in (("snapshot", str(snapshot.path)), ("report", "queue-depth"), ("migrate", "status")):
        await asyncio.to_thread(fairlane, *command, "--database-url", files.source.url)
    assert await everything(snapshot) == await everything(files.source)
    async with open_engines(snapshot.url) as engines, engines.reader.connect() as connection:
        with pytest.raises(NotServed, match=AWAY):  # nor is a picture of it
            await copies.require_servable(connection)
