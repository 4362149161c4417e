"""Many rows in one statement: they go to the database as one JSON text, which it takes apart; and on Postgres several
statements in one, where nobody looks between them. A statement is built once for what it is called with, for building
it costs more than running it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnClause,
    ColumnElement,
    CursorResult,
    Dialect,
    Executable,
    FromClause,
    Insert,
    Row,
    Table,
    TableClause,
    Text,
    Update,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from app.store.dialect import POSTGRES, SQLITE, tested_only, upsert, upsert_on
from app.store.types import Json, JsonText

ROWS_PER_STATEMENT: Final = 1000

Rows: TypeAlias = Sequence[Mapping[str, Any]]


async def select_each(
    connection: AsyncConnection,
    table: Table,
    rows: Rows,
    *,
    keys: Sequence[str],
    wanted: tuple[ColumnElement[Any], ...] = (),
) -> list[Row[*tuple[Any, ...]]]:
    """The rows of `table` whose `keys` are those of any of `rows`, whole or what is `wanted` of them, in no order.

    Two columns `IN` a list of pairs would be a scan of the whole table on SQLite.
    """
    columns = tuple(table.c[name] for name in keys)
    statement = _select_each(connection.dialect.name, table, columns, wanted)
    return await _execute_each(connection, statement, columns, _in_order(rows, keys))


async def insert_each(
    connection: AsyncConnection, table: TableClause, rows: Sequence[Sequence[Any]], columns: Sequence[str]
) -> None:
    """New rows of `table`, of which `columns` are given, in that order; the others are NULL or have what the database
    gives them.

    As one statement for 1,000 rows costs the half of a statement run a thousand times on SQLite, and a fifth on
    Postgres, which makes all checks of a table ready for each statement anew.
    """
    await insert_joined(connection, _plain_insert(table, tuple(columns)), [table.c[name] for name in columns], rows)


async def insert_joined(
    connection: AsyncConnection,
    build: Callable[[FromClause], Insert],
    columns: Sequence[ColumnClause[Any]],
    rows: Sequence[Sequence[Any]],
) -> int:
    """Runs the INSERT that `build`, a constant of the caller, makes of a table that has these columns and `rows`; how
    many rows were new. One statement for every 1,000 rows, built once."""
    given = tuple(columns)
    statement = _insert_joined(connection.dialect.name, build, given)
    return sum([executed.rowcount async for executed in _each_executed(connection, statement, given, rows)])


class Part(Protocol):
    """Rows that are written at the end of a transaction, which nobody looks at before."""

    def beside(self, dialect: Dialect) -> tuple[Insert, Mapping[str, Any]] | None:
        """A constant statement that Postgres may take as a part of another one, and its parameters, whose names no
        other part has. None if there are too many rows."""

    async def alone(self, connection: AsyncConnection) -> None:
        """Write them."""


@dataclass(frozen=True, slots=True)
class Inserts:
    """New rows of `table`, as of `insert_each`."""

    table: Table
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    def beside(self, dialect: Dialect) -> tuple[Insert, Mapping[str, Any]] | None:
        """See `Part`."""
        if len(self.rows) > ROWS_PER_STATEMENT:
            return None
        columns = tuple(self.table.c[name] for name in self.names)
        statement = _insert_joined(POSTGRES, _plain_insert(self.table, self.names), columns)
        return statement, _parameters_of(dialect, columns, self.rows)

    async def alone(self, connection: AsyncConnection) -> None:
        """See `Part`."""
        await insert_each(connection, self.table, self.rows, self.names)


@dataclass(frozen=True, slots=True)
class Upserts:
    """Rows of `table`, each once: where one with these `keys` is there its `values` are set, otherwise it is new. The
    cells of `rows` are in that order."""

    table: Table
    keys: tuple[str, ...]
    values: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    def beside(self, _dialect: Dialect) -> tuple[Insert, Mapping[str, Any]] | None:
        """See `Part`. Each number of rows is a statement of its own."""
        if len(self.rows) > _MOST_UPSERTS_BESIDE:
            return None
        cells = chain.from_iterable(self.rows)
        named = {_cell(self.table, place): cell for place, cell in enumerate(cells)}
        return _upsert_of(self.table, self.keys, self.values, len(self.rows)), named

    async def alone(self, connection: AsyncConnection) -> None:
        """See `Part`."""
        rows = [dict(zip(self.keys + self.values, row, strict=True)) for row in self.rows]
        await connection.execute(upsert(connection, self.table, keys=self.keys, update=self.values), rows)


_MOST_UPSERTS_BESIDE: Final = 4
"""More would be more kinds of statements than a connection keeps ready."""


@lru_cache(maxsize=64)
def _upsert_of(table: Table, keys: tuple[str, ...], values: tuple[str, ...], rows: int) -> Insert:
    columns, place = [table.c[name] for name in keys + values], count()
    given = (select(*(bindparam(_cell(table, next(place)), type_=each.type) for each in columns)) for _ in range(rows))
    return upsert_on(POSTGRES, table, keys, values).from_select(columns, union_all(*given), include_defaults=False)


def _cell(table: Table, place: int) -> str:
    return f"{table.name}_{place}"


async def execute_with(
    connection: AsyncConnection, parts: Sequence[Part], statement: Update, parameters: Mapping[str, Any]
) -> int:
    """Write `parts`, and run `statement`, a constant of the caller; how many rows that has changed. On Postgres all of
    it is one statement, unless there is much, and no part of it sees what another does."""
    besides = list[Insert]()
    for part in parts:
        found = part.beside(connection.dialect) if connection.dialect.name == POSTGRES else None
        if found is None:
            await part.alone(connection)
        else:
            besides.append(found[0])
            parameters = {**parameters, **found[1]}
    return (await connection.execute(_with(statement, tuple(besides)), parameters)).rowcount


@lru_cache(maxsize=64)
def _with(statement: Update, besides: tuple[Insert, ...]) -> Update:
    return statement.add_cte(*(each.cte(f"beside_{place}") for place, each in enumerate(besides)))


async def update_each(
    connection: AsyncConnection,
    table: Table,
    rows: Rows,
    *,
    keys: Sequence[str],
    values: Sequence[str],
    returning: Sequence[ColumnElement[Any]],
    same: Mapping[str, Any] | None = None,
    where: ColumnElement[bool] | None = None,
) -> list[Row[*tuple[Any, ...]]]:
    """Sets `values` of each row to its own, in the rows of `table` whose `keys` match and for which `where`
    holds. `same` are values or expressions that all rows share, `attempt = attempt + 1` for one.

    Every entry of `rows` holds all of `keys` and `values`; no two have the same key (`ValueError`). Answers
    what `returning` names of the rows that were changed, in no order. One statement for every 1,000 rows. It is
    built once for what it is called with, so expressions in `same`, `where` and `returning` are constants of the
    caller: building it costs more than running it.
    """
    given = _in_order(rows, (*keys, *values))
    if len({row[: len(keys)] for row in given}) != len(given):
        raise ValueError(f"two rows with the same {' and '.join(keys)}")
    columns = tuple(table.c[name] for name in (*keys, *values))
    expressions = {name: value for name, value in (same or {}).items() if isinstance(value, ColumnElement)}
    plain = {_same(name): value for name, value in (same or {}).items() if name not in expressions}
    statement = _update_each(
        connection.dialect.name,
        table,
        columns,
        len(keys),
        tuple(same or ()),
        tuple(expressions.items()),
        where,
        tuple(returning),
    )
    return await _execute_each(connection, statement, columns, given, plain)


@lru_cache(maxsize=64)
def _select_each(
    dialect: str, table: Table, columns: tuple[Column[Any], ...], wanted: tuple[ColumnElement[Any], ...]
) -> Executable:
    given = _GIVEN[dialect](columns)
    return select(*(wanted or (table,))).where(*(column == given.c[column.name] for column in columns))


@lru_cache(maxsize=64)
def _plain_insert(table: TableClause, names: tuple[str, ...]) -> Callable[[FromClause], Insert]:
    def build(given: FromClause) -> Insert:
        return insert(table).from_select(names, select(*(given.c[name] for name in names)), include_defaults=False)

    return build


@lru_cache(maxsize=64)
def _insert_joined(
    dialect: str, build: Callable[[FromClause], Insert], columns: tuple[ColumnClause[Any], ...]
) -> Insert:
    return build(_GIVEN[dialect](columns))


@lru_cache(maxsize=64)
def _update_each(
    dialect: str,
    table: Table,
    columns: tuple[Column[Any], ...],
    key_count: int,
    same: tuple[str, ...],
    expressions: tuple[tuple[str, ColumnElement[Any]], ...],
    where: ColumnElement[bool] | None,
    returning: tuple[ColumnElement[Any], ...],
) -> Executable:
    given = _GIVEN[dialect](columns)
    own = {column.name: given.c[column.name] for column in columns[key_count:]}
    shared = {name: bindparam(_same(name), type_=table.c[name].type) for name in same}
    statement = (
        update(table)
        .values({**own, **shared, **dict(expressions)})
        .where(*(column == given.c[column.name] for column in columns[:key_count]))
        .returning(*returning)
    )
    # It is the keys that find a row.
    return statement if where is None else statement.where(tested_only(where))


def _same(name: str) -> str:
    return f"same_{name}"


def _in_order(rows: Rows, names: Sequence[str]) -> list[tuple[Any, ...]]:
    pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
    return [pick(row) for row in rows]


async def _execute_each(
    connection: AsyncConnection,
    statement: Executable,
    columns: Sequence[Column[Any]],
    rows: Sequence[Sequence[Any]],
    same: Mapping[str, Any] | None = None,
) -> list[Row[*tuple[Any, ...]]]:
    found: list[Row[*tuple[Any, ...]]] = []
    async for executed in _each_executed(connection, statement, columns, rows, same):
        found.extend(executed.all())
    return found


async def _each_executed(
    connection: AsyncConnection,
    statement: Executable,
    columns: Sequence[ColumnClause[Any]],
    rows: Sequence[Sequence[Any]],
    same: Mapping[str, Any] | None = None,
) -> AsyncIterator[CursorResult[Any]]:
    for first in range(0, len(rows), ROWS_PER_STATEMENT):
        parameters = _parameters_of(connection.dialect, columns, rows[first : first + ROWS_PER_STATEMENT])
        yield await connection.execute(statement, {**parameters, **(same or {})})


def _parameters_of(
    dialect: Dialect, columns: Sequence[ColumnClause[Any]], rows: Sequence[Sequence[Any]]
) -> dict[str, str]:
    cells = zip(*rows, strict=True)
    stored = [_stored(column, values, dialect) for column, values in zip(columns, cells, strict=True)]
    return _PARAMETERS[dialect.name](columns, stored)


def _stored(column: ColumnClause[Any], values: Sequence[Any], dialect: Dialect) -> list[Any]:
    """The values as the column keeps them. Most of a column's are alike, so each is looked at once."""
    process = _processor(column.type, dialect)
    if process is None:
        return list(values)
    if not getattr(column.type, "are_equals_alike", False):
        return [process(value) for value in values]
    stored = {value: process(value) for value in set(values)}
    return [stored[value] for value in values]


