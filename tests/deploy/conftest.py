"""What a live service shows, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.databases import Databases, run_apart
from tests.flow.conftest import nobody_waits
from tests.flow.harness import service
from tests.metrics.scenes import Family, everything_shown

__all__ = ["nobody_waits"]


@pytest.fixture(scope="session")
def families(sqlite_databases: Databases) -> Mapping[str, Family]:
    """Every metric that a service shows, by name."""
    shown: dict[str, Family] = {}

    async def look() -> None:
        async with service(sqlite_databases.create(), metrics_tenants=10) as running:
            shown.update(await everything_shown(running))

    run_apart(look())
    return shown
