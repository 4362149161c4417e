"""What happens, as named events with typed fields. The code emits them and writes no log text:
how an event reads, on a console or as JSON, is decided in `app.logs` alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events."""


@dataclass(frozen=True, slots=True)
class SchemaMigrated(Event):
    """The database's schema was brought from one revision (None: an empty database) to another."""

    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class SchemaAhead(Event):
    """The database has the schema of a newer version, one that says that this one may work on it."""

    current: str | None
    own: str


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """The state of the order was read from the database: at the start, or after a doubtful commit."""

    queued: int
    pending: int
    leased: int
    policy: str
    took_ms: float


@dataclass(frozen=True, slots=True)
class DispatcherAwaited(Event):
    """Another process held this database and has not renewed its claim yet; waiting for it to lapse."""

    holder: str
    address: str
    wait_sec: float


@dataclass(frozen=True, slots=True)
class SchedulerStarted(Event):
    """The ticker turns."""

    interval_ms: int


@dataclass(frozen=True, slots=True)
class SchedulerStopped(Event):
    """The ticker has ended."""


@dataclass(frozen=True, slots=True)
class ServerListening(Event):
    """Requests are taken."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ServerDraining(Event):
    """A signal asked the service to end."""

    signal: str


@dataclass(frozen=True, slots=True)
class ServerStopped(Event):
    """Everything is closed."""


@dataclass(frozen=True, slots=True)
class RequestServed(Event):
    """One HTTP request was answered. `path` carries no query; `route` is the path it was served under, with the
    names of its parameters, and empty if there is none; `key_id` says whose key it came with, where keys are asked
    for."""

    method: str
    path: str
    route: str
    status: int
    took_ms: float
    key_id: str | None


@dataclass(frozen=True, slots=True)
class JobPromoted(Event):
    """A delayed job was queued: `late_ms` after it was due."""

    job: str
    tenant: str
    delay_sec: float
    late_ms: float


@dataclass(frozen=True, slots=True)
class LeaseLapsed(Event):
    """A worker lost its lease, because it expired or the job's time was up."""

    job: str
    tenant: str
    worker: str
    outcome: str
    state: str


@dataclass(frozen=True, slots=True)
class RowSkipped(Event):
    """A job's row cannot be moved as its time demands; the others go on."""

    job: str
    error: str


@dataclass(frozen=True, slots=True)
class LibraryLogged(Event):
    """A library had something to say."""

    logger: str
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class ProposalRefused(Event):
    """The database no longer had a job as memory knew it: somebody changed the row by hand."""

    job: str


@dataclass(frozen=True, slots=True)
class DifferenceMended(Event):
    """The audit found memory and the database at odds over `count` things and mended them. `what` is the kind, `which`
    names the first of them."""

    what: str
    count: int
    which: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobsRetired(Event):
    """Finished jobs were deleted with their attempts, for they had ended before the time `before`."""

    count: int
    before: str


@dataclass(frozen=True, slots=True)
class TenantErased(Event):
    """Nothing is kept of this tenant any more."""

    tenant: str


@dataclass(frozen=True, slots=True)
class AdminKeyMissing(Event):
    """Keys are asked for, and there is no admin's: nobody can make others by the interface."""


@dataclass(frozen=True, slots=True)
class KeyMade(Event):
    """There is a new key; `by` is the id of the key that it was asked for with."""

    key_id: str
    role: str
    by: str | None


@dataclass(frozen=True, slots=True)
class KeyRevoked(Event):
    """A key was taken back; `by` is the id of the key that it was asked for with."""

    key_id: str
    by: str | None


@dataclass(frozen=True, slots=True)
class SettingsReread(Event):
    """Tenants or queues were changed by plain SQL and are now in force."""

    tenants: int
    queues: int


@dataclass(frozen=True, slots=True)
class HoursRolledUp(Event):
    """The figures of the hours from `hour` until `until` (RFC 3339) are kept, in so many rows; reports count them no
    more."""

    hour: str
    until: str
    rows: int


@dataclass(frozen=True, slots=True)
class WriterFailed(Event):
    """A group of writes could not be committed; `requests` of them were answered 503."""

    error: str
    requests: int


@dataclass(frozen=True, slots=True)
class GroupCommitted(Event):
    """A group of writes is durable: `took_ms` from its beginning on, of which COMMIT took `commit_ms`."""

    writes: int
    took_ms: float
    commit_ms: float


@dataclass(frozen=True, slots=True)
class SubmitRefused(Event):
    """A tenant submits too fast (`reason` is rate) or has too many jobs waiting (max_queued)."""

    tenant: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoopFailed(Event):
    """A background loop raised and is started again after `retry_sec`."""

    loop: str
    error: str
    retry_sec: float


@dataclass(frozen=True, slots=True)
class RequestFailed(Event):
    """A request met a fault of ours; the client got a 500 without the details."""

    method: str
    path: str
    error: str


@dataclass(frozen=True, slots=True)
class StandingBy(Event):
    """This replica answers, and another one dispatches."""

    holder: str
    address: str


@dataclass(frozen=True, slots=True)
class DispatchBegun(Event):
    """This replica dispatches, as the `epoch`th that has done so on this database."""

    epoch: int


@dataclass(frozen=True, slots=True)
class DispatchHandedOver(Event):
    """This replica is about to end and has let another one go on dispatching."""

    took_ms: float


@dataclass(frozen=True, slots=True)
class ForwardFailed(Event):
    """The replica that dispatches was not reached, or broke off; the request is sent again if that can do no harm."""

    address: str
    error: str


@dataclass(frozen=True, slots=True)
class DispatchTakenOver(Event):
    """Another process dispatches on this database now, and this one no more."""


Emit = Callable[[Event], None]
"""Takes an event to whoever listens. Must not block and must not raise."""
