"""The rows of a table as a copy reads, writes and compares them: in portions, by their keys, JSON as the text that it
is. A row that cannot be read or kept is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Row,
    Select,
    Table,
    TableClause,
    Text,
    cast,
    column,
    func,
    literal,
    select,
    table,
    true,
    tuple_,
)
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.clock import rfc3339
from app.errors import FairlaneError
from app.store import dialect, many
from app.store.sameness import Digest, row_text
from app.store.schema import HOURLY, api_keys, job_attempts, jobs, lanes, queues, rollups, tenants
from app.store.types import Json, JsonText, Moment

PORTION: Final = 500
"""Rows in one transaction. The largest job has some hundred kilobytes."""

COPIED: Final = (tenants, queues, lanes, jobs, job_attempts, api_keys, rollups, *HOURLY)
"""Each after those that it refers to."""

NOT_COPIED: Final = {
    "dispatcher": "who dispatches there is each database's own; the newest time given out is handed on",
    "replicas": "the servers on a database are its own, and none is there while it is copied",
    "copies": "what a database was copied from or into is its own past",
}
"""What stays behind, and why."""

_LONGEST_WORDS: Final = 300
"""SQLite's driver quotes the whole text that it cannot read."""

Reading: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""Gives a connection to read with."""
_Found: TypeAlias = Sequence[Row[*tuple[Any, ...]]]
_UNUSABLE: Final = (ValueError, TypeError, LookupError, OverflowError, StatementError)
"""What a row raises that was written by other means than ours."""


class NoCopy(FairlaneError):
    """The service cannot be copied, or not to its end; the sentence says why and what would help."""


class CopiedTable:
    """A table as it is copied, or those of its rows for which `where` holds. Rows come as tuples of all its columns."""

    def __init__(self, schema: Table, name: str | None = None, where: ColumnElement[bool] | None = None) -> None:
        self.name = name or str(schema.name)
        self.schema = schema
        self._where = true() if where is None else where
        self._keys: tuple[Column[Any], ...] = tuple(schema.primary_key)
        self._are_json = tuple(isinstance(c.type, Json) for c in schema.columns)
        self._wanted = tuple(cast(c, Text).label(c.name) if isinstance(c.type, Json) else c for c in schema.columns)
        self._given = _with_json_as_text(schema)
        self._key_places = [list(schema.columns).index(key) for key in self._keys]

    def key_of(self, row: Sequence[Any]) -> list[Any]:
        """The row's key, as JSON can say it."""
        return _to_json([row[place] for place in self._key_places])

    def called(self, key: Sequence[Any]) -> str:
        """A row's name for people."""
        names = [f"{column.name} = {value!r}" for column, value in zip(self._keys, key, strict=True)]
        return f"the row of {self.name} with {' and '.join(names)}"

    async def count(self, reading: Reading) -> int:
        """How many rows there are."""
        async with reading() as connection:
            counted = select(func.count()).select_from(self.schema).where(self._where)
            return int(await connection.scalar(counted) or 0)

    async def portions(self, reading: Reading, after: Sequence[Any] = ()) -> AsyncIterator[_Found]:
        """All rows, or those after a key, by their keys in the order of this database. Raises `NoCopy` if one cannot
        be read."""
        while rows := await self._portion(reading, after):
            yield rows
            after = self.key_of(rows[-1])

    async def insert(self, connection: AsyncConnection, rows: _Found) -> None:
        """Insert rows. Raises what a row that is refused raises; the transaction is then to be undone."""
        await many.insert_each(connection, self._given, rows, self._given.c.keys())

    async def first_refused(self, connection: AsyncConnection, rows: _Found) -> NoCopy | None:
        """Which of the rows cannot be inserted, and why. The transaction is then to be undone."""
        for row in rows:
            try:
                async with connection.begin_nested():
                    await self.insert(connection, [row])
            except _UNUSABLE as error:
                if dialect.is_unavailable(error):
                    raise
                return NoCopy(f"{self.called(self.key_of(row))} cannot be kept there: {words_of(error)}")
        return None

    async def digest_of(self, reading: Reading) -> AsyncIterator[Digest]:
        """The digest of all rows, portion by portion; the last one is that of the table. Raises `NoCopy`."""
        digest = Digest()
        yield digest
        async for rows in self.portions(reading):
            digest = digest.plus(self._text(row) for row in rows)
            yield digest

    async def first_difference(self, here: Reading, there: Reading) -> str | None:
        """Names a row that is here and not alike there, if there is one. Raises `NoCopy`."""
        async for rows in self.portions(here):
            async with there() as connection:
                found = await self._same_keys(connection, rows)
            for row in rows:
                if (other := found.get(str(self.key_of(row)))) is None:
                    return f"{self.called(self.key_of(row))} is in one and not in the other"
                if self._text(row) != self._text(other):
                    return f"{self.called(self.key_of(row))} is not the same in both"
        return None

    async def _same_keys(self, connection: AsyncConnection, rows: _Found) -> Mapping[str, Row[*tuple[Any, ...]]]:
        names = [column.name for column in self._keys]
        keys = [dict(zip(names, [row[place] for place in self._key_places], strict=True)) for row in rows]
        found = await many.select_each(connection, self.schema, keys, keys=names, wanted=self._wanted)
        return {str(self.key_of(row)): row for row in found}

    def _text(self, row: Sequence[Any]) -> bytes:
        try:
            return row_text(row, self._are_json)
        except ValueError as error:
            raise NoCopy(f"{self.called(self.key_of(row))} cannot be compared: {error}") from error

    async def _portion(self, reading: Reading, after: Sequence[Any]) -> _Found:
        try:
            return await self._read(reading, self._select(self._wanted, after))
        except _UNUSABLE as error:
            if dialect.is_unavailable(error):
                raise
            raise await self._first_unreadable(reading, after, error) from error

    async def _first_unreadable(self, reading: Reading, after: Sequence[Any], error: Exception) -> NoCopy:
        why = words_of(error)
        try:
            keys = await self._read(reading, self._select(self._keys, after))
        except _UNUSABLE:
            return NoCopy(f"a row of {self.name} cannot be read: {why}")
        for key in keys:
            try:
                whole = select(*self._wanted).where(*(c == value for c, value in zip(self._keys, key, strict=True)))
                await self._read(reading, whole)
            except _UNUSABLE as its_error:
                return NoCopy(f"{self.called(_to_json(key))} cannot be read: {words_of(its_error)}")
        return NoCopy(f"a row of {self.name} cannot be read: {why}")

    async def _read(self, reading: Reading, statement: Select[Any]) -> _Found:
        async with reading() as connection:
            rows: _Found = (await connection.execute(statement)).all()
        return rows

    def _select(self, wanted: Sequence[ColumnElement[Any]], after: Sequence[Any]) -> Select[Any]:
        statement = select(*wanted).where(self._where).order_by(*self._keys).limit(PORTION)
        if not after:
            return statement
        bound = [literal(_from_json(key, value), key.type) for key, value in zip(self._keys, after, strict=True)]
        return statement.where(tuple_(*self._keys) > tuple_(*bound))


def _with_json_as_text(schema: Table) -> TableClause:
    as_text = [column(c.name, JsonText() if isinstance(c.type, Json) else c.type) for c in schema.columns]
    return table(schema.name, *as_text)


def _to_json(key: Sequence[Any]) -> list[Any]:
    return [rfc3339(value) if isinstance(value, datetime) else value for value in key]


def _from_json(key: Column[Any], value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(key.type, Moment) else value


def words_of(error: BaseException) -> str:
    """What the driver or a type says, without the statement around it."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.driver_exception
    elif isinstance(error, StatementError) and error.orig is not None:
        error = error.orig
    return (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_WORDS]


def _parts(schema: Table) -> Iterator[CopiedTable]:
    if schema is not api_keys:
        yield CopiedTable(schema)
        return
    # A login refers to its key, and its id may be the smaller one.
    yield CopiedTable(schema, where=api_keys.c.session_of.is_(None))
    yield CopiedTable(schema, "logins", api_keys.c.session_of.is_not(None))


TABLES: Final = tuple(part for schema in COPIED for part in _parts(schema))
"""`COPIED`, as it is gone through."""