@lru_cache(maxsize=64)
def _processor(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _given_on_postgres(columns: Sequence[ColumnClause[Any]]) -> FromClause:
    # One JSON text, as on SQLite: to write an array for each column costs the driver ten times as much. JSON stands in
    # it as text, since the null of JSON would become that of SQL.
    are_text = {each.name: isinstance(each.type, Json | JsonText) for each in columns}
    typed = (column(each.name, Text() if are_text[each.name] else each.type) for each in columns)
    rows = func.json_to_recordset(cast(bindparam("each", type_=Text()), JSON()))
    told = rows.table_valued(*typed, name="told").render_derived(with_types=True)
    cells = (cast(each, JSONB()).label(each.name) if are_text[each.name] else each for each in told.c)
    # The planner takes any JSON for a hundred rows, and reads a small table whole rather than look for so many; of a
    # limit that it cannot know it expects a tenth.
    return select(*cells).limit(select(literal(ROWS_PER_STATEMENT)).scalar_subquery()).subquery("given")


def _parameters_on_postgres(columns: Sequence[ColumnClause[Any]], stored: Sequence[Sequence[Any]]) -> dict[str, str]:
    row = _row_of(tuple(each.name for each in columns))
    return {"each": msgspec.json.encode([row(*values) for values in zip(*stored, strict=True)]).decode()}


@lru_cache(maxsize=64)
def _row_of(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Row", map(str, names), gc=False)


def _given_on_sqlite(columns: Sequence[ColumnClause[Any]]) -> FromClause:
    # As many bound values as cells would be another statement for every count.
    each = func.json_each(bindparam("each")).table_valued("value")
    cells = [func.json_extract(each.c.value, f"$[{place}]").label(column.name) for place, column in enumerate(columns)]
    return select(*cells).subquery("given")


def _parameters_on_sqlite(_columns: Sequence[ColumnClause[Any]], stored: Sequence[Sequence[Any]]) -> dict[str, str]:
    # Each value is text or a number, so JSON carries it unchanged.
    return {"each": msgspec.json.encode(list(zip(*stored, strict=True))).decode()}


_GIVEN: Final = {SQLITE: _given_on_sqlite, POSTGRES: _given_on_postgres}
_PARAMETERS: Final = {SQLITE: _parameters_on_sqlite, POSTGRES: _parameters_on_postgres}
