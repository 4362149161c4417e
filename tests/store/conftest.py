"""A database for a whole module of tests that only add rows of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from app.store.engine import Engines, open_engines
from tests.databases import Database, Databases, run_apart
from tests.store.rows import add_tenant


@pytest.fixture(scope="module")
def shared(databases: Databases) -> Iterator[Database]:
    """A database with the tenant acme, shared by the tests of a module."""
    made = databases.create()
    run_apart(add_tenant(made))
    yield made
    databases.drop(made)


@pytest.fixture(scope="module")
async def shared_engines(shared: Database) -> AsyncIterator[Engines]:
    """The engines of `shared`."""
    async with open_engines(shared.url) as opened:
        yield opened


@pytest.fixture
def sqlite(sqlite_databases: Databases) -> Iterator[Database]:
    """A SQLite database with the tenant acme, for what only that engine can do."""
    made = sqlite_databases.create()
    run_apart(add_tenant(made))
    yield made
    sqlite_databases.drop(made)


@pytest.fixture
def postgres(postgres_databases: Databases) -> Iterator[Database]:
    """A Postgres database with the tenant acme, for what only that engine can do."""
    made = postgres_databases.create()
    run_apart(add_tenant(made))
    yield made
    postgres_databases.drop(made)
