"""Tenants and queues are set up and looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Fairlane


def tenant(fairlane: Fairlane, name: str) -> dict[str, Any]:
    """A tenant, but for what changes by itself."""
    [found] = fairlane.json("tenants", name)
    return {field: value for field, value in found.items() if not field.endswith("_at")}


def test_set_creates_and_then_changes_only_what_is_given(fairlane: Fairlane, name: str) -> None:
    told = fairlane("tenant", "set", name, "--weight", "3", "--rate", "2.5", "--max-running", "7").output
    assert told == (
        f"{name} created: weight 3, rate_per_sec 2.5, burst 3, max_running 7, max_queued none, paused false\n"
    )
    told = fairlane("tenant", "set", name, "--rate", "none", "--max-queued", "9", "--paused").output
    assert told == f"{name}: rate_per_sec 2.5 -> none, burst 3 -> none, max_queued none -> 9, paused false -> true\n"
    assert fairlane("tenant", "set", name, "--weight", "3").output == f"{name}: as it was\n"
    assert tenant(fairlane, name) == {
        "name": name,
        "weight": 3,
        "rate_per_sec": None,
        "burst": None,
        "max_running": 7,
        "max_queued": 9,
        "paused": True,
        "queued": 0,
        "running": 0,
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--weight", "0"), "weight must be 1-1000"),
        (("--rate", "fast"), "'fast' is neither a number nor none"),
        (("--rate", "nan"), "'nan' is neither a number nor none"),
        (("--max-running", "1.5"), "'1.5' is neither a number nor none"),
        (("--max-running", "0", "--burst", "0"), "burst must be 1-1000000000\n  max_running must be"),
    ],
)
def test_set_refuses_what_makes_no_sense(fairlane: Fairlane, name: str, options: tuple[str, ...], why: str) -> None:
    assert why in fairlane("tenant", "set", name, *options, code=2).output


def test_tenants_are_listed_all_or_those_named(fairlane: Fairlane, name: str) -> None:
    fairlane("tenant", "set", name, "--weight", "5")
    head, row = fairlane("tenants", name).output.splitlines()
    assert head.split() == [
        *("TENANT", "WEIGHT", "QUEUED", "RUNNING", "RATE/S", "BURST", "MOST", "RUNNING", "MOST", "QUEUED", "PAUSED")
    ]
    assert row.split() == [name, "5", "0", "0", "none", "none", "none", "none", "-"]
    assert fairlane("tenants").output.count(name) == 1
    assert "tenant not found" in fairlane("tenants", "nobody", code=3).output


async def test_the_table_fits_a_terminal(fairlane: Fairlane, name: str) -> None:
    fairlane("tenant", "set", name + "x" * 100)
    async with fairlane.terminal("tenants", width=80) as terminal:
        assert await terminal.exited() == 0
    assert "MOST RUNNING" in terminal.text
    assert "…" in terminal.text


def test_a_toml_file_sets_up_those_it_names(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    fairlane("tenant", "set", name, "--weight", "9", "--max-running", "1")
    file = tmp_path / "tenants.toml"
    file.write_text(f'[{name}]\nrate_per_sec = 50 # a second\nmax_queued = "none"\n["{name} b"]\nweight = 2\n')
    told = fairlane("tenant", "load", str(file)).output.splitlines()
    assert told[0] == (f"{name}: weight 9 -> 1, rate_per_sec none -> 50, burst none -> 50, max_running 1 -> none")
    assert told[1].startswith(f"{name} b created: weight 2,")
    assert fairlane("tenant", "load", str(file)).output == f"{name}: as it was\n{name} b: as it was\n"


def test_what_tenants_prints_as_json_can_be_loaded(fairlane: Fairlane, name: str, tmp_path: Path) -> None:
    fairlane("tenant", "set", name, "--weight", "4", "--max-running", "2")
    file = tmp_path / "tenants.jsonl"
    file.write_text(fairlane("tenants", name, "--json").output)
    before = tenant(fairlane, name)
    fairlane("tenant", "set", name, "--weight", "1", "--max-running", "none", "--rate", "1")
    assert "weight 1 -> 4, rate_per_sec 1 -> none" in fairlane("tenant", "load", str(file)).output
    assert tenant(fairlane, name) == before
    assert fairlane("tenant", "load", "-", stdin=file.read_text()).output == f"{name}: as it was\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            "[x]\nweight = 0\n[y]\nrate_per_sec = inf\nsize = 1\n",
            ["[x]: weight must be 1-1000", "[y]: rate_per_sec must be a"],
        ),
        ('["a/b"]\n', ["[a/b]: name must be 1-128 characters"]),
        ("weight = 3\n", ["weight stands outside a table"]),
        ("[x\n", ["Expected"]),
        ("[x]\n[x]\n", ["Cannot declare"]),
        ("[x]\nweight = 2030-01-01\n", ["[x]: weight must be 1-1000"]),
    ],
)
def test_a_bad_toml_file_sets_nothing(
    fairlane: Fairlane, name: str, tmp_path: Path, content: str, why: list[str]
) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(content + f"[{name}]\n")
    told = fairlane("tenant", "load", str(file), code=2).output
    for words in why:
        assert words in told
    fairlane("tenants", name, code=3)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nope", "-:2: not a JSON object"),
        ("[]", "-:2: not a JSON object"),
        ('{"weight": 3}', "line 2: name must be 1-128"),
        ('{"name": "x", "weight": "3"}', "line 2: weight must be 1-1000"),
        ('{"name": "NAME"}', "line 2: name stands there before"),
    ],
)
def test_bad_json_lines_set_nothing(fairlane: Fairlane, name: str, line: str, why: str) -> None:
    given = json.dumps({"name": name}) + "\n" + line.replace("NAME", name)
    assert why.replace("-:", "<stdin>:") in fairlane("tenant", "load", "-", stdin=given, code=2).output
    fairlane("tenants", name, code=3)


def test_queues_are_listed_paused_and_resumed(fairlane: Fairlane, name: str) -> None:
    fairlane.submit("acme", "a", "-q", name)
    assert fairlane("pause", name).output == f"queue {name} paused\n"
    [row] = [row for row in fairlane("queues").output.splitlines() if row.startswith(name)]
    assert row.split() == [name, "1", "0", "paused"]
    [queue] = [queue for queue in fairlane.json("queues") if queue["name"] == name]
    assert queue == {"name": name, "paused": True, "queued": 1, "running": 0}
    assert fairlane("resume", name).output == f"queue {name} resumed\n"
    assert [queue["paused"] for queue in fairlane.json("queues") if queue["name"] == name] == [False]


def test_a_queue_that_is_not_there_is_not_made_by_a_slip_of_the_pen(fairlane: Fairlane, name: str) -> None:
    assert f"there is no queue {name}; --create" in fairlane("pause", name, code=3).output
    assert f"there is no queue {name}\n" in fairlane("resume", name, code=3).output
    assert name not in fairlane("queues").output
    assert fairlane("pause", name, "--create").output == f"queue {name} paused\n"


def test_a_tenant_is_paused_and_resumed(fairlane: Fairlane, name: str) -> None:
    fairlane("tenant", "set", name)
    assert fairlane("pause", "--tenant", name).output == f"tenant {name} paused\n"
    assert tenant(fairlane, name)["paused"]
    assert fairlane("resume", "--tenant", name).output == f"tenant {name} resumed\n"
    assert not tenant(fairlane, name)["paused"]
    assert "tenant not found" in fairlane("pause", "--tenant", name + "x", code=3).output
    assert "either a queue or --tenant" in fairlane("pause", code=2).output


def test_a_tenant_is_erased_when_nothing_of_it_is_unfinished(fairlane: Fairlane, name: str) -> None:
    for suite in ("a", "b"):
        fairlane.submit(name, suite, "-q", name)
    would = f"{name}: 2 jobs would be deleted, 2 of them unfinished\n"
    assert fairlane("tenant", "erase", name, "--dry-run").output == would
    assert f"tenant {name} has 2 unfinished jobs" in fairlane("tenant", "erase", name, "--yes", code=4).output
    asked = fairlane("tenant", "erase", name, "--cancel", stdin="n\n", code=1).output
    assert f"Delete all that is kept of {name}, 2 jobs? [y/N]" in asked
    assert fairlane("tenant", "erase", name, "--dry-run").output == would

    told = fairlane("tenant", "erase", name, "--cancel", "--yes").output

    assert told == f"2 cancelled\n{name}: 2 jobs deleted, and the tenant\n"
    for command in (("tenant", "erase", name, "--yes"), ("tenant", "erase", name, "--dry-run"), ("tenants", name)):
        assert "tenant not found" in fairlane(*command, code=3).output
