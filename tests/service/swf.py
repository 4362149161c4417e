"""The KTH SP2 log of the Parallel Workloads Archive (Lars Malinowsky provided it, Dror Feitelson converted it): real
jobs that real people submitted. It is read from beside the project and is no part of it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import pytest

LOG = Path(__file__).parents[3] / "shared" / "data" / "kth-sp2-1996.swf.gz"

needs_log = pytest.mark.skipif(not LOG.exists(), reason=f"the log {LOG.name} is not here")


class Logged(NamedTuple):
    """A line of the log: who submitted job `number`, how long it ran in seconds, and whether it failed."""

    number: str
    user: str
    run_sec: int
    failed: bool


def read_log(n: int) -> list[Logged]:
    """The first `n` jobs."""
    with gzip.open(LOG, "rt") as lines:
        rows = [line.split() for line in lines if not line.startswith(";")][:n]
    return [Logged(row[0], f"user-{row[11]}", max(0, int(row[3])), row[10] != "1") for row in rows]
