"""What a migration did to a schema, and what of it the version before could trip over: it reads the names it knows,
leaves out the columns it does not, and deletes rows of the tables it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from tests.databases import Database


class Item(NamedTuple):
    """A part of a schema by its name. `owner` is the table or view; a function is its own."""

    owner: str
    kind: str
    name: str


Structure: TypeAlias = Mapping[Item, str]
"""The definition of each part."""

_ON_SQLITE: Final = """
SELECT m.name, 'column', p.name,
    p.type || iif(p."notnull", ' NOT NULL', '') || coalesce(' DEFAULT ' || p.dflt_value, '')
FROM sqlite_master m JOIN pragma_table_xinfo(m.name) p WHERE m.type IN ('table', 'view')
UNION ALL SELECT tbl_name, iif(sql LIKE 'CREATE UNIQUE%', 'unique index', type), name, sql
FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
"""
_TABLES_ON_SQLITE: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"

_ON_POSTGRES: Final = """
WITH ours AS (SELECT oid, relname::text AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace)
SELECT table_name::text, 'column', column_name::text, concat_ws(' ', data_type,
    CASE is_nullable WHEN 'NO' THEN 'NOT NULL' END, 'DEFAULT ' || column_default, identity_generation)
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT name, 'constraint', conname::text, pg_get_constraintdef(c.oid)
FROM pg_constraint c JOIN ours ON ours.oid = conrelid WHERE contype <> 'n'
UNION ALL SELECT tablename::text, CASE WHEN indexdef LIKE 'CREATE UNIQUE%' THEN 'unique index' ELSE 'index' END,
    indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT name, 'trigger', tgname::text, pg_get_triggerdef(t.oid)
FROM pg_trigger t JOIN ours ON ours.oid = tgrelid WHERE NOT tgisinternal
UNION ALL SELECT proname::text, 'function', proname::text, prosrc
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


async def structure(database: Database) -> Structure:
    """All there is but Alembic's own table."""
    found = await database.fetch(_ON_SQLITE if database.kind == "sqlite" else _ON_POSTGRES)
    parts = {Item(*row[:3]): str(row[3]) for row in found}
    if database.kind == "sqlite":
        for table, sql in await database.fetch(_TABLES_ON_SQLITE):
            for text in _constraints(sql):  # several may be of one name
                item = Item(table, "constraint", _name_of(text))
                parts[item] = f"{parts[item]}, {text}" if item in parts else text
    return {item: text for item, text in parts.items() if item.owner != "alembic_version"}


def _constraints(sql: str) -> Iterator[str]:
    """Those of a table's own text, each with its column where it stands beside one."""
    yield from (part for part in split(sql)[1:-1] if re.search(r"\b(CONSTRAINT|CHECK|UNIQUE|REFERENCES)\b", part))


def _name_of(text: str) -> str:
    found = re.search(r"\bCONSTRAINT (\w+)", text)
    return found[1] if found else text


def split(definition: str) -> list[str]:
    """The beginning of a table's definition, its columns and constraints in no order, and its end; without spacing."""
    one_line = re.sub(r"\s*([(),])\s*", r"\1", re.sub(r"\s+", " ", definition))
    head, _, rest = one_line.partition("(")
    items, _, tail = rest.rpartition(")")
    found, depth = [""], 0
    for character in items:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [head, *sorted(found), tail.strip()]


def faults(before: Structure, after: Structure) -> list[str]:
    """What the version before could not go on with, a sentence each."""
    gone = [f"{_called(item)} is gone" for item in before if item not in after]
    changed = [f"{_called(item)} has changed" for item, text in before.items() if after.get(item, text) != text]
    known = {item.owner for item in before}
    added = {item: text for item, text in after.items() if item not in before}
    return [
        *sorted(gone + changed),
        *(
            fault
            for item, text in sorted(added.items())
            if item.owner in known
            for fault in _in_the_way(item, text, before)
        ),
        *(
            fault
            for item, text in sorted(added.items())
            if item.owner not in known
            for fault in _holding(item, text, known)
        ),
    ]


def _in_the_way(item: Item, text: str, before: Structure) -> Iterator[str]:
    """What is new on a table or view that the version before knows."""
    if item.kind == "column" and "NOT NULL" in text and "DEFAULT" not in text:
        yield f"{_called(item)} must be given, and it does not know that"
    if item.kind in ("constraint", "unique index"):
        columns = {each.name for each in before if each.owner == item.owner and each.kind == "column"}
        if bound := sorted(columns & set(re.findall(r"\w+", text))):
            yield f"{_called(item)} refuses what it may write to {', '.join(bound)}"
    if item.kind == "trigger" and ("RAISE(" in text or "fairlane_refuse" in text):
        yield f"{_called(item)} refuses what it may write"


def _holding(item: Item, text: str, known: set[str]) -> Iterator[str]:
    """What is new and holds on to rows that the version before deletes."""
    found = re.search(r"REFERENCES (\w+)", text) if item.kind == "constraint" else None
    if found and found[1] in known and not re.search(r"ON DELETE (CASCADE|SET NULL)", text):
        yield f"{_called(item)} keeps it from deleting rows of {found[1]}"


def _called(item: Item) -> str:
    return f"{item.kind} {item.name}" + (f" of {item.owner}" if item.owner != item.name else "")
