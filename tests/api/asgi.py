"""One ASGI call, message by message: for what no HTTP client would send, or would take for an error of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec
from litestar.types import ASGIApp

from app.api.application import create_app
from app.api.front import Front
from app.main import Service
from tests.flow.harness import Running

Headers = list[tuple[bytes, bytes]]


def app_of(service: Service | Running) -> Front:
    """The application as the service serves it, with its metrics."""
    return create_app(service.core, service.core.emit, service.meter.scrape)


def client_of(front: Front) -> httpx.AsyncClient:
    """A client of an application in this process."""
    transport = httpx.ASGITransport(front)  # type: ignore[arg-type] # Litestar's ASGI types are narrower than httpx's
    return httpx.AsyncClient(transport=transport, base_url="http://fairlane.test")


@dataclass
class Call:
    """A request as a server hands it on, and what came back."""

    method: str = "GET"
    path: bytes = b"/"
    query: bytes = b""
    headers: Headers = field(default_factory=lambda: [(b"host", b"here")])
    body: Iterable[bytes] = (b"",)
    is_complete: bool = True
    hangs_up: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Any] = field(default_factory=list)

    async def of(self, app: ASGIApp) -> Call:
        """Make the call. Once `hangs_up` is set, and its body has gone as far as it does, the client is gone."""
        scope: Any = {
            "type": "http",
            "http_version": "1.1",
            "method": self.method,
            "path": unquote(self.path.decode("ascii")),
            "raw_path": self.path,
            "query_string": self.query,
            "headers": self.headers,
            "root_path": "",
            "scheme": "http",
            "client": None,
            "server": None,
        }
        pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in self.body]
        pieces[-1]["more_body"] = not self.is_complete

        async def receive() -> Any:
            if pieces:
                return pieces.pop(0)
            await self.hangs_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.sent.append(message)

        await app(scope, receive, send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def answer_headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def answer(self) -> Any:
        return msgspec.json.decode(b"".join(message["body"] for message in self.sent[1:]))
