"""How a call is carried out, without doing it: generators that yield what is to be sent and how long to pause, are
sent the answers, and return the result. `Client` and `AsyncClient` drive the same ones; a test drives them by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from app.client.errors import (
    Conflict,
    DeadlineExceeded,
    Denied,
    FairlaneError,
    FieldError,
    InvalidRequest,
    KeyReused,
    LeaseLost,
    NotFound,
    RateLimited,
    Refused,
    Unavailable,
    UnexpectedAnswer,
)
from app.client.retry import Terms, may_repeat

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_LEASE_LOST: Final = "the lease is lost"
_KINDS: Final[Mapping[int, type[Refused]]] = {
    HTTPStatus.BAD_REQUEST: InvalidRequest,
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.METHOD_NOT_ALLOWED: InvalidRequest,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidRequest,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: InvalidRequest,
    HTTPStatus.UNPROCESSABLE_ENTITY: KeyReused,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: InvalidRequest,
}
_LEAST_SEC: Final = 0.001
"""No socket takes a time that is up already, and there are deadlines of 0."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_AWAY: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be sent. `path` is percent-encoded and begins with a slash."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """What came back. `headers` by names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send this now; answer with its `Response`, or throw `Unavailable` if none came within `timeout_sec`."""

    request: Request
    timeout_sec: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for `sec` seconds; answer with None."""

    sec: float


Flow: TypeAlias = Generator[Send | Pause, Response | None, T]


class Operation(Protocol[T_co]):
    """What a client can carry out: one call or several."""

    def flow(self, terms: Terms) -> Flow[T_co]:
        """What is to be done, step by step."""
        ...


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of the service. `is_repeatable` is whether sending it twice does no more than sending it once;
    `wait_sec` is how long the service may hold it back by the caller's own wish."""

    request: Request
    read: Callable[[Response], T]
    is_repeatable: bool = True
    wait_sec: float = 0.0

    def flow(self, terms: Terms) -> Flow[T]:
        """Try until there is an answer, or until the deadline leaves no time for another try.

        Raises what `refusal` makes of an answer, `UnexpectedAnswer` for one that cannot be read, and
        `DeadlineExceeded` if the time was up in the midst of a try.
        """
        ends_at = terms.ends_at(self.wait_sec)
        was_in_doubt, tries = False, 0
        while True:
            tries += 1
            timeout_sec = max(_LEAST_SEC, min(terms.try_sec + self.wait_sec, ends_at - terms.now()))
            try:
                return self._answer((yield Send(self.request, timeout_sec)))
            except (RateLimited, Unavailable) as failure:
                if isinstance(failure, Unavailable):
                    failure.in_doubt = was_in_doubt = was_in_doubt or failure.in_doubt
                pause_sec = terms.backoff.pause(tries, terms.dice(), failure.retry_after)
                if not (terms.may_try_again(tries) and may_repeat(failure, is_repeatable=self.is_repeatable)):
                    raise
                _insist_on_time(ends_at - terms.now(), pause_sec, failure, tries)
                last = failure
            yield Pause(pause_sec)
            if terms.now() >= ends_at:  # a busy machine oversleeps
                raise _given_up(last, tries)

    def _answer(self, response: Response | None) -> T:
        if response is None:
            raise TypeError("a Send is answered with a Response")
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise refusal(response)
        try:
            return self.read(response)
        except _UNREADABLE as error:
            what = f"{self.request.method} {self.request.path}"
            raise UnexpectedAnswer(f"the answer to {what} cannot be read: {error}", response.status) from error


def _insist_on_time(left_sec: float, pause_sec: float, failure: FairlaneError, tries: int) -> None:
    """Raises if there is no time for another try."""
    if pause_sec < left_sec:
        return
    _given_up(failure, tries)
    if left_sec > 0:
        raise failure
    in_doubt = isinstance(failure, Unavailable) and failure.in_doubt
    raise DeadlineExceeded(f"the deadline has passed: {failure}", in_doubt=in_doubt) from failure


def _given_up(failure: FairlaneError, tries: int) -> FairlaneError:
    failure.add_note(f"given up after {tries} {'tries' if tries > 1 else 'try'}")
    return failure


class _Told(Struct):
    error: str
    details: list[FieldError] = []


def refusal(response: Response) -> FairlaneError:
    """The error that an answer other than 2xx stands for."""
    status, told = response.status, _told(response)
    sentence = told.error if told else f"the answer was {status}, and not in Fairlane's words"
    kind = _KINDS.get(status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited(sentence, status, retry_after(response))
    if status in _AWAY:
        return Unavailable(sentence, in_doubt=True, retry_after=retry_after(response))
    if told is None or kind is None:
        return UnexpectedAnswer(sentence, status)
    if kind is Conflict and told.error.startswith(_LEASE_LOST):
        kind = LeaseLost
    return kind(told.error, status, told.details)


def retry_after(response: Response) -> int | None:
    """The whole seconds of `Retry-After`. The header's other form, a date, is not believed: it would need two clocks
    to agree."""
    text = response.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _told(response: Response) -> _Told | None:
    try:
        return msgspec.json.decode(response.body, type=_Told)
    except _UNREADABLE:
        return None
