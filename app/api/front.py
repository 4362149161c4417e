"""What stands before the application: a plain ASGI wrapper that refuses requests no server should let through,
counts those in flight and what they carry, tells the log of each, and lets neither a fault nor a client that hung up
reach the server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from app.api.errors import FAULT, HeadersTooLarge, NoSuchPath, response_to
from app.api.intake import Body, Intake
from app.api.trace import request_failed, request_served
from app.clock import Clock
from app.errors import InvalidRequest, Unavailable
from app.events import Emit

_MOST_BYTES: Final = 32 * 1024
_AROUND_A_HEADER: Final = len(": \r\n")
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]+)(:[0-9]*)?")

_CLOSE: Final = (b"connection", b"close")

_PLAIN_PATH: Final = re.compile(rb"(/[0-9A-Za-z._~-]+)+")

_ADDRESS: Final = re.compile(r"\[.*|\d+\.\d+\.\d+\.\d+")


class Front:
    """The ASGI application that the server runs."""

    def __init__(self, app: ASGIApp, emit: Emit, clock: Clock, hosts: str = "any") -> None:
        """`hosts` are the names, separated by commas, of which a request must name one; `any`: whatever it names."""
        self.in_flight = 0
        self.is_ending = False
        """Whether each answer is the last on its connection, so that its client goes elsewhere before this server has
        gone."""
        self._hosts = None if hosts == "any" else frozenset([*hosts.split(","), "localhost"])
        self._app = app
        self._emit = emit
        self._clock = clock
        self._intake = Intake()
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Whether no request is in flight, now or at some moment of the next `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            await self._serve(scope, _Exchange(Body(self._intake, receive), send, lambda: self.is_ending))
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: HTTPScope, exchange: _Exchange) -> None:
        started = self._clock.monotonic()
        self.in_flight += 1
        self._idle.clear()
        try:
            await self._answer(scope, exchange)
        finally:
            exchange.body.let_go()
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
            self._emit(request_served(scope, exchange.status, (self._clock.monotonic() - started) * 1000))

    async def _answer(self, scope: HTTPScope, exchange: _Exchange) -> None:
        try:
            refuse_malformed(scope)
            _refuse_foreign_host(scope, self._hosts)
        except (InvalidRequest, HeadersTooLarge, NoSuchPath) as refusal:
            await exchange.refuse(refusal)
            return
        try:
            await self._app(scope, exchange.body.receive, exchange.send)
        except Unavailable as refusal:  # before there was an application to answer so
            await exchange.refuse(refusal)
        except Exception as error:  # noqa: BLE001  # past here the server would answer it in its own words
            self._emit(request_failed(scope, error))
            if not exchange.started:
                await exchange.refuse(error)


class _Exchange:
    """One request and its answer, as far as they have got."""

    def __init__(self, body: Body, send: Send, is_last: Callable[[], bool]) -> None:
        self.body = body
        self._send = send
        self._is_last = is_last
        self.started = False
        self.status = FAULT

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            if self._is_last():
                message["headers"] = [*message["headers"], _CLOSE]
        try:
            await self._send(message)
        except OSError:
            return  # some servers say so where a client has hung up; there is nobody left to tell

    async def refuse(self, error: Exception) -> None:
        """Answer with `error` and let the connection go: what else stands on it cannot be trusted."""
        response = response_to(error)
        length = str(len(response.body))
        named = {
            "content-type": "application/json",
            "content-length": length,
            **response.headers,
            "connection": "close",
        }
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": response.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": response.body, "more_body": False})


def refuse_malformed(scope: HTTPScope) -> None:
    """Raises for a request that two parsers could read in two ways, and for one that is too large to look at."""
    headers = scope["headers"]  # with names in lower case, as ASGI wants them
    sizes = [len(name) + len(value) + _AROUND_A_HEADER for name, value in headers]
    if sum(sizes) + len(scope["raw_path"]) + len(scope["query_string"]) > _MOST_BYTES:
        raise HeadersTooLarge
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise InvalidRequest("the request must have exactly one Host header, a name or an address")
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        raise InvalidRequest("the request must have either Content-Length or Transfer-Encoding, not both")
    _refuse_ambiguous_path(scope["raw_path"])


def _refuse_foreign_host(scope: HTTPScope, ours: frozenset[str] | None) -> None:
    """Raises for a name that is not one of `ours`. Whoever owns a name can let it lead here, and a browser then takes
    this service for that site, whose scripts may do everything. An address is no name, and so is always taken."""
    if ours is None:
        return
    [host] = [value.decode() for name, value in scope["headers"] if name == b"host"]
    name = host if host.startswith("[") else host.partition(":")[0].lower().removesuffix(".")
    if name not in ours and not _ADDRESS.fullmatch(name):
        raise InvalidRequest("the request names a host that is not one of FAIRLANE_HOSTS")


def _refuse_ambiguous_path(raw_path: bytes) -> None:
    if _PLAIN_PATH.fullmatch(raw_path):
        return
    # Litestar drops empty segments and the last slash, and would take `/jobs//cancel` for `/jobs/cancel`.
    segments = raw_path.removeprefix(b"/").split(b"/") if raw_path != b"/" else []
    try:
        decoded = [unquote_to_bytes(segment).decode() for segment in segments]
    except UnicodeDecodeError:
        raise NoSuchPath from None
    if any(not segment or "/" in segment for segment in decoded):
        raise NoSuchPath
