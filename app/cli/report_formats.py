"""How the rows of a report are written: for people, for spreadsheets, for programs, for data frames."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import click

from app.cli.json_lines import as_line
from app.cli.tables import Column, print_table
from app.clock import rfc3339

if TYPE_CHECKING:
    from app.store.reports import Kind, Report

Row: TypeAlias = Sequence[Any]
Portions: TypeAlias = AsyncIterator[Sequence[Row]]


class Format(ABC):
    """A way to write rows."""

    is_for_people = False
    is_binary = False

    @abstractmethod
    async def write(self, report: Report, portions: Portions, out: IO[bytes]) -> None:
        """Write all rows."""

    def require(self) -> None:  # noqa: B027  # most need nothing
        """Raises `ClickException` if something is missing without which it cannot write."""


class _Table(Format):
    """Seconds and shares are rounded; on a terminal what does not fit is left out, but never a key."""

    is_for_people = True

    async def write(self, report: Report, portions: Portions, out: IO[bytes]) -> None:  # noqa: ARG002  # rich's own
        rows = [row async for portion in portions for row in portion]
        print_table([_column(report, place) for place in range(len(report.columns))], rows)


def _column(report: Report, place: int) -> Column[Row]:
    name, kind = list(report.columns.items())[place]
    return Column[Row](
        name.upper(),
        lambda row: _for_people(row[place], kind),
        is_right=kind.name in ("WHOLE", "SECONDS", "SHARE"),
        is_whole=kind.name not in ("TEXT", "ID"),
        is_extra=name not in report.keys,
    )


def _for_people(value: Any, kind: Kind) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if kind.name in ("SECONDS", "SHARE") else str(_plain(value))


class _Csv(Format):
    """With a line of names. What has no value is empty."""

    async def write(self, report: Report, portions: Portions, out: IO[bytes]) -> None:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
        try:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(report.columns)
            async for portion in portions:
                writer.writerows([_plain(value) for value in row] for row in portion)
        finally:
            text.detach()


class _Json(Format):
    """One object a line."""

    async def write(self, report: Report, portions: Portions, out: IO[bytes]) -> None:
        async for portion in portions:
            for row in portion:
                line = as_line(dict(zip(report.columns, map(_plain, row), strict=True)))
                out.write(line.encode() + b"\n")


class _Parquet(Format):
    """Columns with types of their own, for data frames; also if there is no row."""

    is_binary = True

    def require(self) -> None:
        try:
            import pyarrow.parquet  # noqa: F401  # slow, and an extra
        except ImportError:
            raise click.ClickException(
                "Parquet needs pyarrow, which is not installed; pip install 'fairlane[parquet]' brings it"
            ) from None

    async def write(self, report: Report, portions: Portions, out: IO[bytes]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        types = {
            "ID": pa.string(),
            "TEXT": pa.string(),
            "WHOLE": pa.int64(),
            "SECONDS": pa.float64(),
            "SHARE": pa.float64(),
            "MOMENT": pa.timestamp("us", tz="UTC"),
        }
        schema = pa.schema([pa.field(name, types[kind.name]) for name, kind in report.columns.items()])
        with parquet.ParquetWriter(out, schema) as writer:
            async for portion in portions:
                columns = list(zip(*portion, strict=True))
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _plain(value: Any) -> Any:
    """A value as the API writes it."""
    return rfc3339(value) if isinstance(value, datetime) else value


FORMATS: Final[Mapping[str, Format]] = {"table": _Table(), "csv": _Csv(), "json": _Json(), "parquet": _Parquet()}
