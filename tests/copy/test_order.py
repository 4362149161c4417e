"""A server on TO goes on where the one on FROM ended: what is queued comes out as it would have there, and workers keep
what they hold."""

from __future__ import annotations

import itertools

import pytest

from app.flow import lease, tenancy
from app.flow.submit import JobRequest
from app.flow.tenancy import TenantSettings
from app.store import copy as copies
from tests.copy.moving import Pair, everything, ignore
from tests.databases import KINDS
from tests.effort import EFFORT
from tests.flow.harness import FakeClock, Running, in_one_group, service, token_of
from tests.flow.scenes import POLICIES, Scene, assert_twins, set_up


async def set_up_more(s: Running) -> Scene:
    scene = await set_up(s)
    await in_one_group(
        s.core,
        tenancy.put_tenant(s.core, "paused", TenantSettings(weight=2)),
        *(s.submit("paused", f"paused {n}", priority=n % 2) for n in range(4)),
        *(s.submit("soon", f"soon {n}", delay_sec=5) for n in range(3)),
        *(s.submit("heavy", f"aside {n}", queue="aside") for n in range(3)),
    )
    await s.complete(await s.claim_one("aside", start=True), {"passed": 12})
    await s.fail(await s.claim_one("default", start=True))
    await tenancy.put_tenant(s.core, "paused", TenantSettings(weight=2, paused=True))
    await tenancy.put_queue(s.core, "aside", paused=True)
    return scene


async def go_on(s: Running, scene: Scene) -> None:
    """What workers, teams and time do once there is a service again."""
    await lease.heartbeat(s.core, scene.scheduled.id, token_of(scene.scheduled))
    await s.complete(scene.running)
    await s.release(scene.scheduled)
    await s.tick(after=10)
    await tenancy.put_tenant(s.core, "paused", TenantSettings(weight=2))
    await tenancy.put_queue(s.core, "aside", paused=False)
    await s.submit_all([JobRequest(tenant="paused", test_suite=f"new {n}", priority=n) for n in range(3)])


WAYS = list(itertools.product(itertools.product(KINDS, KINDS), POLICIES))
MOST_UNLIKE = [(("sqlite", "postgres"), "virtual-time"), (("postgres", "sqlite"), "penalty")]


@pytest.mark.torture
@pytest.mark.parametrize(("pair", "policy"), MOST_UNLIKE if EFFORT == 1 else WAYS, indirect=["pair"])
async def test_what_comes_out_is_what_would_have_come_out(pair: Pair, policy: str) -> None:
    clock = FakeClock()
    async with service(pair.source, clock=clock, policy=policy) as served:
        scene = await set_up_more(served)
    await pair.copy()
    moved = await everything(pair.target)
    await copies.reopen(pair.source.url, ignore)

    async with (
        service(pair.target, clock=clock.of_next_process(), policy=policy) as new,
        service(pair.source, clock=clock.of_next_process(), policy=policy) as old,
    ):
        assert await everything(pair.target) == moved  # a start changes nothing
        for each in (new, old):
            await go_on(each, scene)
        await assert_twins(new, old)
        numbers = [(await each.submit("last", "last")).seq for each in (new, old)]
        assert numbers[0] == numbers[1]
