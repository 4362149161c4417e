"""Runs blocking handlers beside the event loop, each in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import NoReturn, TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def in_thread(function: Callable[[A], T], argument: A, name: str) -> T:
    """What `function` returns or raises.

    The thread is a daemon: at its end Python waits for the threads of a pool, and a handler that never returns must
    not keep a worker that was told to end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Callable[[], T]] = loop.create_future()

    def work() -> None:
        outcome = _outcome(function, argument)
        with suppress(RuntimeError):  # the loop is closed, and nobody is left who wants to know
            loop.call_soon_threadsafe(tell, outcome)

    def tell(outcome: Callable[[], T]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return (await ended)()


def _outcome(function: Callable[[A], T], argument: A) -> Callable[[], T]:
    """What gives what the function gave: a future would not take every exception."""
    try:
        result = function(argument)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it is raised again by whoever awaits the thread
        return partial(_raise, error)
    except BaseException as error:  # noqa: BLE001  # an interrupt is meant for this thread, not for the event loop
        return partial(_raise, RuntimeError(f"{type(error).__name__} in a thread"))
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error
