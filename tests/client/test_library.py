"""The client is a library: a machine that has httpx and msgspec needs nothing else to use it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import app.client
from tests.served import PATIENCE_SEC

FOLDER: Final = Path(app.client.__file__).parent
SCRIPT: Final = """
from app.client import AsyncClient, Client, Worker

with Client() as client:
    print(client._http.headers["user-agent"])
"""


async def test_the_folder_alone_is_enough(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "app" / "client")
    for package in ("msgspec", "httpx", "httpcore", "h11", "anyio", "certifi", "idna", "typing_extensions"):
        _link(package, tmp_path)
    command = (sys.executable, "-S", "-c", SCRIPT)  # -S: none of the packages that are installed
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=PIPE, stderr=PIPE)
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SEC)
    assert process.returncode == 0, errors.decode()
    assert output.decode().startswith("fairlane-python/unknown httpx/")


def _link(package: str, folder: Path) -> None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    source = origin.parent if origin.name == "__init__.py" else origin
    (folder / source.name).symlink_to(source)


def test_everything_that_is_offered_is_there() -> None:
    assert sorted(app.client.__all__) == sorted(set(app.client.__all__))
    for name in app.client.__all__:
        assert hasattr(app.client, name), name
