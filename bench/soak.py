"""`make soak`: a service at half of its top rate for as long as is asked, looked at all the time: what it holds of the
memory, how large its journal and how many its dead rows become, how late its ticks are."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import percentile
from bench.served import Served, serving
from bench.stage import SHOWN_AS, Plan, Stage, own_databases
from bench.table import number
from bench.traffic import paced, top_rate
from tests.databases import Database

_TOP_SEC: Final = 10.0
_LOOK_SEC: Final = 2.0
_WARM_SEC: Final = 60.0
_DELAYED_EACH: Final = 50
_MIB: Final = 1024 * 1024

_DEAD_ROWS: Final = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"
_WAL_BYTES: Final = "SELECT sum(size)::bigint FROM pg_ls_waldir()"

_PERCENTILES: Final = {"p50": 50, "p99": 99, "longest": 100}


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at some moment; sizes in MiB. SQLite has no dead rows: it writes where the old one stood."""

    after_sec: float
    memory: float
    journal: float
    dead_rows: int


def main() -> None:
    """Soak one database or both, one after the other, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    parser.add_argument("--database", choices=list(SHOWN_AS), action="append", help="which; both if none is named")
    arguments = parser.parse_args()
    with own_databases() as (databases, _):
        for kind in arguments.database or SHOWN_AS:
            print(f"{SHOWN_AS[kind]}, {arguments.minutes:g} minutes", flush=True)
            for line in asyncio.run(soaked(Stage(databases), kind, 60 * arguments.minutes)):
                print(f"  {line}", flush=True)


async def soaked(stage: Stage, kind: str, sec: float) -> list[str]:
    """What came of it, a line each."""
    looks: list[Look] = []
    async with stage.database(kind) as database, serving(database.url) as served:
        rate = await top_rate(served, Plan().clients, min(_TOP_SEC, sec)) / 2
        async with _looking(served, database, looks):
            taken, ways_ms = await paced(served, rate, sec, _DELAYED_EACH)
        late_ms = [each["late_ms"] for each in served.told("job_promoted")]
    return [
        f"{number(rate)} jobs a second, {len(taken.took_ms):,} in all; generator {taken.cpu_percent:.0f}% of a core",
        _times("submits", taken.took_ms),
        _times("from due until a worker has it", ways_ms),
        _times(f"ticks late ({len(late_ms):,} delayed jobs)", late_ms),
        *_growth(looks, sec),
    ]


@asynccontextmanager
async def _looking(served: Served, database: Database, looks: list[Look]) -> AsyncIterator[None]:
    """Look from time to time for the duration of the block, and once in the end."""
    began = time.perf_counter()

    async def look() -> None:
        journal_bytes, dead_rows = await _journal_and_dead_rows(database)
        after_sec = time.perf_counter() - began
        looks.append(Look(after_sec, served.memory_bytes / _MIB, journal_bytes / _MIB, dead_rows))

    async def look_again_and_again() -> None:
        while True:
            await look()
            await asyncio.sleep(_LOOK_SEC)

    looking = asyncio.create_task(look_again_and_again())
    yield
    looking.cancel()
    await asyncio.wait([looking])
    await look()


async def _journal_and_dead_rows(database: Database) -> tuple[int, int]:
    if database.kind == "postgres":
        [(wal_bytes,)] = await database.fetch(_WAL_BYTES)
        [(dead_rows,)] = await database.fetch(_DEAD_ROWS)
        return wal_bytes, dead_rows
    return _size_of(database.url.removeprefix("sqlite:///") + "-wal"), 0


def _size_of(path: str) -> int:
    return Path(path).stat().st_size


def _times(of: str, took_ms: Sequence[float]) -> str:
    if not took_ms:
        return f"{of}: none"
    parts = [f"{name} {number(percentile(took_ms, percent))} ms" for name, percent in _PERCENTILES.items()]
    return f"{of}: {', '.join(parts)}"


def _growth(looks: Sequence[Look], sec: float) -> list[str]:
    """From the end of the first minute, or of the first half of a shorter soak, until the end."""
    warm_sec = min(_WARM_SEC, sec / 2)
    after = [look for look in looks if look.after_sec >= warm_sec]
    return [
        _size("memory, MiB", warm_sec, [look.memory for look in after]),
        _size("journal, MiB", warm_sec, [look.journal for look in after]),
        _size("dead rows", warm_sec, [look.dead_rows for look in after]),
    ]


def _size(of: str, warm_sec: float, seen: Sequence[float]) -> str:
    return f"{of}: {number(seen[0])} after {warm_sec:.0f} s, {number(seen[-1])} in the end, {number(max(seen))} at most"


if __name__ == "__main__":
    main()
