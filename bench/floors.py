"""What the databases do for whoever asks nothing else of them: rows like a job's, with one index, put in by the bare
drivers. A service is faster than these only where it commits for several clients at once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg

from bench.figures import GENERATOR, P50, P99, RATE, percentile
from bench.payload import PAYLOAD
from bench.rounds import Contender, Sample

INSERT: Final = "floor: asyncpg, an INSERT each"
UNNEST: Final = "floor: asyncpg, INSERT from unnest"
COPY: Final = "floor: asyncpg, COPY"
SQLITE: Final = "floor: sqlite3, synchronous=FULL"

_CONNECTIONS: Final = 16
_BODY: Final = json.dumps(PAYLOAD)
_COLUMNS: Final = ("id", "tenant", "test_suite", "queue", "priority", "state", "payload", "submitted_at")
_POSTGRES_TABLE: Final = """
CREATE TABLE jobs (id uuid PRIMARY KEY, tenant text NOT NULL, test_suite text NOT NULL, queue text NOT NULL,
    priority integer NOT NULL, state text NOT NULL, payload jsonb, submitted_at timestamptz NOT NULL)
"""
_POSTGRES_ROW: Final = "INSERT INTO jobs VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
_POSTGRES_ROWS: Final = """
INSERT INTO jobs SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[],
    $7::jsonb[], $8::timestamptz[])
"""
_SQLITE_TABLE: Final = """
CREATE TABLE jobs (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, test_suite TEXT NOT NULL, queue TEXT NOT NULL,
    priority INTEGER NOT NULL, state TEXT NOT NULL, payload TEXT, submitted_at TEXT NOT NULL) STRICT
"""
_SQLITE_ROW: Final = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


@asynccontextmanager
async def of_postgres(url: str, *, size: int, tasks: int, sec: float) -> AsyncIterator[list[Contender]]:
    """The bare driver on an empty database: `size` rows a commit, from so many tasks."""
    async with asyncpg.create_pool(url, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as pool:
        await pool.execute(_POSTGRES_TABLE)

        async def insert() -> None:
            await pool.execute(_POSTGRES_ROW, *_row())

        async def unnest() -> None:
            await pool.execute(_POSTGRES_ROWS, *map(list, zip(*_rows(size), strict=True)))

        async def copy() -> None:
            async with pool.acquire() as connection:
                await connection.copy_records_to_table("jobs", records=_rows(size), columns=_COLUMNS)

        calls = {INSERT: insert} if size == 1 else {UNNEST: unnest, COPY: copy}
        yield [Contender(who, _loop(call, size, tasks, sec)) for who, call in calls.items()]


def of_sqlite(url: str, *, size: int, sec: float) -> Contender:
    """The bare driver on an empty file, `size` rows a commit. It has one writer, so it has one client."""
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_SQLITE_TABLE)

    async def run() -> Sample:
        return await asyncio.to_thread(_insert_into_sqlite, path, size, sec)

    return Contender(SQLITE, run)


def _insert_into_sqlite(path: str, size: int, sec: float) -> Sample:
    took = []
    began, cpu = time.perf_counter(), time.process_time()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        while (since := time.perf_counter()) < began + sec:
            rows = [(job_id.hex, *rest, submitted_at.isoformat()) for job_id, *rest, submitted_at in _rows(size)]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_SQLITE_ROW, rows)
            connection.execute("COMMIT")
            took.append((time.perf_counter() - since) * 1000)
    return _sample(took, size, time.perf_counter() - began, time.process_time() - cpu)


def _loop(call: Callable[[], Awaitable[None]], size: int, tasks: int, sec: float) -> Callable[[], Awaitable[Sample]]:
    async def run() -> Sample:
        took = list[float]()
        began, cpu = time.perf_counter(), time.process_time()

        async def client() -> None:
            while (since := time.perf_counter()) < began + sec:
                await call()
                took.append((time.perf_counter() - since) * 1000)

        await asyncio.gather(*(client() for _ in range(tasks)))
        return _sample(took, size, time.perf_counter() - began, time.process_time() - cpu)

    return run


def _sample(took_ms: list[float], size: int, sec: float, cpu_sec: float) -> Sample:
    return {
        RATE: size * len(took_ms) / sec,
        P50: percentile(took_ms, 50),
        P99: percentile(took_ms, 99),
        GENERATOR: 100 * cpu_sec / sec,
    }


def _row() -> tuple[Any, ...]:
    return (uuid.uuid4(), "team-0", "tests/login", "default", 0, "queued", _BODY, datetime.now(UTC))


def _rows(size: int) -> list[tuple[Any, ...]]:
    return [_row() for _ in range(size)]
