"""How soon an idle worker begins a job: from the call that submits it until the worker has it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

from bench.figures import P50, P99, Figure, percentile
from bench.peers.process import PeerProcess
from bench.rounds import Contender, Sample, in_turn
from bench.served import Served
from bench.stage import SHOWN_AS, Plan, Stage
from bench.wire import Connection, claim, claimed_in, finish, submits

_PAUSE_SEC: Final = 0.005
_WAIT_SEC: Final = 30
_PATIENCE_SEC: Final = 60.0
_LONGEST_SEC: Final = 4.0
"""Of a run: a peer that misses a notification finds the job at its next look, seconds later."""


async def picked_up(stage: Stage) -> list[Figure]:
    """One job at a time, each when the worker is idle again."""
    async with AsyncExitStack() as stack:
        contenders = []
        for kind, who in SHOWN_AS.items():
            served = await stack.enter_async_context(stage.fairlane(kind))
            contenders.append(_service(who, served, stage.plan))
        for known in stage.peers:
            [peer] = await stack.enter_async_context(stage.peer(known))
            contenders.append(_peer(known.who, peer, stage.plan))
        return await in_turn("pickup", "a job for an idle worker", contenders, stage.plan.rounds)


def _service(who: str, served: Served, plan: Plan) -> Contender:
    async def run() -> Sample:
        submitter, worker = [await Connection.to(served.address) for _ in range(2)]
        took, [request, *_] = list[float](), submits()
        for _ in range(plan.pickups):
            waiting = asyncio.create_task(worker.ask(claim("bench", wait_sec=_WAIT_SEC)))
            await asyncio.sleep(_PAUSE_SEC)
            since = time.perf_counter()
            submitting = asyncio.create_task(submitter.ask(request))
            async with asyncio.timeout(_PATIENCE_SEC):
                jobs = claimed_in(await waiting)
            took.append((time.perf_counter() - since) * 1000)
            await submitting
            await worker.ask(finish(jobs))
        submitter.close()
        worker.close()
        return _sample(took)

    return Contender(who, run)


def _peer(who: str, peer: PeerProcess, plan: Plan) -> Contender:
    async def run() -> Sample:
        return _sample((await peer.do("pick_up", times=plan.pickups, sec=_LONGEST_SEC))["took_ms"])

    return Contender(who, run)


def _sample(took_ms: list[float]) -> Sample:
    return {P50: percentile(took_ms, 50), P99: percentile(took_ms, 99)}
