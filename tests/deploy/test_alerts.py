"""The alert rules ask for what is there, each says what to do, and where promtool is installed it fires each."""

from __future__ import annotations

import re
import shutil
import subprocess
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.databases import Databases
from tests.deploy.promql import SCRAPED, faults
from tests.flow.harness import service
from tests.metrics.scenes import Family, everything_shown

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
HEADINGS = re.findall(r"^### (Fairlane\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_is_there_and_says_what_to_do(
    rule: dict[str, Any], families: Mapping[str, Family]
) -> None:
    assert list(faults(rule["expr"], families)) == []
    assert rule["labels"]["severity"] in ("page", "ticket")
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert notes["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert rule["alert"] in HEADINGS
    used = set(re.findall(r"\$labels\.(\w+)", notes["summary"] + notes["description"]))
    grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
    if grouped:
        assert used <= set(re.split(r", ", grouped[0]))
    else:
        asked = re.findall(r"fairlane_\w+", rule["expr"])
        assert used <= SCRAPED.union(*(families[name].labels for name in asked))


def test_every_section_has_its_rule_and_every_rule_is_tried() -> None:
    names = [rule["alert"] for rule in rules()]
    assert sorted(names) == sorted(HEADINGS)
    trials = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    tried = [each for trial in trials for each in trial["alert_rule_test"]]
    assert {each["alertname"] for each in tried if each["exp_alerts"]} == set(names)
    [well] = [trial for trial in trials if trial["name"].startswith("a service that is well")]
    assert [each["alertname"] for each in well["alert_rule_test"]] == names
    assert not any(each["exp_alerts"] for each in well["alert_rule_test"])


def test_the_trials_use_series_that_a_service_shows(families: Mapping[str, Family]) -> None:
    trials = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    for given in (each["series"] for trial in trials for each in trial["input_series"]):
        if given != "something_else" and "loop=" not in given:
            assert list(faults(given, families)) == [], given


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian: the package prometheus): the alert rules are read, but not evaluated",
)


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_prometheus_takes_the_rules_and_each_fires_when_it_should(command: tuple[str, ...]) -> None:
    ended = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCESS" in ended.stdout


@needs_promtool
async def test_prometheus_finds_no_fault_in_the_names_of_metrics(sqlite_databases: Databases) -> None:
    async with service(sqlite_databases.create(), metrics_tenants=10) as running:
        await everything_shown(running)
        _, text = await running.meter.scrape("")
    promtool = await create_subprocess_exec("promtool", "check", "metrics", stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    said, _ = await promtool.communicate(text)
    assert (promtool.returncode, said) == (0, b"")
