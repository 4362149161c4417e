"""One hop over HTTP, to the replica that dispatches: the request as it came, the answer as it comes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
from litestar.types import HTTPResponseStartEvent, Send

from app.api.elsewhere import FORWARDED, Call
from app.api.errors import ROLE

_CONNECT_SEC: Final = 1.0
_SILENT_SEC: Final = 60.0
"""Longer than a claim may wait, and than a stream of events is silent: a machine that has vanished says nothing."""

_IDLE_SEC: Final = 2.0
"""Sooner than the other side hangs up on an idle connection: what is sent at that moment would be lost."""

_MOST_IDLE: Final = 64
_STANDBY: Final = 503

_OF_ONE_HOP: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110, 7.6.1; the length of a body is told anew."""


class NotTaken(Exception):
    """Nothing was done: the connection could not be made."""


class Refused(NotTaken):
    """Nothing was done: who answered does not dispatch, or not any longer."""


class BrokenOff(Exception):
    """It was sent, and no answer came, or not all of it: nobody knows what was done."""


class Forwarder:
    """Hands calls on. Connections are kept, and belong to no client."""

    def __init__(self, name: str) -> None:
        """`name` is what the other side is told of who hands it on."""
        self._name = name.encode("ascii", "replace")
        # Replicas speak plain HTTP to each other; a context that could verify would read all certificates at the start.
        self._no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._lines: set[httpx.AsyncHTTPTransport] = set()
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def close(self) -> None:
        """Hang up on everybody."""
        for line in [*self._lines]:  # each call that is cut off by it may take away its own
            await line.aclose()

    async def forward(self, address: str, call: Call, send: Send) -> None:
        """Have `call` answered at `address`. Raises `NotTaken`, `BrokenOff`; if that is raised after the answer has
        begun, what was sent of it is all that there is."""
        async with self._line() as line:
            try:
                response = await line.handle_async_request(self._request(address, call))
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL) as error:
                raise NotTaken(_told(error)) from error
            except httpx.TransportError as error:
                raise BrokenOff(_told(error)) from error
            try:
                await _pass_on(response, send)
            finally:
                await response.aclose()

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """One connection, or what will be one. A pool of httpx's looks at all that it has for each call, and keeps none
        once as many are in use as may be idle: the claims that wait would have every other call connect anew."""
        line = self._idle.pop() if self._idle else self._new_line()
        try:
            yield line
        finally:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
            else:
                self._lines.discard(line)
                await line.aclose()

    def _new_line(self) -> httpx.AsyncHTTPTransport:
        only = httpx.Limits(max_connections=1, keepalive_expiry=_IDLE_SEC)
        line = httpx.AsyncHTTPTransport(verify=self._no_tls, trust_env=False, limits=only)
        self._lines.add(line)
        return line

    def _request(self, address: str, call: Call) -> httpx.Request:
        scope = call.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = [*_end_to_end(scope["headers"]), (FORWARDED, self._name)]
        if call.body or scope["method"] in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", str(len(call.body)).encode()))
        timeouts = {"connect": _CONNECT_SEC, "pool": None, "read": _SILENT_SEC, "write": _SILENT_SEC}
        return httpx.Request(
            scope["method"],
            f"http://{address}/",
            headers=headers,
            content=call.body,
            extensions={"target": target, "timeout": timeouts},
        )


async def _pass_on(response: httpx.Response, send: Send) -> None:
    if response.status_code == _STANDBY and ROLE in response.headers:
        raise Refused("it does not dispatch")
    length = [*_length(response.headers.raw)]
    headers = [*_end_to_end(response.headers.raw, also=b"date"), *length]
    start: HTTPResponseStartEvent = {"type": "http.response.start", "status": response.status_code, "headers": headers}
    # Of a process that was killed between head and body nothing is passed on, so that another may be asked. A stream of
    # events has no length, and begins though there is none yet.
    has_begun = not length
    if has_begun:
        await send(start)
    try:
        async for chunk in response.stream:  # type: ignore[union-attr] # an asynchronous one gives no other
            if not has_begun:
                await send(start)
                has_begun = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except httpx.TransportError as error:
        raise BrokenOff(_told(error)) from error
    if not has_begun:
        await send(start)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], also: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Those that are meant for the other end, with names in lower case."""
    lowered = [(name.lower(), value) for name, value in headers]
    named = {name.strip().lower() for key, value in lowered if key == b"connection" for name in value.split(b",")}
    return ((name, value) for name, value in lowered if name not in _OF_ONE_HOP | named and name != also)


def _length(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers if name.lower() == b"content-length")


def _told(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()
