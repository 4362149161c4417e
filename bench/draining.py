"""How fast waiting jobs are done: claimed and reported by workers in two processes of their own, many at a time, until
none is left."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from bench.contenders import compared, used
from bench.figures import GENERATOR, RATE, Figure
from bench.peers.environment import ROOT
from bench.peers.process import PeerProcess
from bench.rounds import Contender, Sample, in_turn
from bench.served import Served
from bench.stage import BEANSTALKD, SHOWN_AS, Known, Stage
from bench.wire import Address, Connection, batch

PROCESSES: Final = 2
_FILLED_AT_ONCE: Final = 1000


async def drained(stage: Stage) -> list[Figure]:
    """All the jobs of a queue, so many at a time."""
    return [figure for size in stage.plan.sizes for figure in await _drained_by(stage, size)]


async def fill(address: Address, jobs: int) -> None:
    """Have so many jobs wait."""
    connection = await Connection.to(address)
    for first in range(0, jobs, _FILLED_AT_ONCE):
        await connection.ask(batch(min(_FILLED_AT_ONCE, jobs - first)))
    connection.close()


async def _drained_by(stage: Stage, size: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        contenders = []
        for kind, who in SHOWN_AS.items():
            served = await stack.enter_async_context(stage.fairlane(kind))
            contenders.append(_service(who, served, size, stage.plan.drained))
        for known in stage.peers:
            if known.batches or size == stage.plan.sizes[0]:
                processes = await stack.enter_async_context(stage.peer(known, PROCESSES))
                contenders.append(_peer(known, processes, size))
        figures = await in_turn("drain", f"claim {size}, finish {size}", contenders, stage.plan.rounds)
    return figures + compared(figures, {ours: [BEANSTALKD.who] for ours in SHOWN_AS.values()})


def _service(who: str, served: Served, size: int, jobs: int) -> Contender:
    async def run() -> Sample:
        await fill(served.address, jobs)
        async with AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(_worker(served.address, size)) for _ in range(PROCESSES)]
            cpu = served.cpu_sec
            came = await asyncio.gather(*(_come_of(worker) for worker in workers))
            sample = _sample(came, jobs)
            return {**sample, **used(served.cpu_sec - cpu, jobs, jobs / sample[RATE])}

    return Contender(who, run)


@asynccontextmanager
async def _worker(address: Address, size: int) -> AsyncIterator[Process]:
    """A process that is ready to begin; it is gone in the end."""
    command = (sys.executable, "-m", "bench.worker", address.host, str(address.port), str(size))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError("a worker has not begun")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _come_of(worker: Process) -> dict[str, Any]:
    output, _ = await worker.communicate(b"begin\n")
    came: dict[str, Any] = json.loads(output)
    return came


def _peer(known: Known, processes: Sequence[PeerProcess], size: int) -> Contender:
    async def run() -> Sample:
        await processes[0].do("fill", jobs=known.drained)
        return _sample(await asyncio.gather(*(each.do("drain", size=size) for each in processes)), known.drained)

    return Contender(known.who, run)


def _sample(came: Sequence[dict[str, Any]], jobs: int) -> Sample:
    done = sum(each["jobs"] for each in came)
    if done != jobs:
        raise RuntimeError(f"{done} jobs of {jobs} were done")
    sec = max(each["ended"] for each in came) - min(each["began"] for each in came)
    return {RATE: jobs / sec, GENERATOR: 100 * sum(each["cpu_sec"] for each in came) / sec}
