"""A Postgres of a file's own, with a fresh database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.postgres import OwnPostgres, own_server


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_server() as made:
        yield made


@pytest.fixture
def own(server: OwnPostgres) -> OwnPostgres:
    server.renew()
    return server
