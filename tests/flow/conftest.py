"""Databases that are emptied, not made anew: what a Postgres takes to make and drop one is more than most of
these tests do with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from app.flow import finish
from app.store import transaction
from app.store.dispatcher import Dispatcher
from app.store.schema import HOURLY
from tests.databases import POSTGRES_URL, Database, Databases, SqliteDatabases, run_apart

_EMPTY_POSTGRES = (
    "DELETE FROM jobs",
    "DELETE FROM lanes",
    "DELETE FROM queues",
    "DELETE FROM tenants",
    "DELETE FROM dispatcher",
    "DELETE FROM api_keys",
    *(f"DELETE FROM {table.name}" for table in HOURLY),
    "UPDATE rollups SET until = NULL",
    "INSERT INTO queues (name) VALUES ('default')",
    "ALTER SEQUENCE jobs_seq_seq RESTART",
)


class Kept:
    """The databases that tests hand to each other, by engine and use."""

    def __init__(self) -> None:
        self._made: dict[tuple[Databases, str], Database] = {}

    def emptied(self, databases: Databases, use: str) -> Iterator[Database]:
        """A database without rows. SQLite's are copies of a file, made in a moment."""
        if isinstance(databases, SqliteDatabases):
            made = databases.create()
            yield made
            databases.drop(made)
            return
        if (databases, use) not in self._made:
            self._made[databases, use] = databases.create()
        kept = self._made[databases, use]
        run_apart(kept.execute(*_EMPTY_POSTGRES))
        yield kept

    def drop(self) -> None:
        """A server of the tests' own is thrown away as a whole; to drop one database of it takes seconds."""
        if POSTGRES_URL in os.environ:
            for (databases, _), made in self._made.items():
                databases.drop(made)


@pytest.fixture(scope="session")
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.drop()


@pytest.fixture
def database(databases: Databases, kept: Kept) -> Iterator[Database]:
    """An empty database, on each engine."""
    yield from kept.emptied(databases, "the")


@pytest.fixture
def other_database(databases: Databases, kept: Kept) -> Iterator[Database]:
    """One more, for a twin."""
    yield from kept.emptied(databases, "other")


@pytest.fixture
def sqlite(sqlite_databases: Databases, kept: Kept) -> Iterator[Database]:
    """An empty database for what only SQLite can do."""
    yield from kept.emptied(sqlite_databases, "the")


@pytest.fixture
def postgres(postgres_databases: Databases, kept: Kept) -> Iterator[Database]:
    """An empty database for what only Postgres can do."""
    yield from kept.emptied(postgres_databases, "the")


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was killed is not waited for, but in the tests that are about it."""
    monkeypatch.setattr(Dispatcher, "claim_sec", 0.0)


@pytest.fixture(autouse=True)
def three_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that also small batches meet what large ones do: rows on their way while the next are made."""
    monkeypatch.setattr(transaction, "SENT_AHEAD", 3)


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed jobs come back to the microsecond, so that twins agree."""
    monkeypatch.setattr(finish, "random", SimpleNamespace(random=lambda: 0.0))
