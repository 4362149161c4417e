"""Bodies on their way in: what they hold of the memory that there is for all of them, and of the time for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from app.api.front import Front
from app.api.intake import Intake
from app.clock import Clock
from app.main import Service
from tests.api.asgi import Call, app_of
from tests.flow.harness import until

JSON: Final = [(b"host", b"here"), (b"content-type", b"application/json")]
KIB: Final = 1024
JOB: Final = b'{"tenant": "acme", "test_suite": "smoke"}'
ROOM: Final = 100 * KIB


@pytest.fixture
def front(whole: Service) -> Front:
    """The service, with room for two bodies that are not small."""
    made = app_of(whole)
    made._intake.left_bytes = ROOM
    return made


def posted(size: int, path: bytes = b"/jobs", **more: Any) -> Call:
    """A job in a body so long, which comes in pieces."""
    body = JOB.rjust(size)
    return Call("POST", path, headers=JSON, body=[body[n : n + 16 * KIB] for n in range(0, size, 16 * KIB)], **more)


@asynccontextmanager
async def on_their_way(front: Front, count: int, size: int) -> AsyncIterator[None]:
    """So many bodies, all but their ends."""
    calls = [posted(size, is_complete=False) for _ in range(count)]
    tasks = [asyncio.create_task(call.of(front)) for call in calls]
    await until(lambda: front._intake.left_bytes == ROOM - count * (size - 64 * KIB))
    try:
        yield
    finally:
        for call in calls:
            call.hangs_up.set()
        await asyncio.gather(*tasks)


async def test_more_than_there_is_room_for_is_to_be_sent_again(front: Front) -> None:
    async with on_their_way(front, 2, 110 * KIB):
        refused = await posted(110 * KIB).of(front)
        assert refused.status == 503
        assert refused.answer_headers[b"retry-after"] == b"1"
        assert "send this again" in refused.answer["error"]
        assert (await posted(72 * KIB).of(front)).status == 201
    assert front._intake.left_bytes == ROOM
    assert (await posted(110 * KIB).of(front)).status == 201


async def test_small_bodies_always_get_through(front: Front) -> None:
    front._intake.left_bytes = 0
    assert (await posted(64 * KIB).of(front)).status == 201
    assert (await posted(64 * KIB + 1).of(front)).status == 503


@pytest.mark.parametrize("size", [64 * KIB, 110 * KIB, 300 * KIB, 1100 * KIB])
async def test_whatever_becomes_of_a_body_it_is_let_go(front: Front, size: int) -> None:
    for call in (
        posted(size),
        posted(size, b"/nowhere"),
        posted(size, b"/jobs/batch"),
        Call("GET", body=[b" " * size]),
    ):
        await call.of(front)
        assert front._intake.left_bytes == ROOM


async def test_a_body_that_does_not_come_is_not_waited_for(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "within_sec", 0.05)
    call = await posted(72 * KIB, is_complete=False).of(front)
    assert call.status == 408
    assert call.answer_headers[b"connection"] == b"close"
    assert "body" in call.answer["error"]
    assert front._intake.left_bytes == ROOM


async def test_a_body_that_has_come_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose turn to be decoded is later, and whoever waits for a job."""
    monkeypatch.setattr(Intake, "within_sec", 0.05)
    hangs_up = asyncio.Event()

    async def waits(_scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)
        assert (await receive())["more_body"] is False
        asyncio.get_running_loop().call_later(0.1, hangs_up.set)
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    call = Call("POST", headers=JSON, body=[JOB], hangs_up=hangs_up)
    assert (await call.of(Front(waits, lambda _: None, Clock()))).status == 204
