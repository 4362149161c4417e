"""Each call to the database fails once while the service starts: the start ends with a sentence and an exit code, or
goes on; nothing is lost or moved by that, and the next start serves."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from click.testing import CliRunner

from app import logs, main
from app.cli import main as program
from app.clock import Clock
from app.events import Event, ServerListening
from app.store import dispatcher, engine, migrate
from app.store.engine import Engines
from tests.databases import Database, Databases
from tests.effort import EFFORT, chance_of
from tests.flow.calls import FAULTS, FailingCall, Fault, watched
from tests.flow.harness import service

pytestmark = pytest.mark.torture

FEW: Final = 4
"""So many places are tried with little effort."""

NO_FAULT: Final = 0
"""A place at which there is no call."""

KEPT: Final = ("jobs", "job_attempts", "tenants", "queues", "lanes", "api_keys")
LONG_SEC: Final = 3600


@dataclass
class Start:
    """How a start of `fairlane serve` went. One that serves is told to end at once."""

    code: int
    output: str
    calls: int
    met: str | None
    events: list[Event] = field(default_factory=list)

    @property
    def has_served(self) -> bool:
        """Whether it listened."""
        return any(isinstance(event, ServerListening) for event in self.events)


def started(database: Database, place: int, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start the service in this process, and let its call at this place fail."""
    failing, events = FailingCall(place, fault), list[Event]()

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, ServerListening):
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched, ExitStack() as stack:

        def watching(opened: Any) -> Any:
            def open_watched(*args: Any, **kwargs: Any) -> Any:
                made = opened(*args, **kwargs)
                for each in (made.writer, made.reader) if isinstance(made, Engines) else (made,):
                    stack.enter_context(watched(each, failing))
                return made

            return open_watched

        for module, name in ((dispatcher, "open_engines"), (migrate, "open_engines"), (migrate, "open_migrator")):
            patched.setattr(module, name, watching(getattr(engine, name)))
        patched.setattr(main, "_rounds", lambda _: ())
        patched.setattr(logs, "start_logging", lambda *_: hear)
        settings = {"DATABASE_URL": database.url, "MIGRATE": "true", "PORT": "0", "KEYS": "required"}
        environ: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("FAIRLANE_"))
        environ |= {f"FAIRLANE_{name}": value for name, value in settings.items()}
        result = CliRunner().invoke(program, ["serve"], env=environ)
    error = result.exception if not isinstance(result.exception, SystemExit) else None
    assert error is None, (f"{place} {fault.name}: {failing.met}", traceback.format_exception(error))
    return Start(result.exit_code, result.output, failing.made, failing.met, events)


def trials(chance: random.Random, database: Database, calls: int) -> Iterator[tuple[int, Fault]]:
    """Which calls fail, and how: each with each fault, or a few by chance."""
    faults = FAULTS[database.kind]
    if EFFORT > 1:
        yield from ((place, fault) for place in range(1, calls + 1) for fault in faults)
    else:
        yield from ((place, chance.choice(faults)) for place in chance.sample(range(1, calls + 1), min(FEW, calls)))


def assert_said(start: Start, where: str) -> None:
    """It has served, or has said why not."""
    if start.code == 0:
        assert start.has_served, where
    else:
        assert start.code == 1, where
        assert start.output.startswith("Error: "), (where, start.output)
        assert len(start.output.strip().splitlines()) == 1, (where, start.output)


def test_any_call_of_a_start_may_fail(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(leave_behind(database))
    before, chance = asyncio.run(rows(database)), chance_of(f"start on {database.kind}")
    clean = started(database, NO_FAULT, FAULTS[database.kind][0], monkeypatch)
    assert (clean.code, clean.has_served) == (0, True)
    failed = 0
    for place, fault in trials(chance, database, clean.calls):
        start = started(database, place, fault, monkeypatch)
        where = f"{place} {fault.name}: {start.met}"
        assert_said(start, where)
        failed += start.code
        assert asyncio.run(rows(database)) == before, where
        again = started(database, NO_FAULT, fault, monkeypatch)
        assert (again.code, again.has_served) == (0, True), (where, again.output)
        assert asyncio.run(rows(database)) == before, where
    assert failed, "no start was ended by a fault"


def test_any_call_of_a_first_start_may_fail(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is all there or not at all, and the next start makes what is missing."""
    database = databases.create(migrated=False)
    chance = chance_of(f"first start on {database.kind}")
    clean = started(database, NO_FAULT, FAULTS[database.kind][0], monkeypatch)
    assert (clean.code, clean.has_served) == (0, True)
    databases.drop(database)
    database = databases.create(migrated=False)
    for place, fault in trials(chance, database, clean.calls):
        start = started(database, place, fault, monkeypatch)
        where = f"{place} {fault.name}: {start.met}"
        assert_said(start, where)
        stands = asyncio.run(migrate.status(database.url))
        assert stands.current in (None, stands.head), where
        if stands.current is not None:
            again = started(database, NO_FAULT, fault, monkeypatch)
            assert (again.code, again.has_served) == (0, True), (where, again.output)
            databases.drop(database)
            database = databases.create(migrated=False)
    last = started(database, NO_FAULT, FAULTS[database.kind][0], monkeypatch)
    assert (last.code, last.has_served) == (0, True), last.output
    databases.drop(database)


async def leave_behind(database: Database) -> None:
    """Jobs in every state, of a service that was killed."""
    async with service(database, clock=Clock()) as running:
        await running.submit("due later", delay_sec=LONG_SEC)
        for tenant in ("acme", "globex", "initech"):
            await running.submit(tenant, priority=5)
            await running.submit(tenant)
        await running.complete(await running.claim_one(start=True, lease_sec=LONG_SEC))
        await running.fail(await running.claim_one(start=True, lease_sec=LONG_SEC), retry=False)
        await running.claim_one(start=True, lease_sec=LONG_SEC)
        await running.claim_one(lease_sec=LONG_SEC)
        await running.cancel(await running.submit("umbrella"))
        await running.crash()


async def rows(database: Database) -> dict[str, list[str]]:
    """All that must not be lost."""
    return {table: sorted(str(row) for row in await database.fetch(f"SELECT * FROM {table}")) for table in KEPT}
