"""docs/metrics.md has every metric there is with its kind and labels, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.databases import Database
from tests.flow.harness import service
from tests.metrics.scenes import everything_shown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(fairlane_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)


class Shown(NamedTuple):
    """A metric's kind and labels."""

    kind: str
    labels: frozenset[str]


async def test_the_page_has_every_metric_and_no_other(sqlite: Database) -> None:
    rows = ROW.findall(PAGE.read_text())
    documented = {name: Shown(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(rows) == len(documented) == PAGE.read_text().count("\n| `fairlane_")
    async with service(sqlite, metrics_tenants=10) as running:
        families = await everything_shown(running)
    assert documented == {name: Shown(family.kind, family.labels) for name, family in families.items()}
