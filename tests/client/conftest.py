"""A real service for the tests of this folder: one process for each database, shared, so that each test keeps to a
tenant and a queue of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from tests.client.both import KINDS, Either, Kind, connected
from tests.databases import Database, Databases
from tests.served import Served, serving


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each client in turn."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="session")
def shared_database(databases: Databases) -> Iterator[Database]:
    """A database for all tests of this folder, on each engine."""
    made = databases.create()
    yield made
    databases.drop(made)


@pytest.fixture(scope="session")
async def service(shared_database: Database) -> AsyncIterator[Served]:
    """The service, on each database."""
    async with serving(shared_database.url) as served:
        yield served


@pytest.fixture
async def client(service: Served, shared_database: Database) -> AsyncIterator[Either]:
    """A client of the service: the blocking one on SQLite, the other on Postgres, for what a call does depends on
    neither."""
    async with connected("blocking" if shared_database.kind == "sqlite" else "async", service.url) as connection:
        yield connection


@pytest.fixture
def own() -> str:
    """A name for a tenant, a queue or a suite that no other test has."""
    return f"own-{uuid4().hex[:12]}"
