"""Every cell of the shape table, on both engines: set where it must be set, null where it must be null."""

from __future__ import annotations

import pytest

from app.scheduling.job import State
from app.scheduling.shape import SHAPES, Cell, Shape
from app.store.schema import jobs
from tests.databases import Database, Refused
from tests.store.rows import NULL, WHEN_SET, cells, step_into

SHAPE_OF_COLUMN = [pytest.param(shape, column, id=column) for shape in SHAPES for column in shape.columns]


@pytest.mark.parametrize(("shape", "column"), SHAPE_OF_COLUMN)
@pytest.mark.parametrize("state", State)
async def test_cell(shared: Database, state: State, shape: Shape, column: str) -> None:
    for forbidding, value in ((Cell.NULL, WHEN_SET[column]), (Cell.SET, NULL)):
        row = cells(state, **{column: value})
        if shape.cells[state] is not forbidding:
            await step_into(shared, state, row)
            continue
        with pytest.raises(Refused) as refused:
            await step_into(shared, state, row)
        # No engine names a NOT NULL, which is what keeps `run_at` set.
        assert refused.value.name == (f"ck_jobs_{shape.name}" if column != "run_at" else None)


def test_the_table_has_each_column_once_and_says_something_of_each_state() -> None:
    columns = [column for shape in SHAPES for column in shape.columns]

    assert len(columns) == len(set(columns))
    assert set(columns) < set(jobs.c.keys())
    assert all(shape.cells.keys() == set(State) for shape in SHAPES)
