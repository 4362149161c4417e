"""`GET /jobs/{id}/explain`: every field is there in every state, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx
import pytest

from app.api.application import create_app
from app.flow.core import Core
from tests.api.asgi import Call
from tests.api.test_http_contract import NO_JOB, at, claimed, refused, submitted
from tests.flow.harness import PATIENCE_SEC

FIELDS: Final = "id state ahead ahead_exact ahead_by_tenant terms reasons estimate to_be_next bound"
TERMS: Final = """
    policy key virtual_time clock own_charges head_start step charge priority effective_priority weight cost due_at
    submitted_at seq
"""


async def explained(client: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(f"/jobs/{job['id']}/explain")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert list(told) == FIELDS.split()
    assert told["id"] == job["id"]
    assert all(list(reason) == ["code", "text"] for reason in told["reasons"])
    assert list(told["to_be_next"]) == ["changes", "text"]
    return told


async def test_a_queued_job(client: httpx.AsyncClient) -> None:
    await submitted(client, tenant="globex")
    job = await submitted(client, priority=3)
    told = await explained(client, job)
    assert (told["state"], told["ahead"], told["ahead_exact"]) == ("queued", 1, True)
    assert told["ahead_by_tenant"] == {"globex": 1}
    assert [reason["code"] for reason in told["reasons"]] == ["others_first", "no_worker"]
    assert sorted(told["terms"]) == sorted(TERMS.split())
    assert (told["terms"]["key"], told["terms"]["due_at"]) == (3.0, job["submitted_at"])
    assert told["bound"] == {
        "credit": 14.0,
        "of_weight_1": 15,
        "by_tenant": {"globex": 15},
        "text": told["bound"]["text"],
    }
    assert told["estimate"] is None


@pytest.mark.parametrize("state", ["pending", "scheduled", "cancelled"])
async def test_a_job_that_is_not_queued(client: httpx.AsyncClient, state: str) -> None:
    job = await submitted(client, **({"delay_sec": 60} if state == "pending" else {}))
    if state == "scheduled":
        await claimed(client)
    elif state == "cancelled":
        await client.post(f"/jobs/{job['id']}/cancel")
    told = await explained(client, job)
    codes = {"pending": "delayed", "scheduled": "leased", "cancelled": "final"}
    assert (told["state"], [reason["code"] for reason in told["reasons"]]) == (state, [codes[state]])
    assert {name: told[name] for name in ("ahead", "ahead_exact", "ahead_by_tenant", "terms", "estimate", "bound")} == {
        "ahead": None,
        "ahead_exact": False,
        "ahead_by_tenant": {},
        "terms": None,
        "estimate": None,
        "bound": None,
    }
    assert told["to_be_next"]["changes"] is None


async def test_what_is_refused(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    for job_id in (NO_JOB, "nonsense", job["id"].upper(), job["id"] + "0"):
        refused(await client.get(at(f"/jobs/{job_id}/explain")), 404, "job not found")
    refused(await client.get(f"/jobs/{job['id']}/explain?limit=1"), 400)
    refused(await client.post(f"/jobs/{job['id']}/explain"), 405)


async def test_the_document_has_it(client: httpx.AsyncClient) -> None:
    document = (await client.get("/schema")).json()
    responses = document["paths"]["/jobs/{job_id}/explain"]["get"]["responses"]
    assert {"200", "404", "503"} <= set(responses)
    schema = document["components"]["schemas"]["ExplainAnswer"]
    assert list(schema["properties"]) == FIELDS.split()
    assert sorted(schema["required"]) == sorted(FIELDS.split())
    code = document["components"]["schemas"]["Code"]
    assert sorted(code["enum"]) == sorted(
        ["delayed", "cap", "paused_tenant", "paused_queue", "others_first", "no_worker", "leased", "final"]
    )


@pytest.mark.parametrize("path", ["/jobs/{}/explain", "/page/jobs/{}"])
async def test_nobody_waits_in_line_who_has_hung_up(core: Core, client: httpx.AsyncClient, path: str) -> None:
    job = await submitted(client)
    call = Call(path=path.format(job["id"]).encode())
    call.hangs_up.set()
    async with core.sparing, asyncio.timeout(PATIENCE_SEC):  # it is somebody else's turn
        await call.of(create_app(core, lambda _: None))
    assert call.status == 499
