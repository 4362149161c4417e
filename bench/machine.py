"""The machine that the figures were made on, in a few words: what differs between two of them is here."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.beanstalkd import PROGRAM
from tests.databases import Database

_SYNCS: Final = 200
_BLOCK: Final = bytes(4096)


def sync_ms() -> float:
    """What a file system takes for a written block to be durable, where the databases of a run lie."""
    took = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(_BLOCK)
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return median(took)


async def described(postgres: Database) -> dict[str, str]:
    """What there is to say, by name. Raises `RuntimeError` if the server would not keep what it has acknowledged."""
    [(postgres_version, fsync, commit)] = await postgres.fetch(
        "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')"
    )
    if (fsync, commit) != ("on", "on"):
        raise RuntimeError(f"the Postgres of the benchmarks has fsync={fsync}, synchronous_commit={commit}")
    return {
        "cores": f"{os.cpu_count()} x {_processor()}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "PostgreSQL": f"{postgres_version}, fsync and synchronous_commit on, the rest as it comes",
        "SQLite": f"{sqlite3.sqlite_version}, synchronous=FULL",
        "beanstalkd": "syncs each write" if PROGRAM else "none on this machine, so it takes no part",
        "a sync": f"{sync_ms():.2f} ms (median of {_SYNCS} blocks of 4 KiB, fdatasync each)",
        "load average": load(),
    }


def load() -> str:
    """How many processes wanted a processor, in the last minute, five and fifteen."""
    return " ".join(f"{average:.1f}" for average in os.getloadavg())


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
