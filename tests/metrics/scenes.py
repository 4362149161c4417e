"""A service in which everything has happened that leaves a sample, so that every metric can be seen with its labels."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from app.errors import RateLimited
from app.flow import tenancy
from app.flow.tenancy import TenantSettings
from tests.api.asgi import app_of, client_of
from tests.flow.harness import Running


@dataclass(frozen=True)
class Family:
    """A metric: its kind, the labels it is queried by, and the names of its series."""

    kind: str
    labels: frozenset[str]
    series: frozenset[str]


async def everything_shown(running: Running) -> dict[str, Family]:
    """Every metric by its documented name, a counter's with `_total`."""
    await _let_all_happen(running)
    async with client_of(app_of(running)) as client:
        await client.get("/stats")
        text = (await client.get("/metrics")).text
    families = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        labels = {name for sample in family.samples for name in sample.labels}
        families[family.name + ("_total" if family.type == "counter" else "")] = Family(
            kind=family.type,
            labels=frozenset(labels - {"le"}),
            series=frozenset(sample.name for sample in family.samples),
        )
        assert family.samples, f"nothing has happened to {family.name}"
    return families


async def _let_all_happen(running: Running) -> None:
    await tenancy.put_tenant(running.core, "acme", TenantSettings(rate_per_sec=0.001, burst=2))
    await running.submit()
    await running.submit(delay_sec=1)
    with suppress(RateLimited):
        await running.submit()
    await running.tick(after=2)
    first = await running.claim_one(start=True)
    await running.claim_one()
    await running.complete(first)
