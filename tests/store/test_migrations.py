"""Migrations go up, down and up again on both engines, all or nothing, one at a time; and what they build is
what the application believes there is."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command

from app.errors import BadSettings, SchemaOutdated
from app.scheduling.job import State
from app.store import migrate
from app.store.engine import open_migrator
from app.store.schema import metadata
from tests.ahead import REPOSITORY, REVISIONS, Ahead
from tests.databases import Database, Databases
from tests.store.expanding import split
from tests.store.rows import add_job, add_tenant

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
}
LEFT_BEHIND = {
    "sqlite": "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND tbl_name <> 'alembic_version'",
    "postgres": "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
}


async def tables(database: Database) -> set[str]:
    return {name for (name,) in await database.fetch(TABLES[database.kind])}


async def test_up_down_and_up_again(empty_database: Database) -> None:
    everything = {*metadata.tables, "alembic_version"}
    await migrate.upgrade(empty_database.url)
    assert await tables(empty_database) == everything
    await add_tenant(empty_database)

    await migrate.downgrade(empty_database.url, "base")
    assert await tables(empty_database) == {"alembic_version"}
    assert await empty_database.fetch(LEFT_BEHIND[empty_database.kind]) == []

    await migrate.upgrade(empty_database.url)
    assert await tables(empty_database) == everything
    assert await empty_database.value("SELECT count(*) FROM tenants") == 0


async def test_status(empty_database: Database) -> None:
    head = (await migrate.status(empty_database.url)).head
    assert await migrate.status(empty_database.url) == migrate.Status(None, head, REVISIONS)

    await migrate.upgrade(empty_database.url)
    await migrate.upgrade(empty_database.url)  # and once more, to no effect

    assert await migrate.status(empty_database.url) == migrate.Status(head, head, ())


def test_status_makes_no_file(tmp_path: Path) -> None:
    assert asyncio.run(migrate.status(f"sqlite:///{tmp_path}/none.db")).current is None
    assert list(tmp_path.iterdir()) == []


async def test_autogenerate_finds_nothing_to_do(database: Database) -> None:
    await migrate._in_one_transaction(database.url, lambda connection: migrate._run(connection, command.check))


async def test_a_database_of_others_is_left_as_it_is(empty_database: Database) -> None:
    await empty_database.execute("CREATE TABLE queues (theirs INTEGER)")
    with pytest.raises(
        BadSettings, match=r"tables that Fairlane has not made \(queues\): give it a database of its own"
    ):
        await migrate.upgrade(empty_database.url)
    assert await tables(empty_database) == {"queues"}


async def test_a_revision_that_is_none_of_ours(database: Database) -> None:
    for go_to in (migrate.upgrade, migrate.downgrade):
        with pytest.raises(SchemaOutdated, match="'nonsense'; `fairlane migrate status` says where"):
            await go_to(database.url, "nonsense")


# --- what was built is what the application believes: CHECKs and defaults too, which autogenerate misses ---

SQLITE_SCHEMA = "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL"
POSTGRES_SCHEMA = """
SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT relname::text, array_to_string(reloptions, ',') FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL SELECT table_name || '.' || ordinal_position,
    concat_ws(' ', column_name, data_type, is_nullable, column_default, is_identity, identity_generation)
    FROM information_schema.columns WHERE table_schema = 'public'
"""


async def built(database: Database) -> dict[str, list[str]]:
    sql = SQLITE_SCHEMA if database.kind == "sqlite" else POSTGRES_SCHEMA
    return {
        name: split(definition or "")
        for name, definition in await database.fetch(sql)
        if not name.startswith(("alembic_version", "sqlite_", "report_"))  # SQLAlchemy has no words for views
    }


async def test_the_migrations_build_what_the_schema_says(database: Database, empty_database: Database) -> None:
    engine = open_migrator(empty_database.url)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()

    migrated, declared = await built(database), await built(empty_database)

    assert migrated == declared
    assert "ck_jobs_lease_by_state" in str(migrated)


# --- all or nothing, one at a time ---


@pytest.fixture
def one_more(tmp_path: Path) -> Iterator[Ahead]:
    """Takes one more migration, which this process then knows."""
    ahead = Ahead.within(tmp_path)
    with ahead.known():
        yield ahead


async def test_a_migration_that_fails_leaves_nothing_behind(empty_database: Database, one_more: Ahead) -> None:
    one_more.add('run("CREATE TABLE half (x INTEGER)"); raise RuntimeError("half way")')

    with pytest.raises(RuntimeError, match="half way"):
        await migrate.upgrade(empty_database.url)

    assert await tables(empty_database) == set()


async def test_a_migration_that_leaves_rows_dangling_is_undone(sqlite_databases: Databases, one_more: Ahead) -> None:
    database = sqlite_databases.create()
    await add_tenant(database)
    await add_job(database, State.PENDING)
    one_more.add('run("DROP TRIGGER tr_tenants_deleted_with_jobs", "DELETE FROM tenants")')

    with pytest.raises(SchemaOutdated, match="the first is row 1 of jobs, which wants one in tenants"):
        await migrate.upgrade(database.url)

    assert await database.value("SELECT count(*) FROM tenants") == 1
    sqlite_databases.drop(database)


async def python(*arguments: str, url: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=REPOSITORY,
        env={**os.environ, "FAIRLANE_DATABASE_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_processes_that_migrate_at_once_wait_for_each_other(empty_database: Database) -> None:
    program = "import asyncio, os; from app.store.migrate import upgrade; "
    program += "asyncio.run(upgrade(os.environ['FAIRLANE_DATABASE_URL']))"

    ends = await asyncio.gather(*(python("-c", program, url=empty_database.url) for _ in range(3)))

    assert ends == [(0, "")] * 3
    assert (await migrate.status(empty_database.url)).pending == ()


async def test_the_plain_alembic_command_works(empty_database: Database) -> None:
    for arguments in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
        code, output = await python("-W", "error", "-m", "alembic", *arguments, url=empty_database.url)
        assert code == 0, output
    assert await tables(empty_database) == {"alembic_version"}


async def test_logging_is_left_alone(empty_database: Database) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("alembic").level)

    await migrate.upgrade(empty_database.url)

    assert (root.level, root.handlers, logging.getLogger("alembic").level) == before


async def test_the_migrations_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "app"
    (package / "migrations").mkdir(parents=True)
    monkeypatch.setattr("app.__file__", str(package / "__init__.py"))
    assert migrate._migrations() == package / "migrations"

    (package / "migrations").rmdir()
    assert migrate._migrations() == tmp_path / "migrations"
