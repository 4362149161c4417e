"""All that a service is comes over, whatever its values are, and is named where it cannot."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.clock import Clock
from app.scheduling.job import State
from app.store import copied_rows
from app.store import copy as copies
from app.store.copied_rows import COPIED, NOT_COPIED, TABLES, CopiedTable, NoCopy, Reading
from app.store.sameness import Digest
from app.store.schema import metadata
from tests.copy.moving import Pair, add_jobs, everything, fill, ignore, marks, next_seq
from tests.databases import Database, Sqlite
from tests.effort import EFFORT, chance_of
from tests.store.rows import add_job, insert

ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_rows, "PORTION", 3)


def test_each_table_of_the_schema_is_copied_or_has_a_reason_not_to_be() -> None:
    copied = [table.name for table in COPIED]
    assert sorted([*copied, *NOT_COPIED]) == sorted(metadata.tables)
    for table in COPIED:  # each after those that it refers to
        for key in table.foreign_keys:
            if key.column.table is table:
                assert len([part for part in TABLES if part.schema is table]) > 1
                continue
            assert copied.index(key.column.table.name) < copied.index(table.name)


@pytest.mark.torture
@pytest.mark.parametrize("round_", range(EFFORT))
async def test_everything_is_copied(pair: Pair, round_: int) -> None:
    await fill(pair.source, chance_of(f"everything is copied {round_}"))
    before = await everything(pair.source)

    copied = await pair.copy()

    assert await everything(pair.target) == before == await everything(pair.source)
    assert copied.digests is not None
    counted = {name: digest.rows for name, digest in copied.digests.items()}
    assert counted == {name: len(rows) for name, rows in before.items()} | {"api_keys": 1, "logins": 1}
    assert all(before.values())  # or nothing was tried
    assert await marks(pair.source) == [("out", True)]
    assert await marks(pair.target) == [("in", True)]


async def test_a_copy_may_be_copied_on(sqlite_to_postgres: Pair, tmp_path: Path) -> None:
    pair = sqlite_to_postgres
    await fill(pair.source, random.Random(7))
    await pair.copy()
    third = Sqlite(tmp_path / "third.db")  # which is made, with its tables
    await Pair(pair.target, third).copy()
    assert await everything(third) == await everything(pair.source)
    assert await marks(pair.target) == [("in", True), ("out", True)]


async def test_a_postgres_without_tables_is_given_them(files: Pair, postgres_without_tables: Database) -> None:
    await Pair(files.source, postgres_without_tables).copy()
    assert await everything(postgres_without_tables) == await everything(files.source)
    await postgres_without_tables.execute("INSERT INTO tenants (name) VALUES ('acme')")
    assert await next_seq(postgres_without_tables) == 1


@pytest.mark.parametrize("mode", [0o600, 0o640])
async def test_of_a_file_nobody_may_read_the_copy_who_may_not_read_it(files: Pair, tmp_path: Path, mode: int) -> None:
    await asyncio.to_thread(Path(files.source.url.removeprefix("sqlite:///")).chmod, mode)
    third = Sqlite(tmp_path / "third.db")
    await Pair(files.source, third).copy()
    assert stat.S_IMODE(third.path.stat().st_mode) == mode


@pytest.mark.parametrize("last", ["in a row", "given out", "in no record"])
async def test_numbers_are_never_given_out_again(unlike: Pair, last: str) -> None:
    await add_jobs(unlike.source, "first", "second")
    if last == "given out":
        await unlike.source.execute("INSERT INTO jobs (tenant, test_suite) VALUES ('acme', 'gone')")
        await unlike.source.execute("DELETE FROM jobs WHERE seq = 3")
    elif last == "in no record":
        await unlike.source.execute("INSERT INTO jobs (seq, tenant, test_suite) VALUES (7, 'acme', 'typed')")
        if unlike.source.kind == "sqlite":
            await unlike.source.execute("DELETE FROM sqlite_sequence")
    await unlike.copy()
    assert await next_seq(unlike.target) == {"in a row": 3, "given out": 4, "in no record": 8}[last]


async def test_times_go_on_after_those_that_were_given_out(unlike: Pair) -> None:
    last = "2090-01-01T00:00:00.000000Z"  # the clock was wrong once
    await unlike.source.execute(insert("dispatcher", {"name": "'main'", "last_time": f"'{last}'"}))
    await unlike.copy()
    assert await unlike.target.value(f"SELECT last_time > '{last}' FROM dispatcher")
    assert await unlike.target.value("SELECT expires_at IS NULL FROM dispatcher")


@pytest.mark.parametrize("way", ["copied", "copied and opened again"])
async def test_a_machine_whose_clock_is_ahead_gives_a_postgres_no_times_of_its_own(
    unlike: Pair, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "_wall", lambda _: datetime.now(UTC) + timedelta(hours=1))
    await unlike.copy()
    if way == "copied and opened again":
        await copies.reopen(unlike.source.url, ignore)
    for database in (unlike.source, unlike.target):
        if database.kind == "postgres":
            assert await database.value("SELECT last_time < now() + interval '1 minute' FROM dispatcher")


# --- What one database takes and the other does not -----------------------------------------------------------

PLAIN = {"tenant": "'acme'", "test_suite": "'unit'"}
ONLY_SQLITE_TAKES = {
    "NUL in a text": {"idempotency_key": "'a' || char(0) || 'b'"},
    "an escaped NUL in JSON": {"payload": "'[\"\\u0000\"]'"},
    "a lone surrogate in JSON": {"payload": "'[\"\\ud800\"]'"},
    "a number of JSON with too many digits": {"payload": "'[1e200000]'"},
    "the last moment there is": {"run_at": "'9999-12-31T23:59:59.999999Z'"},
}


async def test_rows_that_cannot_be_kept_are_named_and_the_rest_goes_on_without_them(sqlite_to_postgres: Pair) -> None:
    pair = sqlite_to_postgres
    await add_jobs(pair.source, *map(str, range(7)))
    await pair.source.execute(*(insert("jobs", {**PLAIN, **row}) for row in ONLY_SQLITE_TAKES.values()))
    await pair.source.execute(insert("jobs", PLAIN))

    for seq in range(8, 8 + len(ONLY_SQLITE_TAKES)):
        with pytest.raises(NoCopy, match=rf"^the row of jobs with seq = {seq} cannot be kept there: .+"):
            await pair.copy()
        assert await pair.target.value("SELECT max(seq) FROM jobs") == 6
        await pair.source.execute(f"DELETE FROM jobs WHERE seq = {seq}")

    await pair.copy()
    assert await everything(pair.target) == await everything(pair.source)


async def test_a_number_that_is_too_large_is_named(sqlite_to_postgres: Pair) -> None:
    pair = sqlite_to_postgres
    await pair.source.execute("INSERT INTO tenants (name) VALUES ('acme')")
    await add_job(pair.source, State.RUNNING, id=f"'{ID}'")
    times = dict.fromkeys(("queued_at", "scheduled_at", "ended_at"), "'2026-01-31T12:00:00.123456Z'")
    attempt = {"job_id": f"'{ID}'", "number": str(1 << 31), "token": "'t'", "worker": "'w'", **times}
    await pair.source.execute(insert("job_attempts", {**attempt, "outcome": "'lapsed'", "weight": "1", "cost": "1"}))
    with pytest.raises(NoCopy, match=rf"job_attempts with job_id = '{ID}' and number = 2147483648 cannot be kept"):
        await pair.copy()


@pytest.mark.parametrize("text", ["x'6162ff'", "x'eda080'"], ids=["no UTF-8", "a surrogate"])
@pytest.mark.parametrize("column", ["error", "idempotency_key", "payload"])
async def test_a_row_that_cannot_be_read_is_named(sqlite_to_postgres: Pair, column: str, text: str) -> None:
    pair = sqlite_to_postgres
    await add_jobs(pair.source, *map(str, range(4)))
    json = f"CAST(x'5b22' || {text} || x'225d' AS TEXT)"
    row = {**PLAIN, column: json if column == "payload" else f"CAST({text} AS TEXT)"}
    await pair.source.execute(insert("jobs", row))
    with pytest.raises(NoCopy, match=r"^the row of jobs with seq = 5 cannot be read: "):
        await pair.copy()


async def test_a_key_that_cannot_be_read_is_named_by_its_table(sqlite_to_postgres: Pair) -> None:
    await sqlite_to_postgres.source.execute("INSERT INTO tenants (name) VALUES (CAST(x'ff' AS TEXT))")
    with pytest.raises(NoCopy, match=r"^a row of tenants cannot be read: "):
        await sqlite_to_postgres.copy()


async def test_json_that_nests_too_deeply_is_named(postgres_to_sqlite: Pair) -> None:
    pair = postgres_to_sqlite
    await add_jobs(pair.source, "flat")
    deep = "[" * 3000 + "]" * 3000
    await pair.source.execute(insert("jobs", {**PLAIN, "payload": f"'{deep}'"}))
    with pytest.raises(NoCopy, match=r"^the row of jobs with seq = 2 cannot be"):
        await pair.copy()


# --- Somebody types SQL meanwhile -----------------------------------------------------------------------------

ONE_MORE = "INSERT INTO tenants (name) VALUES ('aaa')"
CHANGES = {
    "one more in FROM": ("source", ONE_MORE, "tenants with name = 'aaa' is in one and not in the other"),
    "one more in TO": ("target", ONE_MORE, "tenants with name = 'aaa' is in one and not in the other"),
    "one less": ("source", "DELETE FROM jobs WHERE seq = 2", "jobs with seq = 2 is in one and not in the other"),
    "one other": ("target", "UPDATE jobs SET priority = 9 WHERE seq = 5", "jobs with seq = 5 is not the same in both"),
}


@pytest.mark.parametrize(("side", "change", "words"), CHANGES.values(), ids=CHANGES)
async def test_a_change_by_hand_is_found_and_the_copy_not_finished(
    sqlite_to_postgres: Pair, monkeypatch: pytest.MonkeyPatch, side: str, change: str, words: str
) -> None:
    pair = sqlite_to_postgres
    await add_jobs(pair.source, *map(str, range(7)))
    calls = itertools.count()
    as_it_is = CopiedTable.digest_of

    async def digest_of(self: CopiedTable, reading: Reading) -> AsyncIterator[Digest]:
        if next(calls) == 0:  # all is copied, and nothing compared
            await getattr(pair, side).execute(change)
        async for digest in as_it_is(self, reading):
            yield digest

    monkeypatch.setattr(CopiedTable, "digest_of", digest_of)
    with pytest.raises(NoCopy, match=re.escape(words)):
        await pair.copy()
    assert await marks(pair.target) == [("in", False)]
    assert await marks(pair.source) == [("out", False)]
