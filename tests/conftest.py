"""Databases for every test that asks: `database` runs it on SQLite and on Postgres."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from app.store.engine import Engines, open_engines
from tests.databases import (
    KINDS,
    Database,
    Databases,
    SqliteDatabases,
)
from tests.databases import postgres_databases as databases_of_postgres
from tests.effort import EFFORT
from tests.history.table import Tell, show, teller

# Before any of them is imported, from whichever folder that is.
pytest.register_assert_rewrite(
    "tests.contract.crowd",
    "tests.contract.player",
    "tests.faults.clients",
    "tests.flow.harness",
    "tests.flow.scenes",
    "tests.flow.views",
    "tests.history.attacked",
    "tests.metrics.scraped",
    "tests.replica.site",
    "tests.reports.looking",
)


# An example may take as long as the machine makes it take, and `make test` tries the same ones each time.
settings.register_profile(
    "fairlane",
    deadline=None,
    derandomize=EFFORT == 1,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fairlane")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return SqliteDatabases(Path(tmp_path_factory.mktemp("sqlite")))


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    # With xdist each worker has a server of its own: it starts in a second and nothing has to be shared.
    with databases_of_postgres() as made:
        yield made


@pytest.fixture(scope="session", params=KINDS)
def databases(request: pytest.FixtureRequest) -> Databases:
    """Makes databases of each kind in turn."""
    made: Databases = request.getfixturevalue(f"{request.param}_databases")
    return made


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A migrated database of this test's own, on each engine."""
    made = databases.create()
    yield made
    databases.drop(made)


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[Database]:
    """A database without any table."""
    made = databases.create(migrated=False)
    yield made
    databases.drop(made)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port where nobody listens, and nobody else can: it is bound, and no more."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Takes what came of an attack, for the table at the end of the run."""
    return teller(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    show(terminalreporter)


@pytest.fixture
async def engines(database: Database) -> AsyncIterator[Engines]:
    """The engines of `database`, as the service opens them."""
    async with open_engines(database.url) as opened:
        yield opened
