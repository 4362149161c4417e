"""The units are well formed, hold the service as tight as they say, and start what there is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from app.cli import main
from app.settings import Settings
from tests.deploy.environments import DEPLOY, settings_of

FOLDER = DEPLOY / "systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
UNITS = [*SERVICES, *sorted(FOLDER.glob("*.timer"))]
PROGRAM = "/opt/fairlane/bin/fairlane"
MOST_EXPOSED = 20
"""In tenths of 10; a unit that says nothing of it has 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed: the units are read, but not judged",
)


class Line(NamedTuple):
    """One setting of a unit."""

    name: str
    value: str


def lines(unit: Path) -> Iterator[Line]:
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            yield Line(*line.split("=", 1))


def values(unit: Path, name: str) -> list[str]:
    return [line.value for line in lines(unit) if line.name == name]


def seconds(unit: Path, name: str) -> float:
    [value] = values(unit, name)
    return float(value.removesuffix("s"))


def settings(unit: Path) -> Settings:
    return settings_of(dict(each.split("=", 1) for each in values(unit, "Environment")))


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_unit_starts_what_there_is_on_a_file_of_its_own(unit: Path) -> None:
    [command] = values(unit, "ExecStart")
    _, _, arguments = command.partition(PROGRAM + " ")
    assert arguments.split()[0] in main.commands
    folders = values(unit, "StateDirectory")[0].split()
    database = Path(settings(unit).database_url.removeprefix("sqlite:///"))
    assert database.parent == Path("/var/lib") / folders[0]
    assert values(unit, "User") == values(unit, "Group") == ["fairlane"]
    assert (FOLDER / "fairlane.sysusers").read_text().splitlines()[-1].split()[:2] == ["u", "fairlane"]


def test_the_service_is_given_the_time_that_it_needs_and_started_again() -> None:
    unit = FOLDER / "fairlane.service"
    assert seconds(unit, "TimeoutStopSec") >= settings(unit).shutdown_grace_sec + 10
    assert settings(unit).keys == "required"  # a proxy on this machine is on the loopback address as well
    assert values(unit, "Type") == ["exec"]  # it sends systemd no word, so notify would wait for ever
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "StartLimitIntervalSec") == ["0"]
    assert int(values(unit, "LimitNOFILE")[0]) >= 65536
    assert not values(unit, "ProcSubset")  # /proc/stat


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units as on a machine that has the program."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    return [tmp_path / unit.name for unit in UNITS]


@needs_systemd
def test_systemd_finds_no_fault(installed: list[Path]) -> None:
    assert analyze("verify", *map(str, installed)) == ""


@needs_systemd
def test_the_service_is_held_tight(installed: list[Path]) -> None:
    [service] = [unit for unit in installed if unit.name == "fairlane.service"]
    analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", str(service))


def analyze(*arguments: str) -> str:
    ended = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
