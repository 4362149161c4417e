"""What a transaction still has to write when it ends, as rows. Nobody looks at them before, so all may go to the
database with what ends it. Each row that is named must be changed, or none is: somebody else was there first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from sqlalchemy import (
    Column,
    ColumnClause,
    ColumnElement,
    Dialect,
    Executable,
    FromClause,
    Insert,
    Table,
    Update,
    bindparam,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import many
from app.store.dialect import POSTGRES, upsert_on

Given: TypeAlias = Mapping[str, Any]
"""The parameters of a statement."""


class Redo(Exception):
    """Raised where the database has met rows other than memory expected: roll back the group, then once more.

    `repair` is called on the rolled-back memory before the group is tried again.
    """

    def __init__(self, repair: Callable[[], None] | None = None) -> None:
        super().__init__("the group is tried once more")
        self.repair = repair


class Part(Protocol):
    """Rows to write."""

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        """A statement that does not change as many has met others than were expected."""

    def statements(self, dialect: Dialect) -> Iterator[tuple[Executable, Given]]:
        """What writes them."""

    def beside(self, dialect: Dialect, named: str) -> tuple[Insert | Update, Given] | None:
        """A constant statement that Postgres may take as a part of another one, and its parameters, whose names begin
        with `named`. None if there are too many rows."""


class Told:
    """A part, ready to be written by itself: nothing is left to do for it but to wait for the database."""

    def __init__(self, part: Part, connection: AsyncConnection) -> None:
        self._rows = len(part.rows)
        self._statements = list(part.statements(connection.dialect))

    async def write(self, connection: AsyncConnection) -> None:
        """Raises `Redo` unless all of its rows were as expected."""
        changed = 0
        for statement, given in self._statements:
            changed += (await connection.execute(statement, given)).rowcount
        if changed != self._rows:
            raise Redo


async def write(connection: AsyncConnection, part: Part) -> None:
    """Write one part by itself. Raises `Redo`."""
    await Told(part, connection).write(connection)


@dataclass(frozen=True, slots=True)
class Inserts:
    """The rows that `build`, a constant, inserts for `rows`, which have the cells of `columns`."""

    build: Callable[[FromClause], Insert]
    columns: tuple[ColumnClause[Any], ...]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def into(cls, table: Table, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> Inserts:
        """New rows of `table`."""
        return cls(many.plain_insert(table, names), tuple(table.c[name] for name in names), rows)

    def statements(self, dialect: Dialect) -> Iterator[tuple[Executable, Given]]:
        """See `Part`."""
        statement = many.insert_joined(dialect.name, self.build, self.columns)
        return ((statement, given) for given in many.parameters(dialect, self.columns, self.rows))

    def beside(self, dialect: Dialect, named: str) -> tuple[Insert, Given] | None:
        """See `Part`."""
        if len(self.rows) > many.ROWS_PER_STATEMENT:
            return None
        statement = many.insert_joined(POSTGRES, self.build, self.columns, named)
        return statement, {named: many.parameter_of(dialect, self.columns, self.rows)}


@dataclass(frozen=True, slots=True)
class _Keyed:
    table: Table
    keys: tuple[str, ...]
    values: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    @property
    def _columns(self) -> tuple[Column[Any], ...]:
        return tuple(self.table.c[name] for name in self.keys + self.values)


@dataclass(frozen=True, slots=True)
class Updates(_Keyed):
    """Rows of `table` found by `keys`, for which `where`, a constant, holds. `values` are set to what is in `rows`,
    which have the cells of both in this order, and `same` to what all have in common."""

    same: Mapping[str, Any] = field(default_factory=dict)
    where: ColumnElement[bool] | None = None

    def statements(self, dialect: Dialect) -> Iterator[tuple[Executable, Given]]:
        """See `Part`."""
        statement, shared = self._statement(dialect.name, "each"), many.shared(self.same)
        return ((statement, {**shared, **given}) for given in many.parameters(dialect, self._columns, self.rows))

    def beside(self, dialect: Dialect, named: str) -> tuple[Update, Given] | None:
        """See `Part`."""
        if len(self.rows) > many.ROWS_PER_STATEMENT:
            return None
        given = many.parameter_of(dialect, self._columns, self.rows)
        return self._statement(POSTGRES, named), {named: given, **many.shared(self.same, named)}

    def _statement(self, dialect: str, named: str) -> Update:
        return many.update_joined(
            dialect, self.table, self._columns, len(self.keys), tuple(self.same), (), self.where, named
        )


@dataclass(frozen=True, slots=True)
class Upserts(_Keyed):
    """Rows of `table`, each once: where one with these `keys` is there its `values` are set, otherwise it is new. The
    cells of `rows` are in that order."""

    def statements(self, dialect: Dialect) -> Iterator[tuple[Executable, Given]]:
        """See `Part`."""
        statement = self._of_many(dialect.name, "each")
        return ((statement, given) for given in many.parameters(dialect, self._columns, self.rows))

    def beside(self, dialect: Dialect, named: str) -> tuple[Insert, Given] | None:
        """See `Part`."""
        if len(self.rows) > many.ROWS_PER_STATEMENT:
            return None
        if len(self.rows) > 1:
            given = many.parameter_of(dialect, self._columns, self.rows)
            return self._of_many(POSTGRES, named), {named: given}
        cells = {f"{named}_{column.name}": cell for column, cell in zip(self._columns, self.rows[0], strict=True)}
        return _upsert_one(self.table, self.keys, self.values, named), cells

    def _of_many(self, dialect: str, named: str) -> Insert:
        build = _upsert_each(dialect, self.table, self.keys, self.values)
        return many.insert_joined(dialect, build, self._columns, named)


@lru_cache(maxsize=64)
def _upsert_one(table: Table, keys: tuple[str, ...], values: tuple[str, ...], named: str) -> Insert:
    cells = {name: bindparam(f"{named}_{name}", type_=table.c[name].type) for name in keys + values}
    return upsert_on(POSTGRES, table, keys, values).values(cells)


@lru_cache(maxsize=64)
def _upsert_each(
    dialect: str, table: Table, keys: tuple[str, ...], values: tuple[str, ...]
) -> Callable[[FromClause], Insert]:
    names = keys + values

    def build(given: FromClause) -> Insert:
        # Without a condition SQLite takes the ON of ON CONFLICT for that of a join.
        rows = select(*(given.c[name] for name in names)).where(true())
        return upsert_on(dialect, table, keys, values).from_select(names, rows, include_defaults=False)

    return build
