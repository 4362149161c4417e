"""The one file that knows HTTP statuses: which error is which status, how it reads on the wire, and what the OpenAPI
document says of it. An error that is not in the table is a fault of ours: it is told to `emit`, never to the client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any, Final

from litestar import MediaType, Request, Response
from litestar.exceptions import ClientException, MethodNotAllowedException, NotFoundException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.openapi.datastructures import ResponseSpec
from msgspec import json

from app.api.schemas import ErrorAnswer
from app.api.trace import request_failed
from app.errors import (
    Conflict,
    DispatchLost,
    FairlaneError,
    InvalidRequest,
    KeyReused,
    NoKey,
    NotAllowed,
    NotDispatching,
    NotFound,
    RateLimited,
    TooManyQueued,
    TooManyTries,
    Unavailable,
    Unfinished,
)
from app.events import Emit


class NoSuchPath(FairlaneError):
    """Nothing is served at this path."""

    def __init__(self) -> None:
        super().__init__("nothing is served at this path; GET /schema lists what is")


class WrongMethod(FairlaneError):
    """The path does not take this method; `Allow` says which it takes."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path takes {allowed}")
        self.allowed = allowed


class BodyTooLarge(FairlaneError):
    """The body is larger than this call takes."""

    def __init__(self) -> None:
        super().__init__("the body is too large: 1 MiB at most, and 16 MiB for a batch or for many reports")


class BodyTooSlow(FairlaneError):
    """The body has not arrived within a minute of its headers; the connection is closed."""

    def __init__(self) -> None:
        super().__init__("the body has not arrived within a minute of its headers")


class TooManyBodies(FairlaneError):
    """Large bodies on their way take all the memory that there is for them; nothing was stored."""

    def __init__(self) -> None:
        super().__init__("there are too many large bodies on their way; send this again in a moment")


class NotJson(FairlaneError):
    """The body does not say that it is JSON."""

    def __init__(self) -> None:
        super().__init__("the body must be sent as application/json in UTF-8")


class HeadersTooLarge(FairlaneError):
    """The request line and the headers are too long."""

    def __init__(self) -> None:
        super().__init__("the request line and the headers are longer than 32 KiB")


class ForeignForm(FairlaneError):
    """A form that does not stand on a page of this service asks for a change."""

    def __init__(self) -> None:
        super().__init__("this form was not sent from a page of this service; go there and try again")


class ClientGone(FairlaneError):
    """The client hung up before it was answered; nobody reads this."""

    def __init__(self) -> None:
        super().__init__("the client hung up")


ROLE: Final = "fairlane-role"
"""The header that tells another replica that nothing was done, for this one does not dispatch."""

FAULT: Final = 500
_STATUSES: Final[Mapping[type[Exception], int]] = {
    InvalidRequest: 400,
    NoKey: 401,
    ForeignForm: 403,
    NotAllowed: 403,
    NotFound: 404,
    NoSuchPath: 404,
    WrongMethod: 405,
    BodyTooSlow: 408,
    Conflict: 409,
    Unfinished: 409,
    BodyTooLarge: 413,
    NotJson: 415,
    KeyReused: 422,
    RateLimited: 429,
    TooManyQueued: 429,
    TooManyTries: 429,
    HeadersTooLarge: 431,
    ClientGone: 499,
    TooManyBodies: 503,
    Unavailable: 503,
    DispatchLost: 503,
}
_ANY_CALL: Final = (InvalidRequest, BodyTooSlow, BodyTooLarge, NotJson, HeadersTooLarge, TooManyBodies)
_ANY_CALL_WITH_KEY: Final = (NoKey, NotAllowed, TooManyTries)
_FAULT_SENTENCE: Final = "the service failed at this request; the fault is on its log"


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as it goes over the wire."""

    status: int
    sentence: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def is_our_fault(self) -> bool:
        return self.status == FAULT


def response_to(error: Exception) -> ErrorResponse:
    """What the client gets for any exception."""
    error = _ours(error)
    status = _status_of(type(error))
    sentence = _FAULT_SENTENCE if status == FAULT else str(error)
    details = list(error.details) if isinstance(error, InvalidRequest) else []
    body = json.encode(ErrorAnswer(error=sentence, details=details))
    return ErrorResponse(status, sentence, body, _headers(error))


def _ours(error: Exception) -> Exception:
    """The error of our own tree that Litestar's exception stands for."""
    match error:
        case NotFoundException():
            return NoSuchPath()
        case MethodNotAllowedException():
            allow = (error.headers or {}).get("allow", "")
            return WrongMethod(", ".join(sorted(set(allow.split(", ")) - {"OPTIONS"})))
        case RequestEntityTooLarge():
            return BodyTooLarge()
        case ClientException():
            return InvalidRequest("the request is malformed")
    return error


def _status_of(kind: type[Exception]) -> int:
    return next((_STATUSES[parent] for parent in kind.__mro__ if parent in _STATUSES), FAULT)


def _headers(error: Exception) -> dict[str, str]:
    match error:
        case WrongMethod(allowed=allowed):
            return {"allow": allowed}
        case NotDispatching(retry_after=seconds):
            return {"retry-after": str(seconds), ROLE: "standby"}
        case NoKey():
            return {"www-authenticate": 'Bearer realm="fairlane"'}
        case RateLimited(retry_after=seconds) | TooManyTries(retry_after=seconds) | Unavailable(retry_after=seconds):
            return {"retry-after": str(seconds)}
        case BodyTooSlow():
            return {"connection": "close"}
        case TooManyBodies() | DispatchLost():
            return {"retry-after": "1"}
    return {}


def error_handler(emit: Emit) -> Callable[[Request[Any, Any, Any], Exception], Response[bytes]]:
    """Litestar's handler of every exception."""

    def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        response = response_to(error)
        if response.is_our_fault:
            emit(request_failed(request.scope, error))
        return Response(response.body, status_code=response.status, headers=response.headers, media_type=MediaType.JSON)

    return handle


def raises(*kinds: type[Exception], needs_key: bool) -> dict[int, ResponseSpec]:
    """The answers that an operation gives beside its good one, for the OpenAPI document: those of `kinds`, those that
    any call may get, and 500."""
    meanings = defaultdict(list)
    for kind in (*_ANY_CALL, *(_ANY_CALL_WITH_KEY if needs_key else ()), *kinds):
        meanings[_status_of(kind)].append((getdoc(kind) or "").partition("\n\n")[0])
    meanings[FAULT].append("A fault of the service.")
    return {
        status: ResponseSpec(ErrorAnswer, generate_examples=False, description=" ".join(texts))
        for status, texts in sorted(meanings.items())
    }
