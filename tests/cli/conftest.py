"""One real service for all these tests, and commands run against it. Each test has tenants and queues of its
own, so that nothing of one is seen by another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest

from tests.cli.running import Fairlane
from tests.databases import Database, Databases
from tests.served import Served, serving


@pytest.fixture(scope="package")
async def service(
    anyio_backend: str,  # noqa: ARG001  # has its loop also where a test has none
    sqlite_databases: Databases,
) -> AsyncIterator[Served]:
    """A service on SQLite."""
    database = sqlite_databases.create()
    async with serving(database.url) as served:
        yield served
    sqlite_databases.drop(database)


@pytest.fixture
def sqlite_database(sqlite_databases: Databases) -> Iterator[Database]:
    """A database on SQLite, for a service of a test's own."""
    made = sqlite_databases.create()
    yield made
    sqlite_databases.drop(made)


@pytest.fixture
def fairlane(service: Served) -> Fairlane:
    """`fairlane`, pointed at the service."""
    return Fairlane(service.url)


@pytest.fixture
def away(unused_port: int) -> Fairlane:
    """`fairlane`, pointed at an address where nobody listens."""
    return Fairlane(f"http://127.0.0.1:{unused_port}")


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"n{uuid4().hex[:12]}"


@pytest.fixture
def names() -> Callable[[], str]:
    """As many of them as it is called for."""
    return lambda: f"n{uuid4().hex[:12]}"
