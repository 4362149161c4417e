"""How fast jobs come in, acknowledged only when they are durable: one by one from many clients, and many at once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from bench import floors
from bench.contenders import compared, loaded, submitting
from bench.figures import Figure
from bench.peers.process import PeerProcess
from bench.rounds import Contender, in_turn
from bench.served import Served
from bench.stage import BEANSTALKD, NO_OP_SERVER, SHOWN_AS, Stage
from bench.wire import batch, submits

BATCH_CLIENTS: Final = 4


async def one_by_one(stage: Stage) -> list[Figure]:
    """A request a job, from as many clients as the plan says."""
    plan = stage.plan
    async with AsyncExitStack() as stack:
        services = await _services(stage, stack)
        services[NO_OP_SERVER] = await stack.enter_async_context(stage.no_op())
        contenders = [
            loaded(who, served, submits(), jobs_each=1, connections=plan.clients, sec=plan.sec)
            for who, served in services.items()
        ]
        contenders += [
            submitting(who, peer, size=1, tasks=plan.clients, sec=plan.sec)
            for who, peer in (await _peers(stage, stack)).items()
        ]
        contenders += await _floors(stage, stack, 1, plan.clients)
        figures = await in_turn("submit", f"one by one, {plan.clients} clients", contenders, plan.rounds)
    return figures + compared(figures, _beside(floors.INSERT))


async def in_batches(stage: Stage) -> list[Figure]:
    """Many jobs a request."""
    plan, figures = stage.plan, list[Figure]()
    async with AsyncExitStack() as stack:
        services, peers = await _services(stage, stack), await _peers(stage, stack)
        for size in plan.sizes:
            contenders = [
                loaded(who, served, [batch(size)], jobs_each=size, connections=BATCH_CLIENTS, sec=plan.sec)
                for who, served in services.items()
            ]
            contenders += [
                submitting(who, peer, size=size, tasks=BATCH_CLIENTS, sec=plan.sec)
                for who, peer in peers.items()
                if peer.takes_many
            ]
            contenders += await _floors(stage, stack, size, BATCH_CLIENTS)
            came = await in_turn("batch", f"batches of {size}, {BATCH_CLIENTS} clients", contenders, plan.rounds)
            figures += came + compared(came, _beside(floors.UNNEST))
    return figures


def _beside(postgres_floor: str) -> dict[str, list[str]]:
    return {
        SHOWN_AS["postgres"]: [postgres_floor, BEANSTALKD.who],
        SHOWN_AS["sqlite"]: [floors.SQLITE, BEANSTALKD.who],
    }


async def _services(stage: Stage, stack: AsyncExitStack) -> dict[str, Served]:
    return {who: await stack.enter_async_context(stage.fairlane(kind)) for kind, who in SHOWN_AS.items()}


async def _peers(stage: Stage, stack: AsyncExitStack) -> dict[str, PeerProcess]:
    peers = {}
    for known in stage.peers:
        [peers[known.who]] = await stack.enter_async_context(stage.peer(known))
    return peers


async def _floors(stage: Stage, stack: AsyncExitStack, size: int, tasks: int) -> list[Contender]:
    postgres = await stack.enter_async_context(stage.database("postgres", migrated=False))
    sqlite = await stack.enter_async_context(stage.database("sqlite", migrated=False))
    of_postgres = floors.of_postgres(postgres.url, size=size, tasks=tasks, sec=stage.plan.sec)
    contenders = await stack.enter_async_context(of_postgres)
    return [*contenders, floors.of_sqlite(sqlite.url, size=size, sec=stage.plan.sec)]
