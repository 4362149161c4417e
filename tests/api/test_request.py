"""What a request is asked beside its body: whether its client still waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.api.errors import ClientGone
from app.api.request import CheckedRequest


def request_until(gone: asyncio.Event) -> CheckedRequest:
    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope: Any = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [],
        "query_string": b"",
        "litestar_app": None,
    }
    return CheckedRequest(scope, receive)


async def test_work_that_ends_first_is_the_answer() -> None:
    async def work() -> int:
        return 7

    async def undo(_: int) -> None:
        pytest.fail("the client got it")

    assert await request_until(asyncio.Event()).unless_gone(work(), undo) == 7


async def test_an_error_of_the_work_comes_through() -> None:
    async def work() -> int:
        raise ZeroDivisionError

    async def undo(_: int) -> None:
        pytest.fail("there is nothing to undo")

    with pytest.raises(ZeroDivisionError):
        await request_until(asyncio.Event()).unless_gone(work(), undo)


async def test_a_client_that_hangs_up_cancels_the_work() -> None:
    gone, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 7

    async def undo(_: int) -> None:
        pytest.fail("it never ended")

    with pytest.raises(ClientGone):
        await request_until(gone).unless_gone(work(), undo)
    assert cancelled.is_set()


async def test_work_that_could_not_be_stopped_is_undone() -> None:
    gone, undone = asyncio.Event(), []

    async def work() -> int:
        gone.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7  # a commit that was under way
        return 0

    async def undo(result: int) -> None:
        undone.append(result)

    with pytest.raises(ClientGone):
        await request_until(gone).unless_gone(work(), undo)
    assert undone == [7]


async def test_a_request_that_is_cancelled_takes_its_work_along() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 7

    async def undo(_: int) -> None:
        pytest.fail("it never ended")

    asking = asyncio.create_task(request_until(asyncio.Event()).unless_gone(work(), undo))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await cancelled.wait()
