"""Numbers of new jobs in store: none is given twice, whatever became of the transaction that has drawn it."""

from __future__ import annotations

from itertools import chain

from sqlalchemy import insert

from app.scheduling.job import State
from app.store.engine import Engines
from app.store.numbers import FEWEST_DRAWN, Numbers
from app.store.schema import jobs
from tests.databases import Database
from tests.store.rows import add_job, add_tenant


async def _take(numbers: Numbers, engines: Engines, count: int, *, undone: bool = False) -> list[int]:
    """As the writer does, with rows under these numbers."""
    async with engines.writer.connect() as connection:
        await numbers.begin(lambda: connection, count)
        taken = [numbers.take() for _ in range(count)]
        rows = [{"seq": seq, "tenant": "acme", "test_suite": "unit"} for seq in taken]
        await connection.execute(insert(jobs), rows)
        await numbers.restock(lambda: connection)
        if undone:
            numbers.drop()
            await connection.rollback()
        else:
            await connection.commit()
    return taken


async def test_numbers_go_on_from_transaction_to_transaction(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    numbers = Numbers()

    taken = [await _take(numbers, engines, count) for count in (1, 2, 3, FEWEST_DRAWN, 1)]

    assert list(chain(*taken)) == list(range(1, FEWEST_DRAWN + 8))


async def test_an_undone_transaction_leaves_no_number_to_be_given_twice(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    numbers = Numbers()

    first = await _take(numbers, engines, 3)
    undone = await _take(numbers, engines, FEWEST_DRAWN, undone=True)  # which has drawn some of them itself
    later = [await _take(numbers, engines, FEWEST_DRAWN) for _ in range(3)]

    kept = list(chain(first, *later))
    assert kept == sorted(set(kept))
    assert undone[0] == first[-1] + 1


async def test_a_job_typed_by_hand_takes_none_of_those_in_store(engines: Engines, database: Database) -> None:
    await add_tenant(database)
    numbers = Numbers()

    first = await _take(numbers, engines, 1)
    by_hand = await add_job(database, State.PENDING)
    second = await _take(numbers, engines, 1)

    assert (first, second) == ([1], [2])
    assert by_hand == FEWEST_DRAWN + 1
