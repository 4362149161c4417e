"""`python -m bench.scale`: what a million queued jobs of 10,000 tenants, and ten million finished ones, cost: the
start, the memory, and each moment of a job's life beside the same with a thousand. SIZE=100000 is a tenth of it.

Costs are processor time, the service's and that of its Postgres, since a machine that is shared makes anything of wall
time; each is the median of rounds in which the databases take turns. docs/scale.md says what to make of it."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import aiosqlite
import asyncpg
import psutil  # type: ignore[import-untyped]

from app.flow import dispatch, finish, submit
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.finish import Report
from app.flow.submit import JobRequest
from app.main import Service, running
from app.scheduling.job import Job
from app.settings import read_settings
from tests.api.asgi import app_of, client_of
from tests.databases import Database, PostgresDatabases, SqliteDatabases, own_postgres
from tests.served import serving

SIZE: Final = int(os.environ.get("SIZE", "1000000"))
FINISHED: Final = 10 * SIZE
FEW: Final = 1_000
TENANTS: Final = 10_000
ROUNDS: Final = 7
BATCH: Final = 100

COLUMNS: Final = "id, seq, tenant, queue, priority, cost, due_at, submitted_at, effective_priority, queued_at"
BARE: Final = f"SELECT {COLUMNS} FROM jobs WHERE state = 'queued'"

# --- Databases of a size ------------------------------------------------------------------------------------------

_SQLITE: Final = {
    "numbers": "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})",
    "from": "n",
    "time": "strftime('%Y-%m-%dT%H:%M:%S', 1790000000 + ({us}) / 1000000, 'unixepoch')"
    " || printf('.%06dZ', ({us}) % 1000000)",
    "id": "printf('%032x', 1 << 60 | i)",
    "token": "printf('%032x', 1 << 60 | i)",  # in the order in which they were given, as real ones
}
_POSTGRES: Final = {
    "numbers": "",
    "from": "generate_series({first}, {last}) AS n(i)",
    "time": "to_timestamp(1790000000 + ({us}) / 1000000.0)",
    "id": "lpad(to_hex(1::bigint << 60 | i), 32, '0')::uuid",
    "token": "lpad(to_hex(1::bigint << 60 | i), 32, '0')",
}


async def fill(database: Database, queued: int, finished: int) -> None:
    """First `finished` jobs with an attempt each, then `queued` ones, all of 10,000 tenants with a lane each."""
    words = _SQLITE if database.kind == "sqlite" else _POSTGRES

    def insert(table: str, row: Mapping[str, str], first: int, last: int) -> str:
        numbers, source = (words[part].format(first=first, last=last) for part in ("numbers", "from"))
        return f"INSERT INTO {table} ({', '.join(row)}) {numbers} SELECT {', '.join(row.values())} FROM {source}"

    def at(us: str) -> str:
        return words["time"].format(us=us)

    times = {name: at("i * 100") for name in ("submitted_at", "due_at", "run_at", "queued_at")}
    job = {"seq": "i", "id": words["id"], "tenant": f"'tenant-' || (i % {TENANTS})", "test_suite": "'s' || (i % 400)"}
    job |= {"priority": "i * 7 % 11", "effective_priority": "i * 7 % 11", "cost": "1 + i % 3", **times}
    leased = {"scheduled_at": at("i * 100 + 50"), "started_at": at("i * 100 + 50"), "worker": "'w' || (i % 100)"}
    over = {"state": "'completed'", "attempt": "1", "completed_at": at("i * 100 + 90"), "charge": "1000000"}
    attempt = {"job_id": words["id"], "number": "1", "token": words["token"], "queued_at": at("i * 100"), **leased}
    attempt |= {"ended_at": at("i * 100 + 90"), "outcome": "'completed'", "weight": "1", "cost": "1"}
    parts = [(first, min(first + 999_999, finished)) for first in range(1, finished + 1, 1_000_000)]
    statements = [
        insert("tenants", {"name": "'tenant-' || i"}, 0, TENANTS - 1),
        insert("lanes", {"queue": "'default'", "tenant": "'tenant-' || i"}, 0, TENANTS - 1),
        *(insert("jobs", job | leased | over | {"dispatch_weight": "1"}, *part) for part in parts),
        *(insert("job_attempts", attempt, *part) for part in parts),
        insert("jobs", job | {"state": "'queued'", "delay_sec": "0"}, finished + 1, finished + queued),
    ]
    write = _write_into_sqlite if database.kind == "sqlite" else _write_into_postgres
    await write(database, statements, finished + queued)


async def _write_into_sqlite(database: Database, statements: Sequence[str], last: int) -> None:
    """In one go: without triggers and indexes, which come again in the order in which they were made."""
    made = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') AND tbl_name LIKE 'job%'"
    again = await database.fetch(f"{made} AND sql IS NOT NULL ORDER BY rowid")
    sequence = f"INSERT OR REPLACE INTO sqlite_sequence (name, seq) VALUES ('jobs', {last})"
    async with aiosqlite.connect(database.url.removeprefix("sqlite:///"), isolation_level=None) as connection:
        for pragma in ("synchronous = OFF", "cache_size = -1000000"):
            await connection.execute(f"PRAGMA {pragma}")
        await connection.execute("BEGIN")
        for statement in (
            *(f"DROP {kind} {name}" for kind, name, _ in again),
            *statements,
            *(sql for *_, sql in again),
            "DELETE FROM sqlite_sequence WHERE name = 'jobs'",
            sequence,
        ):
            await connection.execute(statement)
        await connection.execute("COMMIT")


async def _write_into_postgres(database: Database, statements: Sequence[str], last: int) -> None:
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'job%' AND indexname LIKE 'ix_%'"
    again = await database.fetch(indexes)
    triggers = [[f"ALTER TABLE {t} {s} TRIGGER ALL" for t in ("jobs", "job_attempts")] for s in ("DISABLE", "ENABLE")]
    connection = await asyncpg.connect(database.url, command_timeout=3600)
    for statement in (
        "SET synchronous_commit = off",
        "SET maintenance_work_mem = '1GB'",
        *(f"DROP INDEX {name}" for name, _ in again),
        *triggers[0],
        *statements,
        *triggers[1],
        *(definition for _, definition in again),
        f"SELECT setval('jobs_seq_seq', {last})",
        "VACUUM ANALYZE",  # as autovacuum does in time
    ):
        await connection.execute(statement)
    await connection.close()


@contextmanager
def _stages() -> Iterator[list[dict[str, Database]]]:
    """By kind, a database each: with a few queued jobs, with many, and with a few beside a long history."""
    with tempfile.TemporaryDirectory() as folder, own_postgres() as server:
        kinds = (SqliteDatabases(Path(folder)), PostgresDatabases(server.get_uri()))
        yield [{name: databases.create() for name in ("few", "many", "history")} for databases in kinds]


# --- The start and what it takes ----------------------------------------------------------------------------------


async def start(few: Database, many: Database) -> None:
    """How long a start takes to how long its rows take to be read, and what a job takes of memory."""
    ratios, sizes = [], []
    for _ in range(3):
        bare = await _spent(_read_bare(many))
        ratios.append((await _spent(_started(many)) - await _spent(_started(few))) / bare)
    for database in (few, many):
        async with serving(database.url) as served:
            async with served.client() as client:
                await client.get("/stats")
            sizes.append(psutil.Process(served.process.pid).memory_info().rss)
    _say(many, f"a start with {SIZE} queued, their rows read bare = 1", f"{median(ratios):.2f}")
    _say(many, "memory a queued job, bytes", f"{(sizes[1] - sizes[0]) / (SIZE - FEW):.0f}")


async def _spent(work: Awaitable[object]) -> float:
    before = time.process_time()
    await work
    return time.process_time() - before


async def _read_bare(database: Database) -> None:
    if database.kind == "sqlite":
        async with aiosqlite.connect(database.url.removeprefix("sqlite:///")) as connection:
            await connection.execute_fetchall(BARE)
        return
    connection = await asyncpg.connect(database.url)
    await connection.fetch(BARE)
    await connection.close()


async def _started(database: Database) -> None:
    async with running(_settings(database), lambda _: None, "bench"):
        pass


def _settings(database: Database) -> Any:
    return read_settings({"FAIRLANE_DATABASE_URL": database.url, "FAIRLANE_TICK_MS": "60000"})


# --- What each moment costs ---------------------------------------------------------------------------------------

Act = Callable[["Worked"], Awaitable[int]]
"""Does something, and says how often."""


@dataclass
class Worked:
    """A service, which nothing comes to by itself, and what of it costs processor time."""

    name: str
    service: Service
    client: Any
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    held: list[Job] = field(default_factory=list)
    backends: list[Any] = field(default_factory=list)
    spent: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def core(self) -> Core:
        return self.service.core

    def some(self, count: int) -> list[JobRequest]:
        """Requests of tenants drawn by chance."""
        draw = self.chance.randrange
        return [JobRequest(tenant=f"tenant-{draw(TENANTS)}", test_suite="s1", priority=draw(11)) for _ in range(count)]

    async def measure(self, name: str, act: Act) -> None:
        """Microseconds for each time that it was done: the service's, and its database server's."""
        own, server = time.process_time(), self._server()
        times = await act(self)
        self.spent[name].append((1e6 * (time.process_time() - own) / times, 1e6 * (self._server() - server) / times))

    def cost(self, name: str) -> float:
        """Of the servers' time the mean: they count it in hundredths of a second."""
        own, server = zip(*self.spent[name], strict=True)
        return float(median(own) + mean(server))

    def _server(self) -> float:
        times = [backend.cpu_times() for backend in self.backends]
        return float(sum(each.user + each.system for each in times))


