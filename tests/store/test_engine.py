"""The settings that durability and isolation rest on are really in force, and URLs are taken or refused in words."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.errors import BadSettings
from app.store.dialect import refuse_old_postgres, refuse_old_sqlite
from app.store.engine import Engines, open_engines, open_migrator, parse_url
from app.store.schema import tenants
from tests.databases import Database


async def ask(engine: AsyncEngine, *questions: str) -> list[Any]:
    async with engine.connect() as connection:
        return [(await connection.execute(text(question))).scalar_one() for question in questions]


async def pragmas(engine: AsyncEngine) -> dict[str, Any]:
    names = ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers", "busy_timeout", "query_only")
    return dict(zip(names, await ask(engine, *(f"PRAGMA {name}" for name in names)), strict=True))


FULL, NORMAL = 2, 1


@pytest.mark.parametrize(("synchronous", "number"), [("full", FULL), ("normal", NORMAL)])
async def test_pragmas_of_the_writer(sqlite: Database, synchronous: str, number: int) -> None:
    async with open_engines(sqlite.url, synchronous=synchronous) as engines:
        assert await pragmas(engines.writer) == {
            "journal_mode": "wal",
            "synchronous": number,
            "foreign_keys": 1,
            "recursive_triggers": 1,
            "busy_timeout": 3000,
            "query_only": 0,
        }
        reading = await pragmas(engines.reader)
        assert (reading["query_only"], reading["journal_mode"], reading["busy_timeout"]) == (1, "wal", 3000)


async def test_full_is_the_default(sqlite: Database) -> None:
    async with open_engines(sqlite.url) as engines:
        assert await ask(engines.writer, "PRAGMA synchronous") == [FULL]


async def test_settings_of_postgres(postgres: Database) -> None:
    names = ["lock_timeout", "default_transaction_read_only", "synchronous_commit", "TimeZone"]
    async with open_engines(postgres.url) as engines:
        writing = await ask(engines.writer, *(f"SHOW {name}" for name in names))
        reading = await ask(engines.reader, *(f"SHOW {name}" for name in names))

    assert writing == ["3s", "off", "on", "UTC"]
    assert reading == ["0", "on", "on", "UTC"]


async def test_a_commit_is_durable_where_postgres_would_not_have_it(postgres: Database) -> None:
    name = await postgres.value("SELECT current_database()")
    await postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    async with open_engines(postgres.url) as engines:
        assert await ask(engines.writer, "SHOW synchronous_commit") == ["on"]


async def test_what_a_session_would_keep_is_set_in_each_transaction_where_there_are_no_sessions(
    postgres: Database,
) -> None:
    name = await postgres.value("SELECT current_database()")
    await postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    names = ["lock_timeout", "transaction_read_only", "synchronous_commit", "TimeZone", "application_name"]
    shown = [f"SHOW {name}" for name in names]
    async with open_engines(f"{postgres.url}&pooler=transaction") as engines:
        for _ in range(2):
            assert await ask(engines.writer, *shown) == ["3s", "off", "on", "UTC", "fairlane writer"]
            assert await ask(engines.reader, *shown) == ["0", "on", "on", "UTC", "fairlane reader"]
        with pytest.raises(DBAPIError, match="read-only"):
            async with engines.reader.begin() as connection:
                await connection.execute(insert(tenants).values(name="acme"))
        async with engines.writer.connect() as connection:
            kept = await (await connection.get_raw_connection()).driver_connection.fetchval("SHOW lock_timeout")  # type: ignore[union-attr]
    assert kept == "0"


async def test_a_reader_cannot_write(engines: Engines) -> None:
    with pytest.raises(DBAPIError, match=r"readonly|read-only"):
        async with engines.reader.begin() as connection:
            await connection.execute(insert(tenants).values(name="acme"))


async def test_a_reader_waits_for_no_writer_and_sees_what_is_committed(engines: Engines) -> None:
    count = select(func.count()).select_from(tenants)
    async with engines.writer.begin() as writing:
        await writing.execute(insert(tenants).values(name="acme"))
        async with engines.reader.begin() as reading:
            assert await reading.scalar(count) == 0
    async with engines.reader.begin() as reading:
        assert await reading.scalar(count) == 1


async def test_a_reader_sees_one_moment_on_sqlite(sqlite: Database) -> None:
    weight = select(tenants.c.weight)
    async with open_engines(sqlite.url) as engines, engines.reader.begin() as reading:
        assert await reading.scalar(weight) == 1
        async with engines.writer.begin() as writing:
            await writing.execute(update(tenants).values(weight=7))
        assert await reading.scalar(weight) == 1


@pytest.fixture
async def two_writers(database: Database) -> AsyncIterator[tuple[AsyncEngine, AsyncEngine]]:
    async with open_engines(database.url) as one, open_engines(database.url) as other:
        async with one.writer.begin() as connection:
            await connection.execute(insert(tenants).values(name="acme"))
        yield one.writer, other.writer


async def test_writers_that_read_first_wait_for_each_other(two_writers: tuple[AsyncEngine, AsyncEngine]) -> None:
    """On SQLite a deferred transaction would fail here at once with BUSY_SNAPSHOT."""

    async def add_one(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            weight = (await connection.execute(select(tenants.c.weight).with_for_update())).scalar_one()
            await connection.execute(update(tenants).values(weight=weight + 1))

    await asyncio.gather(*(add_one(engine) for engine in two_writers * 5))

    async with two_writers[0].connect() as connection:
        assert await connection.scalar(select(tenants.c.weight)) == 11


async def test_a_failed_transaction_leaves_a_clean_connection(engines: Engines) -> None:
    with pytest.raises(DBAPIError):
        async with engines.writer.begin() as connection:
            await connection.execute(insert(tenants), [{"name": "acme"}, {"name": "acme"}])
    async with engines.writer.begin() as connection:
        assert await connection.scalar(select(func.count()).select_from(tenants)) == 0


async def test_a_savepoint_undoes_its_part(engines: Engines) -> None:
    async with engines.writer.begin() as connection:
        await connection.execute(insert(tenants).values(name="kept"))
        savepoint = await connection.begin_nested()
        await connection.execute(insert(tenants).values(name="undone"))
        await savepoint.rollback()
    async with engines.reader.begin() as connection:
        assert (await connection.execute(select(tenants.c.name))).scalars().all() == ["kept"]


async def test_migrations_run_with_foreign_keys_off(sqlite: Database) -> None:
    engine = open_migrator(sqlite.url)
    assert await ask(engine, "PRAGMA foreign_keys", "PRAGMA synchronous") == [0, FULL]
    await engine.dispose()


async def test_nothing_of_a_row_is_in_an_error_or_a_repr(engines: Engines) -> None:
    with pytest.raises(DBAPIError) as refused:
        async with engines.writer.begin() as connection:
            await connection.execute(insert(tenants).values(name="secret", weight=0))

    assert "secret" not in str(refused.value)
    assert "postgres:@" not in repr(engines)


# --- URLs ---


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("sqlite:///fairlane.db", "fairlane.db"),
        ("sqlite:////tmp/fairlane.db", "/tmp/fairlane.db"),  # noqa: S108 - only parsed
        ("sqlite+aiosqlite:///fairlane.db", "fairlane.db"),
        ("postgres://u:p@db/fair", "postgresql://u:p@db/fair"),
        ("postgresql://u:p%40x@db:5433/fair", "postgresql://u:p%40x@db:5433/fair"),
        ("postgresql+asyncpg://u:p@db/fair?ssl=require", "postgresql://u:p@db/fair?sslmode=require"),
        ("postgresql://db1:5432,db2:5432/fair", "postgresql://db1:5432,db2:5432/fair"),
        ("postgresql://[::1]:5432,db2/fair", "postgresql://[::1]:5432,db2/fair"),
        ("postgresql:///fair?host=/run/postgresql", "postgresql:///fair?host=%2Frun%2Fpostgresql"),
        (f"postgresql://%2F{'x' * 64}/fair", f"postgresql://%2F{'x' * 64}/fair"),
    ],
)
def test_a_url_that_is_taken(url: str, target: str) -> None:
    assert parse_url(url).target == target


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "must begin with"),
        ("fairlane.db", "must begin with"),
        ("mysql://root:hunter2@db/fair", "must begin with"),
        ("postgresql+psycopg://u:hunter2@db/fair", "must begin with"),
        ("postgresql//u:hunter2@db/fair", "must begin with"),
        ("sqlite://", "plain file"),
        ("sqlite:///", "plain file"),
        ("sqlite:///:memory:", "plain file"),
        ("sqlite:///file:x?mode=memory&uri=true", "plain file"),
        ("sqlite:///fairlane.db?timeout=3", "plain file"),
        ("sqlite://fairlane.db", "plain file"),
        ("sqlite:///no/such/folder/fairlane.db", "folder that does not exist"),
        ("sqlite:///.", "is a folder"),
        ("postgresql://u:hunter2@db:port/fair", "port"),
        ("postgresql://u:hunter2@db1:5432,db2:port/fair", "port"),
        ("postgresql://u:hunter2@[::1/fair", "brackets"),
        ("postgresql://u:hunter2@db1,[db2]/fair", "brackets"),
        ("postgresql://u:hunter2@db..example/fair", "host that can be no name"),
        (f"postgresql://u:hunter2@{'x' * 64}/fair", "host that can be no name"),
        ("postgresql://u:hunter2@db/fair?pooler=", "pooler=transaction and nothing else"),
        ("postgresql://u:hunter2@db/fair?pooler=hunter2", "pooler=transaction and nothing else"),
        ("postgresql://u:hunter2@db/fair?pooler=transaction&pooler=session", "pooler=transaction and nothing else"),
    ],
)
def test_a_url_that_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence) as refused:
        open_engines(url)

    assert "hunter2" not in str(refused.value)
    assert str(refused.value).startswith("FAIRLANE_DATABASE_URL")
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_a_url_with_a_pooler() -> None:
    address = parse_url("postgresql://u:p@db/fair?ssl=require&pooler=transaction")

    assert (address.target, address.has_sessions) == ("postgresql://u:p@db/fair?sslmode=require", False)
    assert parse_url("postgresql://u:p@db/fair").has_sessions


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairlane.db"
    for begins in (b"\x7fELF", b"SQLite", b"** This file contains an SQLite 2.1 database **"):
        file.write_bytes(begins)
        with pytest.raises(BadSettings, match=rf"names the file {file}, which is no SQLite database"):
            parse_url(f"sqlite:///{file}")
        assert file.read_bytes() == begins
    file.write_bytes(b"")  # as `touch` makes it
    parse_url(f"sqlite:///{file}")


@pytest.mark.parametrize("wrong", ["sslmode=wrong", "gsslib=wrong", "target_session_attrs=wrong"])
async def test_an_address_that_the_driver_refuses_is_a_bad_setting(wrong: str) -> None:
    async with open_engines(f"postgresql://u:hunter2@127.0.0.1:1/fair?{wrong}") as engines:
        for engine in (engines.reader, engines.writer):
            with pytest.raises(BadSettings, match="the database's address is wrong: ") as refused:
                async with engine.connect():
                    pass
            assert "hunter2" not in str(refused.value)


def test_synchronous_is_full_or_normal(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="FAIRLANE_SQLITE_SYNCHRONOUS"):
        open_engines(f"sqlite:///{tmp_path}/fairlane.db", synchronous="off")


def test_old_databases_are_refused() -> None:
    refuse_old_sqlite(sqlite3.sqlite_version_info)
    with pytest.raises(BadSettings, match=r"brings 3\.37\.2"):
        refuse_old_sqlite((3, 37, 2))
    refuse_old_postgres(15)
    with pytest.raises(BadSettings, match="the server is version 14"):
        refuse_old_postgres(14)


async def test_an_old_server_is_refused_by_the_first_connection(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.dialect.OLDEST_POSTGRES", 1000)
    async with open_engines(postgres.url) as engines:
        with pytest.raises(BadSettings, match="PostgreSQL"):
            async with engines.reader.connect():
                pass
