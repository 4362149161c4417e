"""Jobs as plain SQL, to be typed by hand on either engine: a row that holds what its state wants, brought into
that state the way the triggers allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.scheduling.job import State
from app.scheduling.shape import SHAPES, Cell
from tests.databases import Database

NULL: Final = "NULL"
WHEN_SET: Final[Mapping[str, str]] = {
    "run_at": "'2026-01-31T12:00:00.000000Z'",
    "queued_at": "'2026-01-31T12:00:01.000000Z'",
    "effective_priority": "3",
    "scheduled_at": "'2026-01-31T12:00:02.000000Z'",
    "token": "'a token'",
    "lease_expires_at": "'2026-01-31T12:00:32.000000Z'",
    "lease_sec": "30",
    "charge": "1000000",
    "dispatch_weight": "1",
    "worker": "'worker-1'",
    "started_at": "'2026-01-31T12:00:03.000000Z'",
    "completed_at": "'2026-01-31T12:00:04.000000Z'",
    "result": """'{"passed": 12}'""",
    "error": "'out of memory'",
}
COLUMNS: Final = tuple(column for shape in SHAPES for column in shape.columns)

# How a row gets to where it can make its last step into a state; the first two states are inserted.
_WAY_TO: Final[Mapping[State, tuple[State, ...]]] = {
    State.PENDING: (),
    State.QUEUED: (),
    State.SCHEDULED: (State.QUEUED,),
    State.RUNNING: (State.QUEUED, State.SCHEDULED),
    State.COMPLETED: (State.QUEUED, State.SCHEDULED, State.RUNNING),
    State.FAILED: (State.QUEUED, State.SCHEDULED, State.RUNNING),
    State.CANCELLED: (State.QUEUED, State.SCHEDULED, State.RUNNING),
}


def cells(state: State, **changed: str) -> dict[str, str]:
    """The state and each column that depends on it, as SQL; what may be either is null unless changed."""
    wanted = {column: shape.cells[state] for shape in SHAPES for column in shape.columns}
    values = {column: WHEN_SET[column] if cell is Cell.SET else NULL for column, cell in wanted.items()}
    return {"state": f"'{state}'", **values, **changed}


def insert(table: str, row: Mapping[str, str]) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})"


def update(seq: int | str, row: Mapping[str, str]) -> str:
    return f"UPDATE jobs SET {', '.join(f'{column} = {value}' for column, value in row.items())} WHERE seq = {seq}"


async def add_tenant(database: Database, name: str = "acme") -> None:
    await database.execute(f"INSERT INTO tenants (name) VALUES ('{name}')")


async def add_job(database: Database, state: State, **columns: str) -> int:
    """A job of the tenant acme in `state`; its seq. `columns` are SQL for more of its first row."""
    last = "SELECT max(seq) FROM jobs"
    [(seq,)] = await database.fetch(*steps_of_job(state, **columns), last)
    return int(seq)


def steps_of_job(state: State, **columns: str) -> list[str]:
    """The statements of `add_job`, for one transaction with others."""
    return _steps(state, cells(state), columns)


async def step_into(database: Database, state: State, row: Mapping[str, str]) -> None:
    """Tries to bring a new job into `state` with its last step setting `row`."""
    await database.execute(*_steps(state, row))


def _steps(state: State, row: Mapping[str, str], columns: Mapping[str, str] | None = None) -> list[str]:
    rows = [*(cells(step) for step in _WAY_TO[state]), row]
    first = {"tenant": "'acme'", "test_suite": "'unit'", **rows[0], **(columns or {})}
    return [insert("jobs", first), *(update("(SELECT max(seq) FROM jobs)", step) for step in rows[1:])]
