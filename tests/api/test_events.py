"""Event streams as ASGI sees them: clients that hang up, that take nothing, and that are one too many."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.api import stream
from app.api.application import create_app
from app.flow.core import Core
from app.flow.watch import feed
from tests.api.asgi import Call
from tests.flow.harness import PATIENCE_SEC

PATHS = ("/events", "/page/changes")


async def _begun(call: Call) -> None:
    """Wait until something of its answer's body is sent."""
    async with asyncio.timeout(PATIENCE_SEC):
        while len(call.sent) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_watches_any_more_once_the_client_has_hung_up(core: Core, path: str) -> None:
    listening = len(core.moves._listeners)
    call = Call(path=path.encode())
    serving = asyncio.create_task(call.of(create_app(core, lambda _: None)))
    await _begun(call)
    assert core.feed.watchers == 1
    call.hangs_up.set()
    await serving
    assert core.feed.watchers == 0
    assert len(core.moves._listeners) == listening
    assert call.status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_drain_ends_it(core: Core, path: str) -> None:
    call = Call(path=path.encode())
    serving = asyncio.create_task(call.of(create_app(core, lambda _: None)))
    await _begun(call)
    core.waiting.end()
    await serving
    assert call.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    late = await Call(path=path.encode()).of(create_app(core, lambda _: None))
    assert late.sent[-1]["more_body"] is False
    assert core.feed.watchers == 0


async def test_a_client_that_takes_nothing_is_let_go(
    core: Core, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_STUCK_SEC", 0.01)
    never = asyncio.Event()

    class Stuck(Call):
        async def of(self, app: Any) -> Call:
            async def stuck(scope: Any, receive: Any, send: Any) -> None:
                async def first_two_only(message: Any) -> None:
                    if len(self.sent) == 2:
                        await never.wait()
                    await send(message)

                await app(scope, receive, first_two_only)

            return await super().of(stuck)

    call = Stuck(path=b"/events")
    serving = asyncio.create_task(call.of(create_app(core, lambda _: None)))
    await _begun(call)
    await client.post("/jobs", json={"tenant": "acme", "test_suite": "smoke"})
    async with asyncio.timeout(PATIENCE_SEC):
        await serving
    assert core.feed.watchers == 0
    assert len(call.sent) == 2


async def test_one_too_many_is_told_to_come_back(
    core: Core, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_WATCHERS", 1)
    with core.feed.watch():
        for path in PATHS:
            answer = await client.get(path)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "10"
    assert core.feed.watchers == 0
