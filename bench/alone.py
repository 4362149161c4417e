"""What one client waits for who is alone: nobody to share a commit with, nobody to wait behind."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Final

from bench.figures import P50, P99, Figure, percentile
from bench.rounds import Contender, Sample, in_turn
from bench.served import Served
from bench.stage import SHOWN_AS, Plan, Stage
from bench.wire import Connection, claim, claimed_in, finish, submits

_CALLS: Final = ("submit", "claim", "finish")


async def alone(stage: Stage) -> list[Figure]:
    """Submit, claim and finish, one after the other on one connection."""
    async with AsyncExitStack() as stack:
        contenders = []
        for kind, who in SHOWN_AS.items():
            served = await stack.enter_async_context(stage.fairlane(kind))
            contenders.append(_contender(who, served, stage.plan))
        return await in_turn("alone", "one client", contenders, stage.plan.rounds)


def _contender(who: str, served: Served, plan: Plan) -> Contender:
    async def run() -> Sample:
        took: dict[str, list[float]] = {call: [] for call in _CALLS}
        connection, [request, *_] = await Connection.to(served.address), submits()
        for _ in range(plan.pickups):
            times = [time.perf_counter()]
            await connection.ask(request)
            times.append(time.perf_counter())
            jobs = claimed_in(await connection.ask(claim("bench")))
            times.append(time.perf_counter())
            await connection.ask(finish(jobs))
            times.append(time.perf_counter())
            for call, since, until in zip(_CALLS, times, times[1:], strict=False):
                took[call].append((until - since) * 1000)
        connection.close()
        return {
            f"{call} {measure}": percentile(took[call], percent)
            for call in _CALLS
            for measure, percent in ((P50, 50), (P99, 99))
        }

    return Contender(who, run)
