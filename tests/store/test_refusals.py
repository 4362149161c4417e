"""What neither engine takes from anybody, plain SQL typed by hand included; by name where a CHECK, a trigger
or a key refuses it. SQLite is typed on with foreign keys and recursive triggers off, as they come."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import pytest

from app.scheduling.job import State
from app.store.schema import (
    FK_JOBS_QUEUE,
    FK_JOBS_TENANT,
    PK_JOB_ATTEMPTS,
    PK_JOBS,
    TR_JOB_ATTEMPTS_FIXED,
    TR_JOBS_FINAL,
    TR_JOBS_IDENTITY,
    TR_JOBS_LEGAL_MOVE,
    TR_JOBS_PRIORITY,
    TR_JOBS_REQUEST,
    UQ_JOB_ATTEMPTS_TOKEN,
    UQ_JOBS_ID,
    UQ_JOBS_IDEMPOTENCY_KEY,
)
from tests.databases import Database, Refused
from tests.store.rows import NULL, add_job, cells, insert, update

ID: Final = "'0123456789abcdef0123456789abcdef'"
LATER: Final = "'2027-01-01T00:00:00.000000Z'"

IDENTITY: Final = {
    "seq": "seq + 100000",
    "id": ID,
    "tenant": "'other'",
    "test_suite": "'other'",
    "queue": "'other'",
    "submitted_at": LATER,
    "due_at": LATER,
}
REQUEST: Final = {
    "cost": "7",
    "payload": "'{}'",
    "max_attempts": "7",
    "timeout_sec": "7",
    "delay_sec": "7",
    "retry_of": ID,
    "idempotency_key": "'other'",
    "request_digest": "'other'",
}
BAD_JOBS: Final = [
    ("ck_jobs_seq_range", {"seq": "0"}),
    ("ck_jobs_test_suite_length", {"test_suite": "'  '"}),
    ("ck_jobs_test_suite_length", {"test_suite": f"'{'x' * 513}'"}),
    ("ck_jobs_priority_range", {"priority": "11"}),
    ("ck_jobs_priority_range", {"priority": "-1"}),
    ("ck_jobs_cost_range", {"cost": "0"}),
    ("ck_jobs_cost_range", {"cost": "1001"}),
    ("ck_jobs_delay_sec_range", {"delay_sec": "31536001"}),
    ("ck_jobs_attempt_range", {"attempt": "4"}),
    ("ck_jobs_attempt_range", {"attempt": "-1"}),
    ("ck_jobs_attempt_left_while_waiting", {"attempt": "3"}),
    ("ck_jobs_max_attempts_range", {"max_attempts": "101"}),
    ("ck_jobs_timeout_sec_range", {"timeout_sec": "0"}),
    ("ck_jobs_timeout_sec_range", {"timeout_sec": "604801"}),
    ("ck_jobs_progress_range", {"progress": "1.5"}),
    ("ck_jobs_idempotency_key_length", {"idempotency_key": "''"}),
    ("ck_jobs_idempotency_key_length", {"idempotency_key": f"'{'x' * 256}'"}),
    ("ck_jobs_times", {"run_at": "'0000-01-01T00:00:00.000000Z'"}),  # Postgres has no such year either
    ("ck_jobs_effective_priority_range", {**cells(State.QUEUED), "effective_priority": "-1"}),
    (FK_JOBS_TENANT, {"tenant": "'nobody'"}),
    (FK_JOBS_QUEUE, {"queue": "'nowhere'"}),
    (None, {"tenant": NULL}),
    (None, {"test_suite": NULL}),
    (None, {"state": NULL}),
    (None, {"run_at": NULL}),
    (None, {"priority": "'urgent'"}),
    (None, {"seq": "'first'"}),
    (None, {"progress": "'half'"}),
]
BAD_TENANTS: Final = [
    ("ck_tenants_name_length", {"name": "' '"}),
    ("ck_tenants_name_length", {"name": f"'{'x' * 129}'"}),
    ("ck_tenants_name_without_slash", {"name": "'a/b'"}),
    ("ck_tenants_weight_range", {"weight": "0"}),
    ("ck_tenants_weight_range", {"weight": "1001"}),
    ("ck_tenants_rate_range", {"rate_per_sec": "0"}),
    ("ck_tenants_burst_range", {"burst": "0"}),
    ("ck_tenants_max_running_range", {"max_running": "0"}),
    ("ck_tenants_max_queued_range", {"max_queued": "-1"}),
    ("ck_tenants_unlimited_without_rate", {"unlimited": "true", "rate_per_sec": "2"}),
    (None, {"paused": "'yes, please'"}),
]
ATTEMPT: Final = {
    "number": "1",
    "token": "'a token'",
    "worker": "'worker-1'",
    "queued_at": LATER,
    "scheduled_at": LATER,
    "ended_at": LATER,
    "outcome": "'lapsed'",
    "weight": "1",
    "cost": "1",
}


def named(cases: list[tuple[str | None, dict[str, str]]]) -> list[object]:
    return [
        pytest.param(name, row, id=f"{name}-{next(reversed(row.items()))[0]}-{place}")
        for place, (name, row) in enumerate(cases)
    ]


async def refuses(database: Database, *statements: str) -> str | None:
    with pytest.raises(Refused) as refused:
        await database.execute(*statements)
    return refused.value.name


@pytest.mark.parametrize(("name", "columns"), named(BAD_JOBS))
async def test_a_bad_job(shared: Database, name: str | None, columns: dict[str, str]) -> None:
    row = {"tenant": "'acme'", "test_suite": "'unit'", **columns}
    if name == "ck_jobs_times" and shared.kind == "postgres":
        row["run_at"] = "'infinity'"

    assert await refuses(shared, insert("jobs", row)) == name


@pytest.mark.parametrize(("name", "columns"), named(BAD_TENANTS))
async def test_a_bad_tenant(shared: Database, name: str | None, columns: dict[str, str]) -> None:
    assert await refuses(shared, insert("tenants", {"name": "'other'", **columns})) == name


async def test_no_rate_is_infinite(shared: Database) -> None:
    infinite = {"sqlite": "9e999", "postgres": "'Infinity'"}[shared.kind]

    row = {"name": "'other'", "rate_per_sec": infinite}
    assert await refuses(shared, insert("tenants", row)) == "ck_tenants_rate_range"


@pytest.mark.parametrize(("column", "value"), IDENTITY.items())
@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING])
async def test_who_and_what_a_job_is_never_changes(shared: Database, state: State, column: str, value: str) -> None:
    seq = await add_job(shared, state)

    assert await refuses(shared, update(seq, {column: value})) == TR_JOBS_IDENTITY


@pytest.mark.parametrize(("column", "value"), REQUEST.items())
async def test_what_was_asked_never_changes(shared: Database, column: str, value: str) -> None:
    seq = await add_job(shared, State.PENDING, payload="""'{"a": 1}'""", idempotency_key=f"'of {column}'")

    assert await refuses(shared, update(seq, {column: value})) == TR_JOBS_REQUEST
    assert await refuses(shared, update(seq, {"payload": NULL})) == TR_JOBS_REQUEST


@pytest.mark.parametrize("state", State)
async def test_a_priority_changes_while_the_job_waits(shared: Database, state: State) -> None:
    seq = await add_job(shared, state)
    change = update(seq, {"priority": "9"})

    if state in (State.PENDING, State.QUEUED):
        await shared.execute(change)
    else:
        assert await refuses(shared, change) == (TR_JOBS_FINAL if state.is_final else TR_JOBS_PRIORITY)


async def test_a_priority_does_not_change_on_the_way_to_a_worker(shared: Database) -> None:
    seq = await add_job(shared, State.QUEUED)

    assert await refuses(shared, update(seq, cells(State.SCHEDULED, priority="9"))) == TR_JOBS_PRIORITY


@pytest.mark.parametrize("column", ["error", "progress", "worker", "attempt"])
async def test_a_final_row_never_changes_but_can_be_deleted(shared: Database, column: str) -> None:
    seq = await add_job(shared, State.FAILED)

    assert await refuses(shared, update(seq, {column: column})) == TR_JOBS_FINAL  # not even to what it is
    await shared.execute(f"DELETE FROM jobs WHERE seq = {seq}")


async def test_a_conflict_is_no_way_to_jump_to_the_end(shared: Database) -> None:
    seq = await add_job(shared, State.QUEUED)
    row = {"seq": str(seq), "tenant": "'acme'", "test_suite": "'unit'"}
    end = ", ".join(f"{column} = {value}" for column, value in cells(State.COMPLETED).items())

    refusal = await refuses(shared, f"{insert('jobs', row)} ON CONFLICT (seq) DO UPDATE SET {end}")

    # On SQLite the insert is refused before there is a conflict to be resolved.
    assert refusal == (PK_JOBS if shared.kind == "sqlite" else TR_JOBS_LEGAL_MOVE)


@pytest.mark.parametrize(
    ("key", "name"), [("seq", PK_JOBS), ("id", UQ_JOBS_ID), ("idempotency_key", UQ_JOBS_IDEMPOTENCY_KEY)]
)
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"])
async def test_a_job_is_never_replaced(sqlite: Database, verb: str, key: str, name: str) -> None:
    seq = await add_job(sqlite, State.RUNNING, id=ID, idempotency_key="'once'")
    keys = {"seq": str(seq), "id": ID, "idempotency_key": "'once'"}
    row = {"tenant": "'acme'", "test_suite": "'stolen'", key: keys[key]}
    before = await sqlite.fetch("SELECT * FROM jobs")

    assert await refuses(sqlite, insert("jobs", row).replace("INSERT", verb, 1)) == name
    assert await sqlite.fetch("SELECT * FROM jobs") == before


@pytest.mark.parametrize("word", ["rowid", "oid", "_rowid_", "SEQ"])
async def test_an_update_does_not_run_another_job_over(sqlite: Database, word: str) -> None:
    victim = await add_job(sqlite, State.RUNNING)
    other = await add_job(sqlite, State.PENDING)

    overwrite = f"UPDATE OR REPLACE jobs SET {word} = {victim} WHERE seq = {other}"

    assert await refuses(sqlite, overwrite) == TR_JOBS_IDENTITY


async def test_the_same_with_recursive_triggers(sqlite: Database) -> None:
    seq = await add_job(sqlite, State.RUNNING)
    replace = f"INSERT OR REPLACE INTO jobs (seq, tenant, test_suite) VALUES ({seq}, 'acme', 'stolen')"

    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError, match=PK_JOBS):
            connection.execute(replace)


@pytest.mark.parametrize(
    "text",
    [
        "now",
        "",
        "2026-01-31 12:00:00.000000Z",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.000000+00:00",
        "2026-01-31T12:00:00.000Z",
        "2026-02-30T12:00:00.000000Z",
        "2026-13-01T12:00:00.000000Z",
        "2026-01-31T24:00:00.000000Z",
        "2026-01-31T12:60:00.000000Z",
        "2026-01-31t12:00:00.000000Z",
    ],
)
async def test_a_time_has_one_form_on_sqlite(sqlite: Database, text: str) -> None:
    for table, column in (("jobs", "run_at"), ("tenants", "created_at")):
        row = {"jobs": {"tenant": "'acme'", "test_suite": "'unit'"}, "tenants": {"name": "'other'"}}[table]
        assert await refuses(sqlite, insert(table, {**row, column: f"'{text}'"})) == f"ck_{table}_times"


async def test_the_last_day_of_february_is_a_day(sqlite: Database) -> None:
    await sqlite.execute(insert("tenants", {"name": "'leap'", "created_at": "'2024-02-29T23:59:59.999999Z'"}))

    bad = insert("tenants", {"name": "'no leap'", "created_at": "'2026-02-29T23:59:59.999999Z'"})
    assert await refuses(sqlite, bad) == "ck_tenants_times"


@pytest.mark.parametrize(
    ("name", "columns"),
    named(
        [
            ("ck_jobs_ids", {"id": f"'{'A' * 32}'"}),
            ("ck_jobs_ids", {"id": f"'{'a' * 31}'"}),
            ("ck_jobs_ids", {"retry_of": "'01234567-89ab-cdef-0123-456789abcdef'"}),
            ("ck_jobs_json", {"payload": "'{1: 2}'"}),
            ("ck_jobs_json", {"payload": "'NaN'"}),
        ]
    ),
)
async def test_ids_and_json_have_their_form_on_sqlite(sqlite: Database, name: str, columns: dict[str, str]) -> None:
    assert await refuses(sqlite, insert("jobs", {"tenant": "'acme'", "test_suite": "'unit'", **columns})) == name


async def test_a_flag_is_nothing_but_0_or_1_on_sqlite(sqlite: Database) -> None:
    assert await refuses(sqlite, "UPDATE tenants SET paused = 2") == "ck_tenants_flags"


async def test_history_is_written_once(shared: Database) -> None:
    seq = await add_job(shared, State.RUNNING)
    job_id = f"(SELECT id FROM jobs WHERE seq = {seq})"
    await shared.execute(insert("job_attempts", {"job_id": job_id, **ATTEMPT}))

    again = insert("job_attempts", {"job_id": job_id, **ATTEMPT, "token": "'another'"})
    same_token = insert("job_attempts", {"job_id": job_id, **ATTEMPT, "number": "2"})

    assert await refuses(shared, "UPDATE job_attempts SET outcome = 'completed'") == TR_JOB_ATTEMPTS_FIXED
    assert await refuses(shared, again) == PK_JOB_ATTEMPTS
    assert await refuses(shared, same_token) == UQ_JOB_ATTEMPTS_TOKEN
    if shared.kind == "sqlite":
        assert await refuses(shared, again.replace("INSERT", "INSERT OR REPLACE")) == PK_JOB_ATTEMPTS
        assert await refuses(shared, same_token.replace("INSERT", "REPLACE")) == UQ_JOB_ATTEMPTS_TOKEN
    await shared.execute(f"DELETE FROM jobs WHERE seq = {seq}")
    assert await shared.fetch("SELECT * FROM job_attempts") == []


async def test_an_attempt_is_one_of_a_job(shared: Database) -> None:
    assert await refuses(shared, insert("job_attempts", {"job_id": ID, **ATTEMPT})) == "fk_job_attempts_job_id_jobs"


@pytest.mark.parametrize(("table", "name"), [("tenants", FK_JOBS_TENANT), ("queues", FK_JOBS_QUEUE)])
async def test_a_tenant_or_queue_with_jobs_stays(shared: Database, table: str, name: str) -> None:
    await add_job(shared, State.PENDING)
    whose = {"tenants": "'acme'", "queues": "'default'"}[table]

    assert await refuses(shared, f"DELETE FROM {table} WHERE name = {whose}") == name
    assert await refuses(shared, f"UPDATE {table} SET name = 'renamed' WHERE name = {whose}") == name


async def test_a_lane_is_one_of_a_queue_and_a_tenant(shared: Database) -> None:
    await shared.execute("INSERT INTO tenants (name) VALUES ('laned')", "INSERT INTO queues (name) VALUES ('laned')")
    await shared.execute("INSERT INTO lanes (queue, tenant) VALUES ('laned', 'laned')")

    for column, table in (("queue", "queues"), ("tenant", "tenants")):
        lane = {"queue": "'default'", "tenant": "'acme'", column: "'unknown'"}
        assert await refuses(shared, insert("lanes", lane)) == f"fk_lanes_{column}_{table}"
        assert await refuses(shared, f"DELETE FROM {table} WHERE name = 'laned'") == f"fk_lanes_{column}_{table}"


async def test_a_person_types_a_job(database: Database) -> None:
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')")
    await database.execute("INSERT INTO jobs (tenant, test_suite) VALUES ('acme', 'unit')")
    await database.execute(insert("jobs", {"tenant": "'acme'", "test_suite": "'unit'", "run_at": LATER}))

    columns = "seq, state, queue, priority, cost, attempt, max_attempts, delay_sec, queued_at"
    assert await database.fetch(f"SELECT {columns} FROM jobs ORDER BY seq") == [
        (1, "pending", "default", 0, 1, 0, 3, None, None),
        (2, "pending", "default", 0, 1, 0, 3, None, None),
    ]
    assert await database.value("SELECT count(DISTINCT id) FROM jobs") == 2
    assert await database.value("SELECT count(*) FROM jobs WHERE submitted_at = due_at") == 2


async def test_a_seq_is_never_given_twice(database: Database) -> None:
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')")
    first, newest = [await add_job(database, State.PENDING) for _ in range(2)]

    await database.execute(f"DELETE FROM jobs WHERE seq = {newest}")

    assert await add_job(database, State.PENDING) == first + 2
