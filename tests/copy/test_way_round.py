"""The one way round the trigger that refuses jobs in the middle of their life: only plain SQL is typed here."""

from __future__ import annotations

import pytest

from app.scheduling.job import INITIAL_STATES, State
from app.store.schema import TR_COPIES_FIXED, TR_COPIES_INTO_EMPTY, TR_JOBS_FIRST_STATE
from tests.copy.conftest import Emptied
from tests.databases import Database, Databases, Refused
from tests.store.rows import NULL, add_job, add_tenant, cells, insert

NOW = "'2026-01-31T12:00:00.000000Z'"
MARK = {"direction": "'in'", "id": f"'{'0' * 32}'", "other": "'elsewhere'", "begun_at": NOW}
BEGIN = insert("copies", MARK)
FINISH = f"UPDATE copies SET finished_at = {NOW}"


@pytest.fixture
def database(databases: Databases, emptied: Emptied) -> Database:
    return emptied.of(databases, "target")


def a_job(state: State, **more: str) -> str:
    return insert("jobs", {"tenant": "'acme'", "test_suite": "'unit'", **cells(state), **more})


async def refusal_of(database: Database, *statements: str) -> str | None:
    try:
        await database.execute(*statements)
    except Refused as refused:
        return refused.name or str(refused)
    return None


async def test_it_is_open_while_a_copy_is_under_way(database: Database) -> None:
    await database.execute(BEGIN)
    await add_tenant(database)
    for state in State:
        assert await refusal_of(database, a_job(state)) is None
    await database.execute(FINISH)
    for state in State:
        assert await refusal_of(database, a_job(state)) == (None if state in INITIAL_STATES else TR_JOBS_FIRST_STATE)


async def test_what_comes_by_it_is_held_to_every_check_and_key(database: Database) -> None:
    await database.execute(BEGIN)
    await add_tenant(database)
    assert await refusal_of(database, a_job(State.RUNNING, token=NULL)) == "ck_jobs_lease_by_state"
    assert await refusal_of(database, a_job(State.RUNNING, queue="'nowhere'")) == "fk_jobs_queue_queues"


async def test_it_does_not_open_where_jobs_are(database: Database) -> None:
    await add_tenant(database)
    await add_job(database, State.PENDING)
    assert await refusal_of(database, BEGIN) == TR_COPIES_INTO_EMPTY
    out = insert("copies", {**MARK, "direction": "'out'"})
    await database.execute(out)
    assert await refusal_of(database, "UPDATE copies SET direction = 'in'") == TR_COPIES_FIXED


async def test_it_does_not_open_again(database: Database) -> None:
    await database.execute(BEGIN, FINISH)
    assert await refusal_of(database, "UPDATE copies SET finished_at = NULL") == TR_COPIES_FIXED
    await add_tenant(database)
    await add_job(database, State.PENDING)
    replaced = "INSERT OR REPLACE INTO copies" + BEGIN.removeprefix("INSERT INTO copies")
    again = (
        replaced if database.kind == "sqlite" else f"{BEGIN} ON CONFLICT (direction) DO UPDATE SET finished_at = NULL"
    )
    assert await refusal_of(database, again) == TR_COPIES_INTO_EMPTY
    await database.execute("DELETE FROM copies")
    assert await refusal_of(database, BEGIN) == TR_COPIES_INTO_EMPTY


async def test_a_table_of_the_sessions_own_does_not_open_it(database: Database) -> None:
    await add_tenant(database)
    elsewhere = "CREATE TEMPORARY TABLE copies AS SELECT 'in' AS direction, NULL AS finished_at"
    assert await refusal_of(database, elsewhere, a_job(State.RUNNING)) == TR_JOBS_FIRST_STATE
