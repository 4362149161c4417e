"""What a file of deploy/ says to the service: its variables are read as the service reads them, its paths looked up
where the routes are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from app.api.access import MAY_CALL
from app.settings import PREFIX, Settings, read_settings

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
POSTGRES_URL: Final = "postgresql://fairlane:secret@db.example.com/fairlane"

_DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
[IMAGE_USER] = re.findall(r"^USER (\S+)$", _DOCKERFILE, re.MULTILINE)
[IMAGE_PORT] = re.findall(r"^EXPOSE (\d+)$", _DOCKERFILE, re.MULTILINE)
[IMAGE_ENTRYPOINT] = re.findall(r"^ENTRYPOINT (.*)$", _DOCKERFILE, re.MULTILINE)
IMAGE_ENVIRONMENT: Final = dict(re.findall(r"\b(FAIRLANE_\w+)=(\S+)", _DOCKERFILE))
IMAGE_PROBED: Final = re.findall(r"127\.0\.0\.1:\d+(/[\w/]+)", _DOCKERFILE)


def documents(*path: str) -> list[dict[str, Any]]:
    """What a YAML file holds."""
    found: list[dict[str, Any]] = [each for each in yaml.safe_load_all(DEPLOY.joinpath(*path).read_text()) if each]
    return found


def settings_of(environment: Mapping[str, str]) -> Settings:
    """What the service makes of it. Raises `BadSettings` for a variable that it does not know, or that it refuses."""
    assert all(isinstance(value, str) for value in environment.values()), "YAML would make another word of it"
    return read_settings({name: value for name, value in environment.items() if name.startswith(PREFIX)})


def is_probe(path: str) -> bool:
    """Whether it is asked without a key."""
    return path.startswith("/health/") and MAY_CALL[f"GET {path}"] is None
