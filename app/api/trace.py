"""What the log is told of a request: its path as text that no terminal obeys and in which no key stands, and neither
query, header nor body."""

from __future__ import annotations

from traceback import format_exception
from typing import Final

from litestar.types import HTTPScope

from app.events import RequestFailed, RequestServed
from app.keys import ANYONE, without_secrets

_LONGEST: Final = 256


def request_served(scope: HTTPScope, status: int, took_ms: float) -> RequestServed:
    """The request was answered with `status`."""
    route = scope.get("path_template", "")  # Litestar leaves it there once it has found the route
    holder = scope.get("auth") or ANYONE  # the gate leaves it there
    return RequestServed(_printable(scope["method"]), _printable(scope["path"]), route, status, took_ms, holder.key_id)


def request_failed(scope: HTTPScope, error: Exception) -> RequestFailed:
    """The request met a fault of ours."""
    trace = "".join(format_exception(error))
    return RequestFailed(_printable(scope["method"]), _printable(scope["path"]), trace)


def _printable(text: str) -> str:
    text = without_secrets(text)
    if len(text) <= _LONGEST and text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_LONGEST])
    return shown if len(text) <= _LONGEST else shown + "..."
