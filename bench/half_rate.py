"""How long a call takes of a service that is at half of what it can do: open loop, each request timed from when it was
due, so that a stall counts for everybody who would have come in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Final

from bench.draining import fill
from bench.figures import GENERATOR, P50, P99, Figure, percentile
from bench.load import closed_loop, open_loop
from bench.rounds import Contender, Sample, in_turn
from bench.served import Served
from bench.stage import SHOWN_AS, Plan, Stage
from bench.traffic import paced, top_rate
from bench.wire import Connection, claim, claimed_in, submits

_CONNECTIONS: Final = 64
_CLAIMS_A_SEC: Final = 10_000
"""More than any service gives out to clients that claim one job each, so that the queue does not run empty."""

_RATE: Final = "at jobs/s"
_SUBMIT_P99: Final = "submit p99 ms"

Measured = Callable[[Served, Plan], Awaitable[Sample]]


async def at_half_rate(stage: Stage) -> list[Figure]:
    """Each kind of call alone, then all of them as in a day's work."""
    figures = []
    for row, measured in _ROWS.items():
        async with stage.fairlane("postgres") as postgres, stage.fairlane("sqlite") as sqlite:
            services = {SHOWN_AS["postgres"]: postgres, SHOWN_AS["sqlite"]: sqlite}
            contenders = [_contender(who, measured, served, stage.plan) for who, served in services.items()]
            figures += await in_turn("half rate", row, contenders, stage.plan.rounds)
    return figures


def _contender(who: str, measured: Measured, served: Served, plan: Plan) -> Contender:
    return Contender(who, lambda: measured(served, plan))


async def _submits(served: Served, plan: Plan) -> Sample:
    return await _half_of_the_top(served, plan, submits())


async def _claims(served: Served, plan: Plan) -> Sample:
    await fill(served.address, int(plan.sec * _CLAIMS_A_SEC))
    sample = await _half_of_the_top(served, plan, [claim("bench")])
    connection = await Connection.to(served.address)
    if not claimed_in(await connection.ask(claim("bench"))):
        raise RuntimeError("the queue ran empty: some of the claims had nothing to do")
    connection.close()
    return sample


async def _half_of_the_top(served: Served, plan: Plan, requests: list[bytes]) -> Sample:
    top = await closed_loop(served.address, requests, plan.clients, plan.sec)
    rate = len(top.took_ms) / top.sec / 2
    following = cycle(requests)
    taken = await open_loop(served.address, lambda _: next(following), _CONNECTIONS, rate, plan.sec)
    return {
        _RATE: rate,
        P50: percentile(taken.took_ms, 50),
        P99: percentile(taken.took_ms, 99),
        GENERATOR: taken.cpu_percent,
    }


async def _ways(served: Served, plan: Plan) -> Sample:
    rate = await top_rate(served, plan.clients, plan.sec) / 2
    taken, ways_ms = await paced(served, rate, plan.sec)
    return {
        _RATE: rate,
        P50: percentile(ways_ms, 50),
        P99: percentile(ways_ms, 99),
        _SUBMIT_P99: percentile(taken.took_ms, 99),
        GENERATOR: taken.cpu_percent,
    }


_ROWS: Final[dict[str, Measured]] = {
    "submits": _submits,
    "claims of one job": _claims,
    "all the way: from due until a worker has it": _ways,
}
