"""Disks that tests may fill."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system with room for little more than a database."""
    with tempfile.TemporaryDirectory(prefix="fairlane-disk-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "none", folder]
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"only root can make a small disk: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, *, leaving: int = 0) -> None:
    """Leave no room, or so many bytes."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            ballast.truncate(ballast.tell() - leaving)


def clear(disk: Path) -> None:
    """There is room again."""
    (disk / "ballast").unlink()
