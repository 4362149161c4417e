"""The table of legal moves, the model and the triggers of both engines give the same answer to every pair."""

from __future__ import annotations

from itertools import product

import pytest

from app.errors import IllegalMove
from app.scheduling.job import INITIAL_STATES, Move, State
from app.store.schema import TR_JOBS_FINAL, TR_JOBS_FIRST_STATE, TR_JOBS_LEGAL_MOVE
from tests.databases import Database, Refused
from tests.store.rows import add_job, cells, insert, update

PAIRS = [pytest.param(*pair, id="-".join(pair)) for pair in product(State, State)]


def the_model_allows(old: State, new: State) -> bool:
    try:
        Move(old, new)
    except IllegalMove:
        return False
    return True


async def refusal_of(database: Database, sql: str) -> str | None:
    try:
        await database.execute(sql)
    except Refused as refused:
        return refused.name or str(refused)
    return None


@pytest.mark.parametrize(("old", "new"), PAIRS)
async def test_a_move_is_legal_in_the_database_where_it_is_legal_in_the_model(
    shared: Database, old: State, new: State
) -> None:
    seq = await add_job(shared, old)

    refusal = await refusal_of(shared, update(seq, cells(new)))

    if old.is_final:
        assert refusal == TR_JOBS_FINAL
    elif old is new:  # not a move: a row that is not final may change within its state
        assert refusal is None
    else:
        assert refusal == (None if the_model_allows(old, new) else TR_JOBS_LEGAL_MOVE)
    found = await shared.value(f"SELECT state FROM jobs WHERE seq = {seq}")
    assert found == (old if refusal else new)


@pytest.mark.parametrize("state", State)
async def test_a_job_begins_pending_or_queued(shared: Database, state: State) -> None:
    row = {"tenant": "'acme'", "test_suite": "'unit'", **cells(state)}

    refusal = await refusal_of(shared, insert("jobs", row))

    assert refusal == (None if state in INITIAL_STATES else TR_JOBS_FIRST_STATE)


async def test_one_illegal_move_undoes_a_statement_on_many_rows(database: Database) -> None:
    await database.execute("INSERT INTO tenants (name) VALUES ('acme')")
    await add_job(database, State.RUNNING)
    await add_job(database, State.QUEUED)

    with pytest.raises(Refused) as refused:  # legal for the first row, not for the second
        await database.execute(update("seq", cells(State.PENDING)))

    assert refused.value.name == TR_JOBS_LEGAL_MOVE
    assert await database.fetch("SELECT state FROM jobs ORDER BY seq") == [("running",), ("queued",)]
