"""Values go in and come out the same on both engines, and what one of them could not keep is refused by both."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import StatementError

from app.clock import rfc3339
from app.scheduling.job import Job, State
from app.store.engine import Engines, open_engines
from app.store.schema import jobs, tenants
from app.store.types import json_to_bytes
from tests.databases import Database, Refused

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ID = "0123456789abcdef0123456789abcdef"


async def kept(engines: Engines, **columns: Any) -> Job:
    """A job as it comes back after it was stored with `columns`."""
    async with engines.writer.begin() as connection:
        new = insert(jobs).values(tenant="acme", test_suite="unit", **columns).returning(jobs.c.seq)
        seq = await connection.scalar(new)
    async with engines.reader.begin() as connection:
        row = (await connection.execute(select(jobs).where(jobs.c.seq == seq))).one()
    return Job(*row)


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        NOON + timedelta(microseconds=1),
        datetime(2026, 1, 31, 17, 0, 0, 999_999, timezone(timedelta(hours=5))),
        datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_998, UTC),
    ],
)
async def test_a_moment_is_the_same_moment_in_utc(shared_engines: Engines, moment: datetime) -> None:
    job = await kept(shared_engines, run_at=moment, due_at=moment)

    assert job.run_at == moment
    assert job.run_at.tzinfo is UTC or job.run_at.utcoffset() == timedelta(0)
    async with shared_engines.reader.begin() as connection:
        found = select(jobs.c.due_at).where(jobs.c.run_at == moment)
        assert await connection.scalar(found) == moment


@pytest.mark.parametrize(
    "payload",
    [
        {"a": [1, 2.5, "ü", True, None, {"deep": []}]},
        [[1], [2, 3]],
        "text with a \\u0000 that is none",
        0,
        False,
        "",
        2**63,
        -0.5,
        {"null": "null"},
        10**40,
        1e15,
        1e16,
        -1.5e300,
        {"a": 1e22},
        {"a": 1e22, "b": [-1e22, 2e22]},
        1.7976931348623157e308,
        5e-324,
        ["4f0c2b7ad19e6538", "[1e22", ":1e22,", 1e22],
        {"1e16": ["1e16", 1e16, 10**16, {"-0.0": "-0.0"}]},
    ],
)
async def test_json_is_the_same_json(shared_engines: Engines, payload: Any) -> None:
    job = await kept(shared_engines, payload=payload)

    assert repr(job.payload) == repr(payload)


async def test_no_engine_keeps_the_sign_of_a_zero(shared_engines: Engines) -> None:
    job = await kept(shared_engines, payload=[-0.0, {"a": -0.0}, -0.05])

    assert repr(job.payload) == "[0.0, {'a': 0.0}, -0.05]"


async def test_none_is_an_sql_null_and_not_a_json_null(shared_engines: Engines, shared: Database) -> None:
    job = await kept(shared_engines, payload=None)

    assert job.payload is None
    assert await shared.value(f"SELECT payload IS NULL FROM jobs WHERE seq = {job.seq}")


@pytest.mark.parametrize("typed", ["1e400", '"\\ud800"', "[" * 900 + "]" * 900, "[" * 5000 + "]" * 5000])
async def test_json_that_only_a_database_can_read_hides_no_other_row(database: Database, typed: str) -> None:
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')")
    with suppress(Refused):  # by the engine that cannot read it either
        await database.execute(f"INSERT INTO jobs (tenant, test_suite, payload) VALUES ('acme', 'odd', '{typed}')")
    await database.execute("INSERT INTO jobs (tenant, test_suite, payload) VALUES ('acme', 'good', '[1]')")

    async with open_engines(database.url) as engines, engines.reader.begin() as connection:
        rows = (await connection.execute(select(jobs.c.test_suite, jobs.c.payload))).all()

    found = {row.test_suite: row.payload for row in rows}
    assert found["good"] == [1]
    assert "odd" not in found or json_to_bytes(found["odd"])


async def test_ids_flags_and_states(shared_engines: Engines) -> None:
    job = await kept(shared_engines, id=ID, retry_of=ID, state=State.PENDING, progress=0.1)

    assert (job.id, job.retry_of, job.state, job.progress) == (ID, ID, State.PENDING, 0.1)
    assert isinstance(job.state, State)
    async with shared_engines.reader.begin() as connection:
        assert (await connection.execute(select(tenants.c.paused))).scalar_one() is False


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"run_at": NOON.replace(tzinfo=None)}, id="naive time"),
        pytest.param({"run_at": datetime.max.replace(tzinfo=UTC)}, id="infinitely late"),
        pytest.param({"run_at": datetime.min.replace(tzinfo=UTC)}, id="infinitely early"),
        pytest.param({"payload": math.nan}, id="NaN"),
        pytest.param({"payload": {"a": [1, (math.inf,)]}}, id="infinity"),
        pytest.param({"payload": "a\0b"}, id="NUL"),
        pytest.param({"payload": {"a\0": 1}}, id="NUL in a key"),
        pytest.param({"payload": "\ud800"}, id="surrogate"),
        pytest.param({"id": ID.upper()}, id="id in capitals"),
        pytest.param({"id": ID[1:]}, id="short id"),
        pytest.param({"id": ID + "\n"}, id="id with a line end"),
        pytest.param({"state": "done"}, id="no such state"),
        pytest.param({"cost": 2**31}, id="33 bits"),
        pytest.param({"seq": 2**63}, id="65 bits"),
        pytest.param({"error": "a\0b"}, id="NUL in text"),
        pytest.param({"error": "\ud800"}, id="surrogate in text"),
    ],
)
async def test_what_one_engine_could_not_keep_both_refuse(shared_engines: Engines, columns: dict[str, Any]) -> None:
    with pytest.raises(StatementError) as refused:
        await kept(shared_engines, **columns)

    assert isinstance(refused.value.orig, ValueError)


async def test_a_flag_is_no_number(shared_engines: Engines) -> None:
    async with shared_engines.writer.begin() as connection:
        with pytest.raises(StatementError, match="true or false"):
            await connection.execute(insert(tenants).values(name="other", paused=1))


def test_the_text_of_moments_sorts_like_moments() -> None:
    moments = [NOON + timedelta(microseconds=n) for n in (0, 1, 999_999, 1_000_000)]
    texts = [rfc3339(moment) for moment in moments]

    assert texts == sorted(texts)
    assert texts[0] == "2026-01-31T12:00:00.000000Z"


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\"])
def test_a_backslash_is_not_taken_for_a_nul(text: str) -> None:
    assert json_to_bytes(text)
