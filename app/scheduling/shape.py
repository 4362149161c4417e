"""What a job's row holds in each state, as data: the table of the design's section 2 and nothing else.
The CHECK constraints in `store` say the same, and tests walk every cell of it against both databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.scheduling.job import State


class Cell(StrEnum):
    """Whether a column is set in a state, null, or either."""

    SET = "+"
    NULL = "-"
    EITHER = "?"


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns that are set and cleared together. `name` is what the database's refusal says."""

    name: str
    columns: tuple[str, ...]
    cells: Mapping[State, Cell]


def _shape(name: str, columns: str, cells: str) -> Shape:
    return Shape(name, tuple(columns.split()), dict(zip(State, map(Cell, cells.split()), strict=True)))


# The states in the order of `State`:         pending, queued, scheduled, running, completed, failed, cancelled
SHAPES: Final = (
    _shape("run_at_by_state", "run_at", "             +       +       +       +       +       +       +"),
    _shape("queued_by_state", "queued_at effective_priority", "- +       +       +       +       ?       ?"),
    _shape("scheduled_at_by_state", "scheduled_at", " -       -       +       +       +       ?       ?"),
    _shape("lease_by_state", "token lease_expires_at lease_sec", "- -   +       +       -       -       -"),
    _shape("charge_by_state", "charge dispatch_weight", "- -      +       +       ?       ?       ?"),
    _shape("worker_by_state", "worker", "             -       -       +       +       +       ?       ?"),
    _shape("started_at_by_state", "started_at", "     -       -       -       +       +       ?       ?"),
    _shape("completed_at_by_state", "completed_at", " -       -       -       -       +       +       +"),
    _shape("result_by_state", "result", "             -       -       -       -       ?       -       -"),
    _shape("error_by_state", "error", "               ?       ?       ?       ?       -       +       ?"),
)
"""Every column whose presence depends on the state, once. Columns that are missing here do not depend on it."""
