"""`make bench-reports`: what reports cost beside a month of a million jobs, on both databases one after the other in
one run: the roll-up of the month, the questions of docs/reporting.md, and a service at work with and without somebody
who reads reports all the time. As with `make bench`, compare figures of one run only."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import mean, median
from typing import Final

from sqlalchemy import text

from app.flow import dispatch, finish, rollup, submit
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.tick import Ticker
from app.main import running
from app.settings import read_settings
from app.store.engine import open_reports
from tests.bench import _databases
from tests.databases import Database
from tests.flow.harness import FakeClock, service
from tests.reports.million import END, JOBS, fill
from tests.reports.page import questions

ROUNDS: Final = 6
CYCLES: Final = 400
CLIENTS: Final = 16

READER: Final = """
import sys
from click.testing import CliRunner
from app.cli import main
reports = ("failures-by-suite", "tenants-by-hour", "fairness-by-hour", "workers")
while True:
    for name in reports:
        assert CliRunner().invoke(main, ["report", name, "--format", "csv"]).exit_code == 0
"""


async def bench(database: Database, jobs: int) -> None:
    """All figures of one database."""
    began = time.perf_counter()
    await fill(database, jobs)
    _say(database, f"{jobs} finished jobs written", f"{time.perf_counter() - began:.0f} s")
    await _roll_up(database)
    await _ask(database)
    await _beside_a_reader(database)


async def _roll_up(database: Database) -> None:
    async with service(database, clock=FakeClock(END)) as at_that_time:
        took, is_more = list[float](), True
        while is_more:
            began = time.perf_counter()
            is_more = await rollup.roll_up(at_that_time.core)
            took.append(1000 * (time.perf_counter() - began))
    _say(database, f"roll-up of {len(took)} hours", f"{sum(took) / 1000:.0f} s in all; an hour {_figures(took)}")


async def _ask(database: Database) -> None:
    engine = open_reports(database.url, 60)
    slowest = 0.0
    async with engine.connect() as connection:
        for question in questions():
            took = []
            for _ in range(3):
                began = time.perf_counter()
                (await connection.execute(text(question.sql))).all()
                took.append(1000 * (time.perf_counter() - began))
            slowest = max(slowest, *took)
            _say(database, question.title, _figures(took))
    await engine.dispose()
    _say(database, "the slowest of all", f"{slowest:.0f} ms")


async def _beside_a_reader(database: Database) -> None:
    """The same work in turn without and with a reader, so that a machine that gets slower is no finding."""
    settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
    figures: dict[str, dict[bool, list[float]]] = {}
    async with running(settings, lambda _: None, "bench") as made:
        for _ in range(ROUNDS):
            for is_read in (False, True):
                async with _reading(database) if is_read else _nobody():
                    for name, value in (await _work(made.core, made.ticker)).items():
                        figures.setdefault(name, {False: [], True: []})[is_read].append(value)
    for name, by_reader in figures.items():
        alone, beside = median(by_reader[False]), median(by_reader[True])
        _say(database, name, f"alone {alone:.2f}, beside a reader {beside:.2f}: ratio {beside / alone:.2f}")


async def _work(core: Core, ticker: Ticker) -> dict[str, float]:
    claims, ticks = list[float](), list[float]()
    numbers = iter(range(CYCLES))

    async def client(name: str) -> None:
        for _ in numbers:
            await submit.submit(core, [JobRequest(tenant=name, test_suite="s")])
            began = time.perf_counter()
            [job] = await dispatch.claim(core, ClaimRequest(worker=name, start=True, wait_sec=5))
            claims.append(1000 * (time.perf_counter() - began))
            await finish.complete(core, job.id, job.token or "")

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await ticker.tick()
            ticks.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    await asyncio.gather(*(client(f"c{number}") for number in range(CLIENTS)))
    took = time.perf_counter() - began
    ticking.cancel()
    return {
        "submit + claim + complete, a second": CYCLES / took,
        "a claim, ms": mean(claims),
        "a tick, ms": mean(ticks),
    }


@asynccontextmanager
async def _reading(database: Database) -> AsyncIterator[None]:
    """Somebody reads whole reports without a pause, in a process of their own."""
    environ = {**os.environ, "FAIRLANE_DATABASE_URL": database.url}
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, env=environ, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        await asyncio.sleep(3)  # until it has loaded what it needs
        assert reader.returncode is None
        yield
        assert reader.returncode is None
    finally:
        reader.kill()
        await reader.wait()


@asynccontextmanager
async def _nobody() -> AsyncIterator[None]:
    yield


def _figures(took: Sequence[float]) -> str:
    return f"p50 {median(took):.0f} ms, longest {max(took):.0f} ms"


def _say(database: Database, what: str, figure: str) -> None:
    sys.stdout.write(f"{database.kind:9} {what:64} {figure}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the figures. An argument says how many jobs the month had."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    with _databases() as databases:
        for database in databases:
            asyncio.run(bench(database, jobs))


if __name__ == "__main__":
    main()
