"""The one place that knows how an event reads: as a line on a console, as JSON elsewhere. Nothing else in
Fairlane writes log text, and no event has a field for a payload, a token or a key's secret."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from app import events
from app.clock import rfc3339
from app.events import Emit, Event

_LEVELS: Final = ("debug", "info", "warning", "error")

_LEVEL_OF: Final[dict[type[Event], str]] = {
    events.AdminKeyMissing: "warning",
    events.DifferenceMended: "warning",
    events.DispatcherAwaited: "warning",
    events.DispatchTakenOver: "error",
    events.ForwardFailed: "debug",
    events.GroupCommitted: "debug",
    events.LeaseLapsed: "warning",
    events.LoopFailed: "error",
    events.ProposalRefused: "warning",
    events.RequestFailed: "error",
    events.RowSkipped: "error",
    events.SubmitRefused: "debug",
    events.WriterFailed: "error",
}
"""Everything else is `info`."""

_LINES: Final[dict[type[Event], Callable[[Any], str]]] = {
    events.SchemaMigrated: lambda e: f"[STORE] schema migrated from={e.old or 'nothing'} to={e.new}",
    events.SchemaAhead: lambda e: (
        f"[STORE] schema {e.current} is newer than this version's, {e.own}, and lets it go on"
    ),
    events.Recovered: lambda e: (
        f"[SCHEDULER] recovered queued={e.queued} pending={e.pending} leased={e.leased}"
        f" policy={e.policy} in {_ms(e.took_ms)}"
    ),
    events.DispatcherAwaited: lambda e: (
        f"[STORE] {e.holder} at {e.address} holds this database; waiting up to {_sec(e.wait_sec)} for a sign of it"
    ),
    events.DispatchTakenOver: lambda _: "[STORE] another server has taken over this database",
    events.DispatchBegun: lambda e: f"[REPLICA] dispatching, epoch={e.epoch}",
    events.DispatchHandedOver: lambda e: f"[REPLICA] handed over in {_ms(e.took_ms)}",
    events.StandingBy: lambda e: f"[REPLICA] standing by; {e.holder} dispatches at {e.address}",
    events.ForwardFailed: lambda e: f"[REPLICA] the dispatcher at {e.address} was not reached: {e.error}",
    events.SchedulerStarted: lambda e: f"[SCHEDULER] started with interval={e.interval_ms}ms",
    events.SchedulerStopped: lambda _: "[SCHEDULER] stopped",
    events.ServerListening: lambda e: f"[SERVER] listening on {e.host}:{e.port}",
    events.ServerDraining: lambda _: "[SERVER] shutting down gracefully...",
    events.ServerStopped: lambda _: "[SERVER] shutdown complete",
    events.RequestServed: lambda e: f"[API] {e.method} {e.path} {e.status} {_ms(e.took_ms)}",
    events.RequestFailed: lambda e: f"[API] {e.method} {e.path} failed\n{e.error}",
    events.JobPromoted: lambda e: (
        f"[SCHEDULER] promoted job={e.job} tenant={e.tenant} delay={_sec(e.delay_sec)} late={e.late_ms:.0f}ms"
    ),
    events.LeaseLapsed: lambda e: (
        f"[SCHEDULER] {e.outcome} job={e.job} tenant={e.tenant} worker={e.worker} now={e.state}"
    ),
    events.RowSkipped: lambda e: f"[SCHEDULER] skipped job={e.job}: {e.error}",
    events.ProposalRefused: lambda e: f"[SCHEDULER] dropped job={e.job}: its row was changed by hand",
    events.DifferenceMended: lambda e: f"[AUDIT] mended {e.count}, {e.what}: {', '.join(e.which)}",
    events.JobsRetired: lambda e: f"[STORE] deleted {e.count} jobs that had ended before {e.before}",
    events.TenantErased: lambda e: f"[STORE] erased tenant={e.tenant}",
    events.AdminKeyMissing: lambda _: (
        "[API] keys are required and no admin has one: make it with `fairlane keys create NAME --role admin`"
    ),
    events.KeyMade: lambda e: f"[API] made key={e.key_id} role={e.role} by={e.by or 'nobody named'}",
    events.KeyRevoked: lambda e: f"[API] took back key={e.key_id} by={e.by or 'nobody named'}",
    events.SettingsReread: lambda e: f"[SCHEDULER] settings reread tenants={e.tenants} queues={e.queues}",
    events.GroupCommitted: lambda e: (
        f"[STORE] committed writes={e.writes} in {_ms(e.took_ms)}, the commit in {_ms(e.commit_ms)}"
    ),
    events.SubmitRefused: lambda e: f"[API] refused tenant={e.tenant} for its {e.reason}",
    events.WriterFailed: lambda e: f"[STORE] writing failed for requests={e.requests}: {e.error}",
    events.LoopFailed: lambda e: f"[SCHEDULER] {e.loop} failed, retry in {_sec(e.retry_sec)}: {e.error}",
    events.HoursRolledUp: lambda e: f"[REPORTS] rolled up from={e.hour} until={e.until} rows={e.rows}",
    events.LibraryLogged: lambda e: f"[{e.logger.upper()}] {e.level}: {e.message}",
}


def start_logging(log_format: str, level: str, stream: TextIO | None = None) -> Emit:
    """A listener that writes each event of at least `level` to `stream` (standard output), and what
    libraries warn of. `log_format` is `console`, `json`, or `auto`: by whether `stream` is a terminal."""
    out = sys.stdout if stream is None else stream
    if log_format == "auto":
        log_format = "console" if out.isatty() else "json"
    render = _as_line if log_format == "console" else _as_json
    least = _LEVELS.index(level)

    def emit(event: Event) -> None:
        severity = level_of(event)
        if _LEVELS.index(severity) < least:
            return
        # A full disk or a closed pipe under the log must not stop a scheduler.
        with suppress(OSError, ValueError):
            out.write(render(event, severity) + "\n")
            out.flush()

    _listen_to_libraries(emit)
    return emit


def level_of(event: Event) -> str:
    """How much the event matters."""
    if isinstance(event, events.LibraryLogged):
        return event.level
    return _LEVEL_OF.get(type(event), "info")


def _as_line(event: Event, _severity: str) -> str:
    return _printable(_LINES[type(event)](event))


def _as_json(event: Event, severity: str) -> str:
    named = {f.name: getattr(event, f.name) for f in fields(event)}
    head = {"time": rfc3339(datetime.now(UTC)), "level": severity, "event": _snake(type(event).__name__)}
    return msgspec.json.encode(head | named).decode()


def _printable(line: str) -> str:
    """Names are chosen by clients: nothing in them may move the cursor of whoever reads the console."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in line)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _ms(took_ms: float) -> str:
    return f"{took_ms:.1f}ms"


def _sec(seconds: float) -> str:
    return f"{seconds:g}s"


class _Forward(logging.Handler):
    """Brings the warnings of libraries to where our own events go."""

    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        level = "warning" if record.levelno < logging.ERROR else "error"
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        self._emit(events.LibraryLogged(record.name, level, message))


def _listen_to_libraries(emit: Emit) -> None:
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Forward)]:
        root.removeHandler(handler)
    root.addHandler(_Forward(emit))
