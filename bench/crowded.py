"""What ten thousand connections on which nothing is said cost the one on which requests come."""

from __future__ import annotations

from contextlib import AsyncExitStack

from bench.figures import P50, P99, Figure, percentile
from bench.rounds import Contender, Sample, in_turn
from bench.stage import SHOWN_AS, Stage
from tests.input.idle import as_many_as_may_be, connected, took_ms
from tests.served import Served, serving


async def crowded(stage: Stage) -> list[Figure]:
    """Usual requests, one after the other, of a service with idle connections and without."""
    many = min(stage.plan.idle, as_many_as_may_be())
    async with AsyncExitStack() as stack:
        contenders = []
        for kind, who in SHOWN_AS.items():
            database = await stack.enter_async_context(stage.database(kind))
            served = await stack.enter_async_context(serving(database.url))
            await took_ms(served)
            contenders += [_contender(f"{who}, {idle} idle connections", served, idle) for idle in (0, many)]
        return await in_turn("crowded", "usual requests", contenders, stage.plan.rounds)


def _contender(who: str, served: Served, idle: int) -> Contender:
    async def run() -> Sample:
        async with connected(served, idle):
            took = await took_ms(served)
        return {P50: percentile(took, 50), P99: percentile(took, 99)}

    return Contender(who, run)
