"""A Postgres for each test: a file has one server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Database, Databases
from tests.faults.conftest import own, server

__all__ = ["own", "postgres", "server"]


@pytest.fixture
def postgres(postgres_databases: Databases) -> Iterator[Database]:
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)
