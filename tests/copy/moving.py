"""Copies between two databases, rows by hand to be copied, and what both hold as plain SQL sees it."""

from __future__ import annotations

import decimal
import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Table

from app.clock import rfc3339
from app.scheduling.job import State
from app.store import copy as copies
from app.store.copied_rows import COPIED
from app.store.copy import Copied, Step
from app.store.schema import HOURLY
from app.store.types import Json, Moment
from tests.databases import Database
from tests.store.rows import NULL, insert, steps_of_job

PAYLOADS: Final = (
    "NULL",
    "'null'",
    "'[]'",
    """'{"b": 1, "a": {"d": [1, 2, null], "c": "ä€😀"}, "b": 2}'""",
    "'[1.0, 1e2, -0, -0.0, 12345678901234567890123.10, 0.1, 1E-7]'",
    """'"1e2"'""",
)
TEXTS: Final = ("'plain'", "'ä€😀 ''quoted'' \"twice\"'", "'line\nbreak\tand \\ more'", "' a '", "'é'")
TIMES: Final = ("'0001-01-01T00:00:00.000001Z'", "'2026-01-31T12:00:00.123456Z'", "'9999-12-31T23:59:59.000000Z'")


@dataclass(frozen=True)
class Pair:
    """The database that is copied, and the one that it is copied into."""

    source: Database
    target: Database

    async def copy(self) -> Copied:
        """Copy, or go on."""
        return await copies.copy(self.source.url, self.target.url, ignore)


def ignore(_step: Step) -> None:
    """For those who watch no progress."""


async def fill(database: Database, chance: random.Random, jobs: int = 14) -> None:
    """Rows in every table; jobs in every state."""
    await database.execute(*_filling(chance, jobs))


def _filling(chance: random.Random, jobs: int) -> Iterator[str]:
    for name, more in {
        "acme": {},
        "ämilie": {"weight": "3", "rate_per_sec": "0.1", "burst": "9223372036854775807"},
        "Zed": {"unlimited": "true", "max_running": "1", "max_queued": "0", "paused": "true"},
        "zed": {"created_at": TIMES[0], "updated_at": TIMES[2]},
    }.items():
        yield insert("tenants", {"name": f"'{name}'", **more})
    for name in ("other", "Other", "9 to 5", "é"):
        clocks = {c: str(chance.randrange(1 << 63)) for c in ("clock", "since_move", "horizon")}
        yield insert("queues", {"name": f"'{name}'", **clocks, "paused": "true"})
        yield insert("lanes", {"queue": f"'{name}'", "tenant": "'zed'", "virtual_time": str(chance.randrange(1 << 63))})
    for key_id, of in ("b" * 32, NULL), ("a" * 32, f"'{'b' * 32}'"):  # a login whose id is the smaller one
        key = {"id": f"'{key_id}'", "name": "'key'", "role": "'worker'", "queues": """'["b", "a"]'""", "session_of": of}
        yield insert("api_keys", {**key, "digest": f"'{chance.getrandbits(256):064x}'"})
    for n in range(jobs):
        yield from _a_job(chance, list(State)[n % len(State)])
    yield "UPDATE rollups SET until = '2026-01-31T12:00:00.000000Z'"
    for table in HOURLY:
        yield from _figures(chance, table)


def _a_job(chance: random.Random, state: State) -> Iterator[str]:
    yield from steps_of_job(
        state,
        test_suite=chance.choice(TEXTS),
        queue=chance.choice(("'default'", "'other'", "'é'")),
        priority=str(chance.randrange(11)),
        payload=chance.choice(PAYLOADS),
        submitted_at=chance.choice(TIMES),
        due_at=chance.choice(TIMES),
        retry_of=chance.choice(("NULL", f"'{chance.getrandbits(128):032x}'")),
        idempotency_key=f"'key {chance.getrandbits(64)}'",
        **({} if state.is_final else {"progress": chance.choice(("NULL", "0", "0.1", "1", "-0.0"))}),
    )
    for number in range(chance.randrange(4)):
        attempt = {
            "job_id": "(SELECT id FROM jobs ORDER BY seq DESC LIMIT 1)",
            "number": str(number + 1),
            "token": f"'{chance.getrandbits(64)}'",
            "worker": chance.choice(TEXTS),
            **dict.fromkeys(("queued_at", "scheduled_at", "ended_at"), TIMES[1]),
            "outcome": "'timed out'",
            "error": chance.choice(("NULL", *TEXTS)),
            "weight": "1000",
            "cost": "1",
        }
        yield insert("job_attempts", attempt)


def _figures(chance: random.Random, table: Table) -> Iterator[str]:
    for _ in range(5):
        row = {}
        for column in table.columns:
            if isinstance(column.type, Moment):
                row[column.name] = f"'2026-01-{chance.randrange(10, 29)}T{chance.randrange(10, 24)}:00:00.000000Z'"
            elif column.primary_key:
                row[column.name] = f"'{chance.choice('aAbBzZäÄ')} {chance.randrange(1000)}'"
            else:
                row[column.name] = str(chance.randrange(1 << 63))
        yield insert(str(table.name), row)


async def add_jobs(database: Database, *suites: str) -> None:
    """Pending jobs of a tenant."""
    added = (f"INSERT INTO jobs (tenant, test_suite) VALUES ('acme', '{suite}')" for suite in suites)
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')", *added)


# --- What there is, without any of the code that copies -------------------------------------------------------


async def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables that are copied, in one form for both kinds."""
    return {table.name: await _rows(database, table) for table in COPIED}


async def _rows(database: Database, table: Table) -> list[tuple[Any, ...]]:
    columns = list(table.columns)
    found = await database.fetch(f"SELECT {', '.join(column.name for column in columns)} FROM {table.name}")
    rows = [tuple(_plain(value, isinstance(c.type, Json)) for value, c in zip(r, columns, strict=True)) for r in found]
    return sorted(rows, key=repr)


def _plain(value: Any, is_json: bool) -> Any:  # noqa: FBT001 - one of two ways to read a cell
    match value:
        case str() if is_json:
            return json.loads(value, parse_int=decimal.Decimal, parse_float=decimal.Decimal)
        case bool():
            return int(value)
        case uuid.UUID():
            return value.hex
        case datetime():
            return rfc3339(value)
    return value


async def next_seq(database: Database) -> int:
    """The number of a job that is typed now."""
    await database.execute("INSERT INTO jobs (tenant, test_suite) VALUES ('acme', 'next')")
    return int(await database.value("SELECT max(seq) FROM jobs"))


async def marks(database: Database) -> list[tuple[str, bool]]:
    """Of what it is a side, and whether that is finished."""
    return [
        (direction, bool(finished))
        for direction, finished in await database.fetch(
            "SELECT direction, finished_at IS NOT NULL FROM copies ORDER BY direction"
        )
    ]
