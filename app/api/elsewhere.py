"""What a replica that stands by does with a request that it cannot answer itself: once its sender is known to be let in
and its body is there, it is handed on to the one that dispatches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec
from litestar.types import ASGIApp, HTTPReceiveMessage, HTTPScope, Message, Receive, Scope, Send

from app.api.errors import ROLE
from app.api.request import BODY, CheckedRequest
from app.errors import NotDispatching

ANYWHERE: Final = "answered_anywhere"
"""Marks what every replica answers by itself: the database is all that it needs."""

TRIED_FIRST: Final = "tried_first"
"""Marks what a replica answers by itself if it can: a wrong key counts where it was shown, not as its own."""

FORWARDED: Final = b"fairlane-forwarded"
"""The header by which a replica sees that a request has come from another: it is never handed on again."""

_ROLE: Final = ROLE.encode()

RECEIVED: Final = "received"
"""Where the scope as the server handed it on is kept in the one that the application works on."""

_SAFE_TO_REPEAT: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE"})
_REPEATABLE_POSTS: Final = frozenset(
    {
        "/jobs/{job_id}/cancel",
        "/jobs/{job_id}/start",
        "/jobs/{job_id}/heartbeat",
        "/jobs/{job_id}/complete",
        "/jobs/{job_id}/fail",
        "/jobs/{job_id}/release",
        "/jobs/finish",
        "/jobs/heartbeat",
        "/tenants/{name}/erase",
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came in, with all of its body. `may_repeat` is whether to send it twice does no more than to send
    it once; `if_nothing_came` is what it is told, by type and body, if this replica ends while it waits."""

    scope: HTTPScope
    body: bytes
    may_repeat: bool
    if_nothing_came: tuple[bytes, bytes] | None

    def receiving(self, receive: Receive) -> Receive:
        """What an application receives that is handed this call."""
        return _replaying(self.body, receive)


def receiving_again(scope: Scope, receive: Receive) -> Receive:
    """What an application receives after one that has worked on `scope`."""
    body: bytes | None = cast("dict[str, Any]", scope).get(BODY)
    return receive if body is None else _replaying(body, receive)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what comes after it."""
    messages: list[HTTPReceiveMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        return messages.pop() if messages else await receive()

    return replayed


HandOn: TypeAlias = Callable[[Call, Receive, Send], Awaitable[None]]
"""Has a call answered by the replica that dispatches. Raises `Unavailable`."""


class Elsewhere:
    """The middleware behind the gate of a replica that stands by."""

    def __init__(self, app: ASGIApp, hand_on: HandOn) -> None:
        self._app = app
        self._hand_on = hand_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `NotDispatching` for what was handed on already, and what `HandOn` raises."""
        if scope["route_handler"].opt.get(ANYWHERE):
            await self._app(scope, receive, send)
            return
        if any(name == FORWARDED for name, _ in scope["headers"]):
            raise NotDispatching("this replica does not dispatch")
        call = await _call_of(CheckedRequest(scope, receive, send))
        if scope["route_handler"].opt.get(TRIED_FIRST):
            answer = UnlessNotOurs(send)
            await self._app(scope, call.receiving(receive), answer.send)
            if not answer.is_held_back:
                return
        await self._hand_on(call, receive, send)


class UnlessNotOurs:
    """Sends an answer, unless it says that this replica does not dispatch, and `is_elsewhere` says that another does
    or is about to."""

    def __init__(self, send: Send, is_elsewhere: Callable[[], bool] = lambda: True) -> None:
        self._send = send
        self._is_elsewhere = is_elsewhere
        self.is_held_back = False

    async def send(self, message: Message) -> None:
        """Takes what an application sends."""
        if message["type"] == "http.response.start":
            is_refusal = any(name == _ROLE for name, _ in message["headers"])
            self.is_held_back = is_refusal and self._is_elsewhere()
        if not self.is_held_back:
            await self._send(message)


async def _call_of(request: CheckedRequest) -> Call:
    scope = cast("dict[str, Any]", request.scope)
    body = await request.received()
    may_repeat = scope["method"] in _SAFE_TO_REPEAT or scope["path_template"] in _REPEATABLE_POSTS or _has_key(scope)
    return Call(scope[RECEIVED], body, may_repeat, _if_nothing_came(scope["path_template"], body))


def _has_key(scope: dict[str, Any]) -> bool:
    """Whether it submits one job under a key. Elsewhere the header means nothing."""
    return scope["path_template"] == "/jobs" and any(name == b"idempotency-key" for name, _ in scope["headers"])


class _Claim(msgspec.Struct):
    wait_sec: int = 0


def _if_nothing_came(template: str, body: bytes) -> tuple[bytes, bytes] | None:
    if template == "/events":
        return b"text/event-stream", b""
    if template == "/jobs/claim":
        with suppress(ValueError, RecursionError):  # what is wrong with it, the replica that dispatches says
            if msgspec.json.decode(body, type=_Claim).wait_sec > 0:
                return b"application/json", b'{"jobs":[]}'
    return None


def as_received(scope: Scope) -> Scope:
    """A copy of what the server has handed on: the application puts its own things into the scope, and into its state,
    such as that an answer has begun."""
    return cast("Scope", {**scope, "state": dict(scope.get("state") or {})})


def keep_as_received(scope: Scope) -> None:
    """Keep one in it."""
    cast("dict[str, Any]", scope)[RECEIVED] = as_received(scope)
