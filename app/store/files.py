"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unfinished(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """An empty file of its own beside `target` for what is not complete yet, with these permissions as far as the
    process gives any; nothing is left under its name. Raises `OSError`."""
    path = target.with_name(f".fairlane-{uuid.uuid4().hex}.part")  # not with the target's name, which may be long
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
