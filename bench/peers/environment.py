"""An environment of the peers' own, from locked versions: what they need must not meet what Fairlane needs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_LOCK: Final = Path(__file__).parent / "peers.lock"
_PLACE: Final = Path(sys.prefix) / "peers"
_DONE: Final = _PLACE / ".done"

PYTHON: Final = _PLACE / "bin" / "python"


async def install() -> None:
    """Have it, as the lock says; at once if it is there. Raises `RuntimeError` if it cannot be had."""
    if _DONE.exists() and _DONE.read_text() == _LOCK.read_text():
        return
    sys.stderr.write("installing the peers ...\n")
    uv = Path(sys.prefix) / "bin" / "uv"
    await _run(uv, "venv", "--clear", "--python", sys.executable, _PLACE)
    await _run(uv, "pip", "install", "--python", PYTHON, "--require-hashes", "--requirement", _LOCK)
    _DONE.write_text(_LOCK.read_text())


def versions(names: Iterable[str]) -> str:
    """Which of them the lock names."""
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", _LOCK.read_text(), re.MULTILINE))
    return ", ".join(f"{name} {locked[name]}" for name in names)


async def _run(*command: object) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the peers cannot be installed: {output.decode().strip()}")
