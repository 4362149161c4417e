"""docs/reporting.md, read: its questions, their SQL and their answers; and the columns that it promises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

PAGE: Final = Path(__file__).parents[2] / "docs" / "reporting.md"
_SECTION: Final = re.compile(r"^### (.*?)\n(.*?)(?=^##)", re.DOTALL | re.MULTILINE)
_ANSWERED: Final = re.compile(r"^```sql\n(.*?)^```\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ROW: Final = re.compile(r"^\| (`.*?) \|", re.MULTILINE)


class Question(NamedTuple):
    """What a team lead asks, how, and what the sample answers."""

    title: str
    sql: str
    answer: str


def questions() -> Iterator[Question]:
    """Those of the page, in its order."""
    for title, body in _SECTION.findall(PAGE.read_text()):
        for sql, answer in _ANSWERED.findall(body):
            yield Question(title, sql, answer)


def promised_columns() -> Mapping[str, Sequence[str]]:
    """By view, those that the page says something of."""
    views = {title: body for title, body in _SECTION.findall(PAGE.read_text()) if title.startswith("report_")}
    named = {}
    for view, body in views.items():
        places = _ROW.findall(body) or [body]  # a view without a table says it in its only paragraph
        named[view] = [column for place in places for column in re.findall(r"`(\w+)`", place)]
    return named


def shown(value: Any) -> str:
    """A value as the page shows it. Postgres has whole numbers that are decimals."""
    if value is None:
        return "-"
    is_whole = not isinstance(value, (float, Decimal)) or (isinstance(value, Decimal) and "." not in str(value))
    return str(value) if is_whole else f"{float(value):.3f}"
