"""Handlers in threads, and what a handler sees of its job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from msgspec import convert

from app.client import ClaimedJob, Context, Stopped, Worker
from app.client.threads import in_thread
from app.client.work import sendable
from tests.client.fake import FakeService, Trouble
from tests.served import PATIENCE_SEC

CLAIMED = convert(FakeService("job").job("job").shown(), ClaimedJob)


@asynccontextmanager
async def running(service: FakeService, handler: Any, **options: Any) -> AsyncIterator[Worker]:
    """A worker on the fake service, in real time."""
    worker = Worker(service.client(), handler, **({"lease_sec": 3, "grace_sec": 0} | options))
    task = asyncio.create_task(worker.run(handle_signals=False))
    async with asyncio.timeout(PATIENCE_SEC):
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await task


async def ended(service: FakeService, payload: Any) -> Any:
    """The result or the error of that job, once it has one."""
    job = service.job(payload)
    async with asyncio.timeout(PATIENCE_SEC):
        await service.until(lambda: job.state in ("completed", "failed"))
    return job.error if job.state == "failed" else job.result


# --- threads


async def test_a_thread_gives_what_the_function_gives() -> None:
    here = threading.get_ident()
    assert await in_thread(lambda argument: (argument, threading.get_ident() != here), 7, "name") == (7, True)


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(3), SystemExit(1)])
async def test_a_thread_raises_what_the_function_raises(error: BaseException) -> None:
    def fail(_: None) -> None:
        raise error

    with pytest.raises((type(error), RuntimeError)) as caught:
        await in_thread(fail, None, "name")
    assert error in (caught.value, caught.value.__cause__)  # a coroutine cannot raise StopIteration itself


async def test_an_interrupt_of_a_thread_does_not_interrupt_the_loop() -> None:
    def interrupted(_: None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="KeyboardInterrupt in a thread"):
        await in_thread(interrupted, None, "name")


async def test_a_thread_knows_the_context_it_was_begun_in() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("mine")
    assert await in_thread(lambda _: variable.get(), None, "name") == "mine"


async def test_a_thread_that_outlives_its_caller_is_let_go() -> None:
    may_end, did_end = threading.Event(), threading.Event()

    def linger(_: None) -> None:
        may_end.wait(PATIENCE_SEC)
        did_end.set()

    waiting = asyncio.create_task(in_thread(linger, None, "name"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    assert await asyncio.to_thread(did_end.wait, PATIENCE_SEC)


# --- blocking handlers


async def test_blocking_handlers_run_beside_each_other_each_in_a_thread() -> None:
    service = FakeService(*range(4))
    all_here = threading.Barrier(4)

    def handler(context: Context) -> str:
        all_here.wait(PATIENCE_SEC)
        return f"{context.job.payload} in {threading.current_thread().name}"

    async with running(service, handler, concurrency=4):
        for payload in range(4):
            assert await ended(service, payload) == f"{payload} in job {service.job(payload).id}"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no"), "ValueError: no"),
        (SystemExit(1), "SystemExit: 1"),
        (Stopped("by myself"), "Stopped: by myself"),
    ],
)
async def test_what_a_thread_raises_fails_its_job(error: BaseException, told: str) -> None:
    service = FakeService("job")

    def handler(_: Context) -> None:
        raise error

    async with running(service, handler):
        assert await ended(service, "job") == told


async def test_a_handler_may_be_anything_that_can_be_called() -> None:
    async def coroutine(context: Context, more: int = 0) -> Any:
        return context.job.payload + more

    class Callable:
        async def __call__(self, context: Context) -> Any:
            return context.job.payload

    def returns_a_coroutine(context: Context) -> Any:
        return coroutine(context)

    for handler in (coroutine, partial(coroutine, more=0), Callable(), returns_a_coroutine, lambda c: c.job.payload):
        service = FakeService(5)
        async with running(service, handler):
            assert await ended(service, 5) == 5


async def test_a_thread_is_told_to_stop_and_its_job_is_released() -> None:
    service = FakeService("job")
    begun, reasons = threading.Event(), []

    def handler(context: Context) -> str:
        begun.set()
        context.raise_if_stopped()
        assert context.wait_stopped(PATIENCE_SEC)
        reasons.append(context.stop_reason)
        context.raise_if_stopped()
        return "never"

    async with running(service, handler):
        assert await asyncio.to_thread(begun.wait, PATIENCE_SEC)
    assert service.states() == {"queued": 1}
    assert reasons == ["the worker ends"]


async def test_what_a_stopped_thread_returns_counts_for_nothing() -> None:
    service = FakeService("job")
    begun = threading.Event()

    def handler(context: Context) -> str:
        begun.set()
        context.wait_stopped(PATIENCE_SEC)
        return "too late"

    async with running(service, handler):
        assert await asyncio.to_thread(begun.wait, PATIENCE_SEC)
    assert not service.calls("finish")
    assert service.states() == {"queued": 1}


async def test_a_thread_that_never_ends_does_not_keep_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.worker._UNWIND_SEC", 0.1)
    service = FakeService("job")
    begun, may_end = threading.Event(), threading.Event()

    def handler(_: Context) -> None:
        begun.set()
        may_end.wait(PATIENCE_SEC)

    async with running(service, handler):
        assert await asyncio.to_thread(begun.wait, PATIENCE_SEC)
    assert service.states() == {"queued": 1}
    may_end.set()


async def test_a_thread_tells_its_progress() -> None:
    service = FakeService("job")

    def handler(context: Context) -> None:
        context.set_progress(0.25)
        context.wait_stopped(0.1)

    async with running(service, handler):
        await ended(service, "job")
    assert [beat.body["progress"] for beat in service.calls("heartbeat")] == [0.25]


async def test_a_worker_is_stopped_from_any_thread() -> None:
    service = FakeService()
    service.troubles["claim"].append(Trouble())
    worker = Worker(service.client(), lambda _: None)
    task = asyncio.create_task(worker.run(handle_signals=False))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(worker.stop)
    await asyncio.wait_for(task, PATIENCE_SEC)


# --- the context


def test_a_context_is_stopped_once_and_keeps_the_first_reason() -> None:
    context = Context(CLAIMED, lambda _: None)
    assert (context.is_stopped, context.stop_reason, context.wait_stopped(0)) == (False, None, False)
    context.raise_if_stopped()
    context.stop("first")
    context.stop("second")
    assert (context.is_stopped, context.stop_reason, context.wait_stopped(0)) == (True, "first", True)
    with pytest.raises(Stopped, match="first"):
        context.raise_if_stopped()


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan"), float("inf")])
def test_progress_is_between_nothing_and_all(progress: float) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        Context(CLAIMED, lambda _: None).set_progress(progress)


def test_progress_is_told_as_it_is() -> None:
    told: list[float] = []
    context = Context(CLAIMED, told.append)
    context.set_progress(0)
    context.set_progress(1)
    assert told == [0.0, 1.0]


def test_an_error_is_sent_as_the_service_takes_it() -> None:
    assert sendable("plain ü 世") == "plain ü 世"
    assert sendable("nul \0, surrogate \udcff") == "nul \\0, surrogate \\udcff"
    assert len(sendable("x" * 1_000_000)) == 8192
