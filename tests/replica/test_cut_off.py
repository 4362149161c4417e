"""The dispatcher loses its way to the database and nothing else: it goes on answering, and nothing of what it says is
out of a memory that is not true any more."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.effort import EFFORT
from tests.faults.postgres import OwnPostgres
from tests.faults.proxy import Proxy
from tests.replica.several import claimed, replicas_on, submitted, until

_LONG = pytest.mark.skipif(EFFORT == 1, reason="it takes long: make torture")


@pytest.mark.torture
@pytest.mark.parametrize(
    "strand",
    [
        pytest.param(False, id="and what stalled flows on"),
        pytest.param(True, id="and what stalled is lost", marks=_LONG),
    ],
)
async def test_a_dispatcher_that_is_cut_off_is_followed(own: OwnPostgres, *, strand: bool) -> None:
    proxy = Proxy(own.socket)
    async with (
        proxy.run(),
        replicas_on(own.database, 2, own.through(proxy), leader_ttl_sec=1) as made,
        made.all[0].client() as by_first,
        made.all[1].client() as by_second,
    ):
        queued = [await submitted(by_first, f"before-{n}") for n in range(3)]
        proxy.stall()
        refused = await by_first.post("/jobs/claim", json={"worker": "w"})
        assert refused.status_code == 503
        await made.all[1].logged("dispatch_begun")
        assert [job["id"] for job in await claimed(by_second)] == [queued[0]["id"]]
        unknown = await by_first.get("/stats")  # nothing was done, and another one can be asked
        assert (unknown.status_code, unknown.headers["fairlane-role"], unknown.headers["retry-after"]) == (
            503,
            "standby",
            "1",
        )
        assert (await by_first.get("/health/ready")).status_code == 503
        await submitted(by_second, "meanwhile")

        proxy.heal(strand=strand)
        await made.all[0].logged("dispatch_taken_over")
        await until(lambda: _is_ready(by_first))
        assert (await by_first.get("/stats")).json()["queue_depth"] == 3
        assert [job["id"] for job in await claimed(by_first, limit=2)] == [job["id"] for job in queued[1:]]
        attempts = await asyncio.gather(*(by_second.get(f"/jobs/{job['id']}") for job in queued))
        assert [answer.json()["attempt"] for answer in attempts] == [1, 1, 1]
        assert await made.epoch() == 2


async def _is_ready(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/health/ready")).json().get("role") == "standby")
