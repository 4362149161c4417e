"""Many rows in one statement: they go to the database as one JSON text, which it takes apart. A statement is built once
for what it is called with, for building it costs more than running it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnClause,
    ColumnElement,
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
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.store.dialect import POSTGRES, SQLITE, tested_only
from app.store.types import Json, JsonText

ROWS_PER_STATEMENT: Final = 1000

_EACH: Final = "each"

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
    given = tuple(table.c[name] for name in columns)
    statement = insert_joined(connection.dialect.name, plain_insert(table, tuple(columns)), given)
    for each in parameters(connection.dialect, given, rows):
        await connection.execute(statement, each)


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
    plain = {name: value for name, value in (same or {}).items() if name not in expressions}
    statement = update_joined(
        connection.dialect.name, table, columns, len(keys), tuple(plain), tuple(expressions.items()), where
    )
    return await _execute_each(connection, _returning(statement, tuple(returning)), columns, given, shared(plain))


@lru_cache(maxsize=64)
def _select_each(
    dialect: str, table: Table, columns: tuple[Column[Any], ...], wanted: tuple[ColumnElement[Any], ...]
) -> Executable:
    given = _GIVEN[dialect](columns, _EACH)
    return select(*(wanted or (table,))).where(*(column == given.c[column.name] for column in columns))


@lru_cache(maxsize=64)
def plain_insert(table: TableClause, names: tuple[str, ...]) -> Callable[[FromClause], Insert]:
    """For `insert_joined`: each row that is given is a new one."""

    def build(given: FromClause) -> Insert:
        return insert(table).from_select(names, select(*(given.c[name] for name in names)), include_defaults=False)

    return build


@lru_cache(maxsize=64)
def insert_joined(
    dialect: str, build: Callable[[FromClause], Insert], columns: tuple[ColumnClause[Any], ...], named: str = _EACH
) -> Insert:
    """The INSERT that `build`, a constant of the caller, makes of a table that has these columns and the rows that
    `parameter_of` makes the parameter `named`."""
    return build(_GIVEN[dialect](columns, named))


@lru_cache(maxsize=64)
def update_joined(
    dialect: str,
    table: Table,
    columns: tuple[Column[Any], ...],
    key_count: int,
    same: tuple[str, ...],
    expressions: tuple[tuple[str, ColumnElement[Any]], ...] = (),
    where: ColumnElement[bool] | None = None,
    named: str = _EACH,
) -> Update:
    """The UPDATE of the rows that have the first of `columns` in common with those of the parameter `named`; it sets
    the other columns to theirs. The parameters of `same` are called as `shared` does."""
    given = _GIVEN[dialect](columns, named)
    own = {column.name: given.c[column.name] for column in columns[key_count:]}
    shared_values = {name: bindparam(f"{named}_{name}", type_=table.c[name].type) for name in same}
    statement = (
        update(table)
        .values({**own, **shared_values, **dict(expressions)})
        .where(*(column == given.c[column.name] for column in columns[:key_count]))
    )
    # It is the keys that find a row.
    return statement if where is None else statement.where(tested_only(where))


@lru_cache(maxsize=64)
def _returning(statement: Update, wanted: tuple[ColumnElement[Any], ...]) -> Executable:
    return statement.returning(*wanted)


def shared(values: Mapping[str, Any], named: str = _EACH) -> dict[str, Any]:
    """The parameters of what all rows of an `update_joined` are set to."""
    return {f"{named}_{name}": value for name, value in values.items()}


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
    for given in parameters(connection.dialect, columns, rows):
        found.extend((await connection.execute(statement, {**given, **(same or {})})).all())
    return found


def parameters(
    dialect: Dialect, columns: Sequence[ColumnClause[Any]], rows: Sequence[Sequence[Any]]
) -> Iterator[dict[str, str]]:
    """What a statement is run with for these rows; several times, if there are more than it takes at once."""
    for first in range(0, len(rows), ROWS_PER_STATEMENT):
        yield {_EACH: parameter_of(dialect, columns, rows[first : first + ROWS_PER_STATEMENT])}


def parameter_of(dialect: Dialect, columns: Sequence[ColumnClause[Any]], rows: Sequence[Sequence[Any]]) -> str:
    """These rows as a statement takes them. Each has the cells of `columns`, in that order."""
    cells = zip(*rows, strict=True)
    known: _Known = defaultdict(dict)
    stored = [_stored(column, values, dialect, known) for column, values in zip(columns, cells, strict=True)]
    return _TEXTS[dialect.name](columns, stored)


_Known: TypeAlias = defaultdict[Any, dict[Any, Any]]
"""By what keeps it, a value as it is kept."""


def _stored(column: ColumnClause[Any], values: Sequence[Any], dialect: Dialect, known: _Known) -> list[Any]:
    """The values as the column keeps them. Most of a column's are alike, and so are the times of a new job, so each is
    looked at once."""
    process = _processor(column.type, dialect)
    if process is None:
        return list(values)
    if not getattr(column.type, "are_equals_alike", False):
        return [process(value) for value in values]
    stored = known[_keeper(column.type)]
    for value in {*values} - stored.keys():
        stored[value] = process(value)
    return [stored[value] for value in values]


@lru_cache(maxsize=256)
def _keeper(kind: TypeEngine[Any]) -> Any:
    """The same for types that keep all values alike: those of a class that takes no parameters."""
    return type(kind) if type(kind).__init__ is TypeDecorator.__init__ else kind


@lru_cache(maxsize=64)
def _processor(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _given_on_postgres(columns: Sequence[ColumnClause[Any]], named: str) -> FromClause:
    # One JSON text, as on SQLite: to write an array for each column costs the driver ten times as much. JSON stands in
    # it as text, since the null of JSON would become that of SQL.
    are_text = {each.name: isinstance(each.type, Json | JsonText) for each in columns}
    typed = (column(each.name, Text() if are_text[each.name] else each.type) for each in columns)
    rows = func.json_to_recordset(cast(bindparam(named, type_=Text()), JSON()))
    told = rows.table_valued(*typed, name="told").render_derived(with_types=True)
    cells = (cast(each, JSONB()).label(each.name) if are_text[each.name] else each for each in told.c)
    # The planner takes any JSON for a hundred rows, and reads a small table whole rather than look for so many; of a
    # limit that it cannot know it expects a tenth.
    return select(*cells).limit(select(literal(ROWS_PER_STATEMENT)).scalar_subquery()).subquery("given")


def _text_on_postgres(columns: Sequence[ColumnClause[Any]], stored: Sequence[Sequence[Any]]) -> str:
    row = _row_of(tuple(each.name for each in columns))
    return msgspec.json.encode([row(*values) for values in zip(*stored, strict=True)]).decode()


@lru_cache(maxsize=64)
def _row_of(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Row", map(str, names), gc=False)


def _given_on_sqlite(columns: Sequence[ColumnClause[Any]], named: str) -> FromClause:
    # As many bound values as cells would be another statement for every count.
    each = func.json_each(bindparam(named)).table_valued("value")
    cells = [func.json_extract(each.c.value, f"$[{place}]").label(column.name) for place, column in enumerate(columns)]
    return select(*cells).subquery("given")


def _text_on_sqlite(_columns: Sequence[ColumnClause[Any]], stored: Sequence[Sequence[Any]]) -> str:
    # Each value is text or a number, so JSON carries it unchanged.
    return msgspec.json.encode(list(zip(*stored, strict=True))).decode()


_GIVEN: Final = {SQLITE: _given_on_sqlite, POSTGRES: _given_on_postgres}
_TEXTS: Final = {SQLITE: _text_on_sqlite, POSTGRES: _text_on_postgres}
