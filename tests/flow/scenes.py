"""A service with something of everything in it, and a twin to compare it with."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from app.flow import tenancy
from app.flow.tenancy import TenantSettings
from app.scheduling.job import Job
from tests.flow.harness import Running, in_one_group
from tests.flow.views import assert_memory_equals_sql, drained, portrait

POLICIES: Final = ("virtual-time", "penalty")


@dataclass(frozen=True)
class Scene:
    """Jobs in every state that is not final, of tenants that differ."""

    running: Job
    scheduled: Job
    queued: Job
    pending: Job


async def set_up(service: Running) -> Scene:
    await in_one_group(
        service.core,
        tenancy.put_tenant(service.core, "heavy", TenantSettings(weight=3)),
        tenancy.put_tenant(service.core, "capped", TenantSettings(max_running=1)),
        *(service.submit("heavy", f"heavy {n}", priority=n % 3, cost=1 + n % 2) for n in range(6)),
        *(service.submit("capped", f"capped {n}", priority=2, queue=("default", "other")[n % 2]) for n in range(6)),
        *(service.submit("light", f"light {n}", priority=4, queue=("default", "other")[n // 4]) for n in range(6)),
    )
    running, scheduled = await service.claim_one(start=True), await service.claim_one()
    *_, pending, queued = await in_one_group(
        service.core,
        service.claim(3),
        service.submit("light", "later", delay_sec=600),
        service.submit("heavy", "withdrawn", priority=1),
    )
    return Scene(running, scheduled, queued, pending)


def much_at_once(service: Running, scene: Scene) -> list[Coroutine[Any, Any, Any]]:
    """One of everything that changes the order."""
    return [
        service.submit("late", "new"),
        service.complete(scene.running),
        service.claim(2),
        service.release(scene.scheduled),
        service.cancel(scene.queued),
        service.cancel(scene.pending),
        tenancy.put_tenant(service.core, "heavy", TenantSettings(weight=2, rate_per_sec=5)),
        tenancy.put_tenant(service.core, "capped", TenantSettings(paused=True)),
        service.claim(1, "other"),
    ]


async def assert_twins(service: Running, twin: Running) -> None:
    """They hold the same, and from now on the same comes out."""
    await assert_memory_equals_sql(service.core)
    assert await portrait(service.core) == await portrait(twin.core)
    assert await drained(service, "default", "other") == await drained(twin, "default", "other")
    assert await portrait(service.core) == await portrait(twin.core)
