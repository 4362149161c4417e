"""What can go wrong with a call, one small tree. `str(error)` is a sentence for a person: the service's own where it
gave one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class FieldError(Struct, frozen=True):
    """One bad field of a request; `field` is a path such as `jobs[17].priority`."""

    field: str
    message: str


class FairlaneError(Exception):
    """The root: `except FairlaneError` catches all that a call raises by design."""


class Refused(FairlaneError):
    """The service understood and said no. Nothing was stored, and the same call again gets the same answer until
    something else changes. `status` is the HTTP status."""

    def __init__(self, sentence: str, status: int, details: Sequence[FieldError] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.details = tuple(details)


class InvalidRequest(Refused):
    """The request itself is wrong; `details` names every bad field."""


class Denied(Refused):
    """The key is missing or wrong, or its role may not do this."""


class NotFound(Refused):
    """There is no such job, tenant or queue, or it is another tenant's."""


class Conflict(Refused):
    """The state that the job is in forbids this; the sentence names the state."""


class LeaseLost(Conflict):
    """The token is not the job's present lease: it lapsed, or the job was cancelled. Stop working on the job."""


class KeyReused(Refused):
    """The idempotency key was used before with another request."""


class RateLimited(Refused):
    """The tenant submits faster than its rate allows, or has as many waiting jobs as it may, or too many wrong keys
    came from here. `retry_after` is in how many whole seconds the same call is admitted; None if no date can be
    promised. Raised only if the deadline left no time to wait."""

    def __init__(self, sentence: str, status: int, retry_after: int | None) -> None:
        super().__init__(sentence, status)
        self.retry_after = retry_after


class Unavailable(FairlaneError):
    """No answer that counts: the service is away, starting, stopping, or without its database. Raised when the
    deadline leaves no time for another try, or when the call must not be sent twice.

    `in_doubt` is whether the service may have carried out what was asked. `retry_after` is the seconds after which it
    asked to be tried again, if it did.
    """

    def __init__(self, sentence: str, *, in_doubt: bool, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.in_doubt = in_doubt
        self.retry_after = retry_after


class DeadlineExceeded(FairlaneError, TimeoutError):
    """The time was up while an answer was still awaited, or before the job that was waited for had ended.

    `in_doubt` is whether the service may have carried out what was asked.
    """

    def __init__(self, sentence: str, *, in_doubt: bool) -> None:
        super().__init__(sentence)
        self.in_doubt = in_doubt


class UnexpectedAnswer(FairlaneError):
    """Not an answer that Fairlane gives: a fault of the service (500), a proxy's error page, another service behind
    the address. `status` is its HTTP status, if it got that far. What was asked may have been carried out."""

    def __init__(self, sentence: str, status: int | None) -> None:
        super().__init__(sentence)
        self.status = status
