"""What may happen to one job, in every order: claims, reports under every token it was ever given, cancels, time that
passes, restarts. After each event the service says, holds and has written what the model of `model.py` says."""

from __future__ import annotations

import copy
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final, cast

import pytest
from sqlalchemy import Connection, CursorResult, Executable, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection

from app.flow.recover import recover
from app.scheduling.job import Attempt, Job
from app.scheduling.leases import Lease
from app.store import attempts, jobs
from tests.contract import model
from tests.contract.model import CALLS
from tests.contract.player import NEVER_GIVEN, Event, Player
from tests.databases import Database, Sqlite
from tests.effort import EFFORT, chance_of
from tests.flow.harness import Mortal, Running, mortal, service
from tests.flow.views import View, assert_memory_equals_sql, view_of_memory, view_of_sql

MAX_ATTEMPTS: Final = 2
LIVES: Final = 15 * EFFORT
LONGEST: Final = 14
ENDING: Final[tuple[Event, ...]] = ("cancel", "complete", "fail for good")


# --- Every sequence, on SQLite -----------------------------------------------------------------------------

Place = tuple[sqlite3.Connection, dict[str, dict[str, Any]]]


class File:
    """The database's file, looked at without a way round through the loop. It passes for a connection of the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(self, statement: Executable, given: dict[str, Any] | None = None) -> CursorResult[Any]:
        return self._connection.execute(statement, given or {})

    @property
    def raw(self) -> sqlite3.Connection:
        raw = self._connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        return raw


@contextmanager
def opened(database: Sqlite) -> Iterator[File]:
    engine = create_engine(f"sqlite:///{database.path}", isolation_level="AUTOCOMMIT")
    with closing(engine.connect()) as connection:
        yield File(connection)
    engine.dispose()


class Snapshots:
    """Takes a service on a SQLite file back to where it was: sequences with the same beginning share it, and none
    is played more than once."""

    def __init__(self, running: Running, file: sqlite3.Connection) -> None:
        self._running = running
        self._file = file

    def take(self) -> Place:
        """Where the service is now."""
        written = sqlite3.connect(":memory:")
        self._file.backup(written)
        return written, copy.deepcopy({name: state for name, (_, state) in self._memory().items()})

    def put_back(self, place: Place) -> None:
        """Be there again."""
        written, remembered = place
        written.backup(self._file)
        states = copy.deepcopy(remembered)
        for name, (owner, _) in self._memory().items():
            vars(owner).update(states[name])

    def rows(self) -> list[Any]:
        """All that the file holds, but who dispatches and the lanes, of which idle ones come and go."""
        tables = ("jobs", "job_attempts", "queues", "tenants")
        return [self._file.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]

    def _memory(self) -> dict[str, tuple[object, dict[str, Any]]]:
        core, ticker = self._running.core, self._running.ticker
        whole = {"order": core.order, "counts": core.counts, "leases": core.leases, "clock": core.clock}
        return {
            **{name: (owner, vars(owner)) for name, owner in whole.items()},
            "core": (core, {"forgotten_lanes": core.forgotten_lanes, "is_serving_soon": core.is_serving_soon}),
            "queued_since": (core.queued_since, {"_lines": core.queued_since._lines}),
            "ticker": (ticker, {"_forgot_at": ticker._forgot_at}),
        }


@dataclass
class Walked:
    """What a walk has come past."""

    events: int = 0
    too_late: int = 0
    seen: set[object] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)


class Walk:
    """A walk through all that may happen to one job. Every sequence of up to `whole` events is walked; a longer one
    only where it leads to something new."""

    def __init__(self, running: Running, file: File, *, whole: int, without: tuple[Event, ...] = ()) -> None:
        self._running = running
        self._file = file
        self._whole = whole
        self._without = without
        self._snapshots = Snapshots(running, file.raw)
        self.walked = Walked()

    async def from_here(self, player: Player) -> None:
        """Play every event after every sequence that is to be walked. An event that changes nothing is not gone on
        from: what follows it follows without it."""
        await self._compare(player)
        ways = [(0, player, self._snapshots.take())]
        while ways:
            length, before, place = ways.pop()
            for event in (event for event in before.events() if event not in self._without):
                self._snapshots.put_back(place)
                after = before.fork()
                await self._step(after, event)
                if after.model != before.model and await self._is_worth_more(after, length + 1):
                    ways.append((length + 1, after, self._snapshots.take()))

    async def _step(self, player: Player, event: Event) -> None:
        before, held = player.model, self._held()
        await player.play(event)
        if event == "restart":
            await self._running.core.writer._hang_up()
            await recover(self._running.core)
        await self._compare(player)
        if player.model == before and event != "heartbeat":
            assert self._held() == held, event
        self.walked.events += 1

    async def _is_worth_more(self, player: Player, length: int) -> bool:
        key = _what_matters(player.model)
        is_new, is_short = key not in self.walked.seen, length < self._whole
        self.walked.seen.add(key)
        if is_new or is_short:
            held, leases = self._held(), self._leases()
            self.walked.too_late += await player.say_all_that_is_too_late(NEVER_GIVEN if is_new else None)
            assert (self._held(), self._leases()) == (held, leases)
        if player.model.state in model.FINAL:
            self.walked.ends[player.model.state] += 1
            return is_new
        return is_new or is_short

    async def _compare(self, player: Player) -> None:
        connection = cast("AsyncConnection", self._file)
        await player.compare(connection)
        assert view_of_memory(self._running.core) == await view_of_sql(connection)

    def _held(self) -> tuple[list[Any], View]:
        return self._snapshots.rows(), view_of_memory(self._running.core)

    def _leases(self) -> dict[str, Lease]:
        return dict(self._running.core.leases._by_job)


def _what_matters(job: model.Job) -> object:
    """What the rest of a life depends on: of its ended attempts, only how their tokens are answered."""
    if job.state in model.FINAL:
        return job.state, job.attempt, job.ended[-1:]
    return replace(job, ended=()), frozenset(attempt.outcome for attempt in job.ended)


@pytest.mark.torture
@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize(
    ("timeout_sec", "whole", "without"),
    [(None, 3 + (EFFORT > 1), ()), (15, 2 + (EFFORT > 1), ("prioritize", "a moment"))],
    ids=["it may run for ever", "its time is limited"],
)
async def test_every_sequence_of_events_goes_as_the_model_says(
    sqlite: Sqlite, timeout_sec: int | None, whole: int, without: tuple[Event, ...]
) -> None:
    async with service(sqlite, sqlite_synchronous="normal") as running:
        job = await running.submit(max_attempts=MAX_ATTEMPTS, timeout_sec=timeout_sec)
        with opened(sqlite) as file:
            walk = Walk(running, file, whole=whole, without=without)
            await walk.from_here(Player(running, job, model.Job(MAX_ATTEMPTS, timeout_sec)))
    assert walk.walked.events > 1000
    assert walk.walked.ends.keys() == set(model.FINAL)


# --- At once -----------------------------------------------------------------------------------------------

AT_ONCE: Final[tuple[Event, ...]] = (*CALLS, "cancel", "prioritize")
BEGINNINGS: Final[dict[str, tuple[Event, ...]]] = {
    "queued": (),
    "released": ("claim", "release"),
    "scheduled": ("claim",),
    "running": ("claim and start",),
    "pending": ("claim and start", "fail"),
}


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_two_calls_of_one_transaction_are_answered_as_if_each_had_come_alone(
    database: Database, beginning: tuple[Event, ...]
) -> None:
    async with service(database) as running:
        calls = AT_ONCE if beginning else ("cancel", "prioritize")  # nobody has a token yet
        for pair in product(calls, repeat=2):
            await _play_at_once(running, beginning, pair)
        await assert_memory_equals_sql(running.core)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("start", ["claim", "claim and start"])
async def test_what_is_said_as_a_lease_ends_counts_if_it_came_first(database: Database, start: Event) -> None:
    async with service(database) as running:
        for pair in product((*AT_ONCE, "look"), repeat=2):
            if "look" in pair:
                await _play_at_once(running, (start,), pair, late=31)
        await assert_memory_equals_sql(running.core)


async def _play_at_once(running: Running, beginning: Sequence[Event], calls: Sequence[Event], late: float = 0) -> None:
    job = await running.submit(queue=f"{beginning} {calls}", max_attempts=MAX_ATTEMPTS)
    player = Player(running, job, model.Job(MAX_ATTEMPTS))
    for event in beginning:
        await player.play(event)
    running.clock.advance(late)
    player.model = model.passed(player.model, late)
    await player.play_at_once(calls)
    async with running.core.reading() as connection:
        await player.compare(connection)
    if player.model.state not in model.FINAL:
        await running.cancel(job)


# --- Long ones, on both databases --------------------------------------------------------------------------


@pytest.mark.torture
@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("timeout_sec", [None, 15], ids=["it may run for ever", "its time is limited"])
async def test_long_lives_with_real_restarts_go_as_the_model_says(database: Database, timeout_sec: int | None) -> None:
    chance = chance_of(f"lives on {database.kind}, {timeout_sec}")
    ends = Counter[str]()
    async with mortal(database) as mortal_:
        for number in range(LIVES):
            running, max_attempts = mortal_.running, chance.randint(1, 4)
            job = await running.submit(queue=f"queue {number}", max_attempts=max_attempts, timeout_sec=timeout_sec)
            player = Player(running, job, model.Job(max_attempts, timeout_sec))
            await _live(player, mortal_, chance)
            ends[player.model.state] += 1
            if player.model.state not in model.FINAL:
                await mortal_.running.cancel(job)
    assert ends.keys() >= set(model.FINAL)


async def _live(player: Player, mortal_: Mortal, chance: random.Random) -> None:
    for left in reversed(range(LONGEST)):
        # What ends a life is less likely than it would be by itself, until it has to end: long ones are what is not
        # walked elsewhere.
        events: Sequence[Event] = [e for e in player.events() if e not in ENDING or chance.random() < 0.4]
        if left < 3:
            events = ENDING if player.model.state in model.LEASED else ("claim and start",)
        event = chance.choice(events)
        if event == "restart":
            player.running = await mortal_.restart()
        await player.play(event)
        core = player.running.core
        async with core.reading() as connection:
            await player.compare(connection)
        await assert_memory_equals_sql(core)
        held = await _written(player), view_of_memory(core)
        await player.say_all_that_is_too_late(NEVER_GIVEN)
        assert (await _written(player), view_of_memory(core)) == held
        if player.model.state in model.FINAL and chance.random() < 0.3:
            return


async def _written(player: Player) -> tuple[Job | None, list[Attempt]]:
    async with player.running.core.reading() as connection:
        return await jobs.get(connection, player.id), await attempts.of_job(connection, player.id)
