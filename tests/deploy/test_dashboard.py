"""The dashboard asks for what is there, and Grafana finds its parts where it looks for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.promql import SCRAPED, faults
from tests.metrics.scenes import Family

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana" / "fairlane.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWING = [panel for panel in PANELS if panel["type"] != "row"]


@pytest.mark.parametrize("panel", SHOWING, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_is_there_and_names_what_it_shows(
    panel: dict[str, Any], families: Mapping[str, Family]
) -> None:
    assert panel["description"]
    for target in panel["targets"]:
        expression = target["expr"]
        assert list(faults(expression, families)) == []
        assert 'job="$job", instance=~"$instance"' in expression
        grouped = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) == grouped - {"le"}
    names = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(names)) == len(names)


def test_variables_ask_for_what_is_there(families: Mapping[str, Family]) -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)\}?", json.dumps(PANELS))) - {"__rate_interval", "__all"} == set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert list(faults(selector, families)) == []
            [name] = re.findall(r"^fairlane_\w+", selector)
            assert label in families[name].labels | SCRAPED


def test_every_metric_that_is_not_of_interest_elsewhere_is_shown(families: Mapping[str, Family]) -> None:
    asked = json.dumps(DASHBOARD)
    hidden = {name for name, family in families.items() if not any(series in asked for series in family.series)}
    assert hidden == {
        "fairlane_cut_off",  # an alert's
        "fairlane_dispatching",  # an alert's
        "fairlane_leases",  # the jobs at work, once more
        "fairlane_process_max_fds",
        "fairlane_process_start_time_seconds",
        "fairlane_process_virtual_memory_bytes",
        "fairlane_tenant_moves_total",
        "fairlane_tenant_submit_refusals_total",
        "fairlane_writer_busy_seconds",  # an alert's
    }


def test_panels_have_ids_and_places_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
