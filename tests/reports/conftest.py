"""The sample on both engines, for tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Database, Databases, run_apart
from tests.flow.conftest import database, kept, nobody_waits
from tests.reports.history import write
from tests.reports.sample import DAY, STORIES, WEIGHTS

__all__ = ["database", "kept", "nobody_waits"]


@pytest.fixture(scope="module")
def both(sqlite_databases: Databases, postgres_databases: Databases) -> Iterator[tuple[Database, Database]]:
    """The sample on SQLite and on Postgres."""
    made = [databases.create() for databases in (sqlite_databases, postgres_databases)]
    for each in made:
        run_apart(write(each, DAY, WEIGHTS, STORIES))
    yield made[0], made[1]
    sqlite_databases.drop(made[0])
    postgres_databases.drop(made[1])
