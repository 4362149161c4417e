"""A database to copy and an empty one to copy it into, of each kind and each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from app.store.schema import metadata
from tests.copy.moving import Pair
from tests.databases import KINDS, POSTGRES_URL, Database, Databases, Kind, SqliteDatabases, run_apart

_EMPTY_POSTGRES = (
    f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY",
    "INSERT INTO queues (name) VALUES ('default')",
    "INSERT INTO rollups (name) VALUES ('hours')",
)


class Emptied:
    """A database a use. A Postgres takes long to be made and dropped, so it is emptied instead."""

    def __init__(self) -> None:
        self._kept: dict[str, Database] = {}
        self._made: list[tuple[Databases, Database]] = []

    def of(self, databases: Databases, use: str) -> Database:
        """One without rows."""
        if isinstance(databases, SqliteDatabases):
            return self.create(databases)
        if use in self._kept:
            run_apart(self._kept[use].execute(*_EMPTY_POSTGRES))
        else:
            self._kept[use] = self.create(databases)
        return self._kept[use]

    def create(self, databases: Databases, *, migrated: bool = True) -> Database:
        """One that nobody had before."""
        made = databases.create(migrated=migrated)
        self._made.append((databases, made))
        return made

    def drop(self) -> None:
        """A server of the tests' own is thrown away as a whole; to drop one database of it takes seconds."""
        for databases, made in self._made:
            if isinstance(databases, SqliteDatabases) or POSTGRES_URL in os.environ:
                databases.drop(made)


@pytest.fixture(scope="package")
def emptied() -> Iterator[Emptied]:
    """Databases that are handed on from test to test."""
    made = Emptied()
    yield made
    made.drop()


def _pair(request: pytest.FixtureRequest, emptied: Emptied, source: Kind, target: Kind) -> Pair:
    databases = [request.getfixturevalue(f"{kind}_databases") for kind in (source, target)]
    return Pair(emptied.of(databases[0], "source"), emptied.of(databases[1], "target"))


@pytest.fixture(params=[(a, b) for a in KINDS for b in KINDS], ids="-to-".join)
def pair(request: pytest.FixtureRequest, emptied: Emptied) -> Pair:
    """Both databases, in each of the four ways."""
    return _pair(request, emptied, *request.param)


@pytest.fixture(params=[KINDS, KINDS[::-1]], ids="-to-".join)
def unlike(request: pytest.FixtureRequest, emptied: Emptied) -> Pair:
    """Both databases, of different kinds."""
    return _pair(request, emptied, *request.param)


@pytest.fixture
def files(request: pytest.FixtureRequest, emptied: Emptied) -> Pair:
    """Two SQLite files."""
    return _pair(request, emptied, "sqlite", "sqlite")


@pytest.fixture
def sqlite_to_postgres(request: pytest.FixtureRequest, emptied: Emptied) -> Pair:
    """From what takes more to what takes less."""
    return _pair(request, emptied, "sqlite", "postgres")


@pytest.fixture
def postgres_to_sqlite(request: pytest.FixtureRequest, emptied: Emptied) -> Pair:
    """The way back."""
    return _pair(request, emptied, "postgres", "sqlite")


@pytest.fixture
def postgres_without_tables(postgres_databases: Databases, emptied: Emptied) -> Database:
    """A Postgres as its administrator hands it over."""
    return emptied.create(postgres_databases, migrated=False)