async def _submit(w: Worked) -> int:
    for request in w.some(60):
        await submit.submit(w.core, [request])
    return 60


async def _submit_batches(w: Worked) -> int:
    for _ in range(3):
        await submit.submit(w.core, w.some(BATCH))
    return 3 * BATCH


async def _claim(w: Worked) -> int:
    for _ in range(60):
        w.held += await dispatch.claim(w.core, ClaimRequest(worker="w", start=True))
    return 60


async def _claim_many(w: Worked) -> int:
    for _ in range(3):
        w.held += await dispatch.claim(w.core, ClaimRequest(worker="w", limit=BATCH, start=True))
    return 3 * BATCH


async def _complete(w: Worked) -> int:
    for _ in range(60):
        job = w.held.pop()
        await finish.complete(w.core, job.id, job.token or "")
    return 60


async def _complete_many(w: Worked) -> int:
    reports = [Report(job.id, job.token or "", finish.completed()) for job in w.held]
    await finish.report_each(w.core, reports)
    w.held.clear()
    return len(reports)


async def _tick(w: Worked) -> int:
    for _ in range(20):
        await w.service.ticker.tick()
    return 20


def _get(path: str) -> Act:
    async def get(w: Worked) -> int:
        for _ in range(5):
            (await w.client.get(path)).raise_for_status()
        return 5

    return get


