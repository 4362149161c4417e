"""Everything Fairlane refuses, one small tree with typed fields. `str(error)` is the sentence a person
reads; which HTTP status it becomes is known to `app.api.errors` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class FairlaneError(Exception):
    """The root of the tree."""


class IllegalMove(FairlaneError):
    """A job may not go from `old` to `new`: a fault of the caller's code, never of a request."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"a job cannot go from {old} to {new}")
        self.old = old
        self.new = new


class BadSettings(FairlaneError):
    """A setting that cannot be used; the sentence names it and says what it takes."""


class SchemaOutdated(FairlaneError):
    """The database's schema is not this version's; the sentence says which command mends it."""


class AnotherDispatcher(FairlaneError):
    """Another process dispatches on this database."""

    def __init__(self, holder: str, address: str) -> None:
        super().__init__(
            f"another Fairlane server dispatches on this database: {holder}, listening on {address}; "
            "stop it first, or give this one a database of its own"
        )
        self.holder = holder
        self.address = address


class NotServed(FairlaneError):
    """The database is half of a copy, or was copied away: nobody serves it. The sentence says what does instead."""


class DispatchLost(FairlaneError):
    """Another process has taken over this database; this one must not write any more."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One bad field of a request; `field` is a path such as `jobs[17].priority`."""

    field: str
    message: str


class InvalidRequest(FairlaneError):
    """A request with at least one bad field; `details` names them all."""

    def __init__(self, sentence: str, details: Sequence[FieldError] = ()) -> None:
        super().__init__(sentence)
        self.details = tuple(details)


class NotFound(FairlaneError):
    """There is no such job, tenant or queue."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} not found")


class Conflict(FairlaneError):
    """The state of a job forbids what was asked; the sentence names the state."""

    def __init__(self, sentence: str, state: str) -> None:
        super().__init__(sentence)
        self.state = state


class Unfinished(FairlaneError):
    """A tenant cannot be erased while a job of it is not final."""

    def __init__(self, tenant: str, jobs: int) -> None:
        super().__init__(
            f"tenant {tenant} has {jobs} unfinished jobs; cancel them, or let them end, before it is erased"
        )
        self.tenant = tenant
        self.jobs = jobs


class LeaseLost(Conflict):
    """The token is not the job's present lease. The worker must stop."""

    def __init__(self, state: str) -> None:
        super().__init__(f"the lease is lost: the job is {state}", state)


class KeyReused(FairlaneError):
    """An idempotency key came back with another request."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency key {key!r} was used before with another request")
        self.key = key


class RateLimited(FairlaneError):
    """The tenant's bucket is empty; a request `retry_after` whole seconds later is admitted."""

    def __init__(self, tenant: str, retry_after: int) -> None:
        super().__init__(f"tenant {tenant} submits faster than its rate allows; retry in {retry_after} s")
        self.tenant = tenant
        self.retry_after = retry_after


class TooManyQueued(FairlaneError):
    """The tenant has as many waiting jobs as its `max_queued` allows. No date can be promised."""

    def __init__(self, tenant: str, max_queued: int) -> None:
        super().__init__(f"tenant {tenant} already has {max_queued} waiting jobs, its limit")
        self.tenant = tenant
        self.max_queued = max_queued


class NoKey(FairlaneError):
    """There is no valid key with the request: none, a wrong one, one that was taken back or has run out."""

    def __init__(self) -> None:
        super().__init__("a valid key is needed: send Authorization: Bearer <key>")


class NotAllowed(FairlaneError):
    """The key's role may not do this."""


class TooManyTries(FairlaneError):
    """Too many wrong keys came from this address; another one is looked at `retry_after` whole seconds later."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many wrong keys came from this address; retry in {retry_after} s")
        self.retry_after = retry_after


class Unavailable(FairlaneError):
    """The database is away or the service is stopping. What was asked may have been stored."""

    def __init__(self, why: str, retry_after: int = 1) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class NotDispatching(Unavailable):
    """This replica does not dispatch, or does so no more: nothing was done, and another one can be asked."""
