"""`make bench-reports`: what reports cost beside a month of a million jobs, on both databases one after the other in
one run: the roll-up of the month, the questions of docs/reporting.md, and a service at work with and without somebody
who reads reports all the time. As with `make bench`, compare figures of one run only."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
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
from bench.stage import own_databases
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, FakeClock, service
from tests.reports.million import END, JOBS, fill
from tests.reports.page import questions

ROUNDS: Final = 40
CYCLES: Final = 60
CLIENTS: Final = 16

READER: Final = """
import asyncio, os
from sqlalchemy import text
from app.store.engine import open_reports
from tests.reports.page import questions

async def read():
    engine = open_reports(os.environ["FAIRLANE_DATABASE_URL"], 86400)
    async with engine.connect() as connection:
        print("begun", flush=True)
        while True:
            for question in questions():
                (await connection.execute(text(question.sql))).all()
            await connection.rollback()

asyncio.run(read())
"""
"""Somebody asks the questions of the page, one after the other, without a pause."""

SPINNER: Final = """
print("begun", flush=True)
while True: pass
"""
"""What of it is the machine's and not the database's: somebody needs as much of a processor and reads nothing."""

BESIDE: Final = {"alone": None, "a spinner": SPINNER, "a reader": READER}


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
    """The same work alone and beside another process, in turns so short that what else the machine does is shared."""
    settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
    figures: dict[str, dict[str, list[float]]] = {}
    async with running(settings, lambda _: None, "bench") as made, AsyncExitStack() as stack:
        processes = {
            beside: await stack.enter_async_context(_stopped(database, program)) for beside, program in BESIDE.items()
        }
        await _work(made.core, made.ticker)
        for _ in range(ROUNDS):
            for beside, process in processes.items():
                with _going_on(process):
                    for name, value in (await _work(made.core, made.ticker)).items():
                        figures.setdefault(name, {}).setdefault(beside, []).append(value)
    for name, by_process in figures.items():
        middle = {beside: median(values) for beside, values in by_process.items()}
        alone, spinner, reader = (middle[beside] for beside in BESIDE)
        shown = ", ".join(f"{beside} {value:.1f}" for beside, value in middle.items())
        _say(database, name, f"{shown}: a reader to alone {reader / alone:.2f}, to a spinner {reader / spinner:.2f}")


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
async def _stopped(database: Database, program: str | None) -> AsyncIterator[Process | None]:
    """A process of its own that has begun its work, and stands still."""
    if program is None:
        yield None
        return
    environ = {**os.environ, "FAIRLANE_DATABASE_URL": database.url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=environ, stdout=PIPE, stderr=DEVNULL
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_SEC):
            if not await process.stdout.readline():
                raise RuntimeError("the process beside has not begun")
        process.send_signal(signal.SIGSTOP)
        yield process
        if process.returncode is not None:
            raise RuntimeError("the process beside has ended")
    finally:
        process.kill()
        await process.wait()


@contextmanager
def _going_on(process: Process | None) -> Iterator[None]:
    if process is None:
        yield
        return
    process.send_signal(signal.SIGCONT)
    yield
    process.send_signal(signal.SIGSTOP)


def _figures(took: Sequence[float]) -> str:
    return f"p50 {median(took):.0f} ms, longest {max(took):.0f} ms"


def _say(database: Database, what: str, figure: str) -> None:
    sys.stdout.write(f"{database.kind:9} {what:64} {figure}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the figures. An argument says how many jobs the month had."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    with own_databases() as (databases, _):
        for made in databases.values():
            asyncio.run(bench(made.create(), jobs))


if __name__ == "__main__":
    main()