ACTS: Final[Mapping[str, Act]] = {
    "submit": _submit,
    f"submit, {BATCH} at once": _submit_batches,
    "claim": _claim,
    f"claim, {BATCH} at once": _claim_many,
    "complete": _complete,
    f"complete, {3 * BATCH} at once": _complete_many,
    "tick": _tick,
    "GET /stats": _get("/stats"),
    "GET /metrics": _get("/metrics"),
    "the page": _get("/"),
}


async def flat(databases: Mapping[str, Database]) -> None:
    """Each act on each database, in turns."""
    async with AsyncExitStack() as stack:
        all_worked = []
        for name, database in databases.items():
            service = await stack.enter_async_context(running(_settings(database), lambda _: None, "bench"))
            await service.ticker.stop()
            await service.housekeeper.stop()
            client = await stack.enter_async_context(client_of(app_of(service)))
            all_worked.append(Worked(name, service, client))
        gc.collect()
        gc.freeze()
        for turn in range(ROUNDS + 1):
            for name, act in ACTS.items():
                for worked in all_worked if turn % 2 else reversed(all_worked):
                    await worked.measure(name, act)
            if turn == 0:  # to warm up; now there are connections, too
                for worked in all_worked:
                    worked.spent.clear()
                    worked.backends = await _backends(databases[worked.name])
        gc.unfreeze()
        few, many, history = all_worked
        for name in ACTS:
            base = few.cost(name)
            figure = f"{base:7.0f} us; {many.cost(name) / base:.2f} with {SIZE} queued, "
            figure += f"{history.cost(name) / base:.2f} with {FINISHED} finished"
            _say(databases["few"], name, figure)


async def _backends(database: Database) -> list[Any]:
    if database.kind == "sqlite":
        return []
    mine = "datname = current_database() AND application_name LIKE 'fairlane%'"
    return [psutil.Process(pid) for (pid,) in await database.fetch(f"SELECT pid FROM pg_stat_activity WHERE {mine}")]


def _say(database: Database, what: str, figure: str) -> None:
    sys.stdout.write(f"{database.kind:9} {what:52} {figure}\n")
    sys.stdout.flush()


async def _play(databases: Mapping[str, Database]) -> None:
    began = time.perf_counter()
    await fill(databases["few"], FEW, 0)
    await fill(databases["many"], SIZE, 0)
    await fill(databases["history"], FEW, FINISHED)
    _say(databases["few"], "all filled", f"{time.perf_counter() - began:.0f} s")
    await start(databases["few"], databases["many"])
    await flat(databases)


def main() -> None:
    """Print the figures."""
    with _stages() as stages:
        for databases in stages:
            asyncio.run(_play(databases))


if __name__ == "__main__":
    main()
