"""A delayed job is queued when it says: the service sleeps until then, not until the next tick."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.databases import Database
from tests.served import serving


async def test_a_delayed_job_is_queued_long_before_the_next_tick(database: Database) -> None:
    async with serving(database.url, tick_ms=60_000) as served, served.client() as client:
        body = {"tenant": "acme", "test_suite": "suite", "delay_sec": 1}
        job = (await client.post("/jobs", json=body)).json()
        assert job["state"] == "pending"
        told = await served.logged("job_promoted", partial(_is_of, job["id"]))
        assert 0 <= told["late_ms"] < 20_000
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "queued"


def _is_of(job_id: str, event: dict[str, Any]) -> bool:
    return bool(event["job"] == job_id)
