"""Every operation of the OpenAPI document, attacked by Schemathesis: examples, the edges of every range, chance, and
calls that lead to others. What it finds is either wrong in the service or wrong in the document."""

from __future__ import annotations

import json
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT, create_subprocess_exec
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.served import Served, serving

ROOT: Final = Path(__file__).parents[2]
CONFIGURATION: Final = Path(__file__).with_name("schemathesis.toml")
EXAMPLES: Final = 8
UNLIKELY: Final = re.compile(r"^/events$|\{job_id\}/")
"""Paths that may never be served well: a stream without an end, and jobs that must be in a state of their own."""

PHASES: Final = ("examples", "coverage", "fuzzing", "stateful")


@pytest.mark.torture
async def test_what_the_document_says_is_so(database: Database, tmp_path: Path) -> None:
    seed = chance_of(database.kind).getrandbits(32)
    async with serving(database.url) as served:
        report = await attacked(served, seed, tmp_path / "report.json")
        async with served.client() as client:
            document = (await client.get("/schema")).json()
            assert (await client.get("/health/ready")).status_code == 200
    assert report["operations"]["tested"] == sum(map(len, document["paths"].values()))
    assert {name: phase["status"] for name, phase in report["phases"].items()} == dict.fromkeys(PHASES, "success")
    assert set(operations_that_took_something(report)) >= {
        f"{method.upper()} {path}"
        for path, item in document["paths"].items()
        for method in item
        if not UNLIKELY.search(path)
    }
    assert not [event for event in served.events if event["event"] == "request_failed"]


def operations_that_took_something(report: dict[str, Any]) -> Iterator[str]:
    """Those that answered a 2xx at least once: an attack that is always turned away at the door shows little."""
    for operation, phases in report["valid_rates"].items():
        if any(rates["accepted"] for rates in phases.values()):
            yield operation


async def attacked(served: Served, seed: int, report: Path) -> dict[str, Any]:
    """What Schemathesis says it has done; fails with all that it says if it found anything."""
    options = ["--max-examples", EXAMPLES * EFFORT, "--seed", seed, "--report-json-path", report, "--no-color"]
    command = ["-m", "schemathesis.cli", "--config-file", CONFIGURATION, "run", f"{served.url}/schema", *options]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    process = await create_subprocess_exec(
        sys.executable, *map(str, command), env=environ, cwd=report.parent, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    print(output.decode())  # noqa: T201 - pytest shows it where the test fails
    return dict(json.loads(report.read_text()))  # noqa: ASYNC240 - nothing else runs here
