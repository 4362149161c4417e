"""What `make torture` shows at its end: each fault, how often it came, what clients were told meanwhile, and what was
lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, Final

import pytest

from tests.effort import EFFORT
from tests.history.record import History, Outcome
from tests.history.tables import Tables

_PROPERTY: Final = "attack"


@dataclass(frozen=True)
class Row:
    """One attack on one kind of database. What was `lost` is every promise that was not kept."""

    fault: str
    database: str
    times: int
    ok: int
    failed: int
    unknown: int
    jobs: int
    attempts: int
    lost: int

    @classmethod
    def of(cls, fault: str, database: str, history: History, tables: Tables, lost: Sequence[str]) -> Row:
        """The row of a history that was checked."""
        told = Counter(call.outcome for call in history.calls)
        attempts = sum(len(ended) for ended in tables.written.attempts.values())
        calls = (told[Outcome.OK], told[Outcome.FAILED], told[Outcome.UNKNOWN])
        return cls(fault, database, len(history.faults), *calls, len(tables.jobs), attempts, len(lost))


Tell = Callable[[Row], None]


def teller(record_property: Callable[[str, object], None]) -> Tell:
    """Hands rows to the end of the run, from whichever process the test runs in."""
    return lambda row: record_property(_PROPERTY, asdict(row))


def show(reporter: pytest.TerminalReporter) -> None:
    """Print the rows of all tests that have any."""
    rows = sorted(_rows(reporter.stats.values()), key=lambda row: (row.fault, row.database))
    if not rows or EFFORT == 1:
        return
    lines = [tuple(field.name for field in fields(Row)), *(tuple(map(str, astuple(row))) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    reporter.section("attacks")
    for line in lines:
        texts = [cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        reporter.write_line("  ".join((*texts, *numbers)))


def _rows(reports: Iterable[Sequence[Any]]) -> list[Row]:
    told = (
        value
        for some in reports
        for report in some
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    )
    return [Row(**value) for value in told]
