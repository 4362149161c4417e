"""A seed is played: one service after another on one file, in one loop each, with everything from outside drawn from
the seed: who sends what, which call of the database is answered next, or fails, or is the last before a kill."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from app import main
from app.events import DifferenceMended, Event, LoopFailed, ProposalRefused, Recovered, RowSkipped, WriterFailed
from app.flow import finish, ids
from app.flow.audit.audit import audit
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.tenancy import TenantSettings
from app.main import Service
from app.scheduling.scheduler import Policy, step_units
from app.settings import PREFIX, Settings, read_settings
from app.store import dispatcher, transaction
from app.store.answers import ANSWER_SEC
from app.store.engine import open_engines
from app.store.schema import metadata
from tests.contract.model import FINAL, LEASED
from tests.databases import Sqlite, SqliteDatabases
from tests.flow.harness import HOUR, FakeClock, until_idle
from tests.flow.views import View, view_of_memory, view_of_sql
from tests.simulation.clients import Clients
from tests.simulation.driver import Call, Connection, Handles, opened, simulated_driver
from tests.simulation.loop import SimulatedLoop
from tests.simulation.nature import QUEUES, TENANTS, Nature, nature_of
from tests.simulation.requests import Box, Claim, ReportMany, SetQueue, SetTenant
from tests.simulation.witness import Row, Witness, Wrong
from tests.twin import Step, Twin, read_history, relive

_BEGINNING: Final = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
_MOST_TURNS: Final = 20_000
_MOST_LIVES: Final = 4
_JUMPS: Final = (0.4, 1.1, 3.7, 9.0, 11.5, 31.0, 47.0)
INJECTED: Final = "injected"

_FILLED: Final = (*(table.name for table in reversed(metadata.sorted_tables)), "sqlite_sequence")
"""The tables that a service fills, those that refer to others before these."""


class Killed(BaseException):
    """The process is gone, between two instructions."""


class Broken(Exception):
    """Something was found to be wrong; why is in the world's `wrong`."""


@dataclass
class Ended:
    """What became of a seed: `wrong` is None if all was well. `counted` is what it came past."""

    seed: str
    length: int
    nature: Nature
    trace: list[str]
    wrong: BaseException | None
    counted: Counter[str]


class Stage:
    """The file and the engines that all seeds of a process share: the schema is read once, statements are compiled and
    prepared once."""

    def __init__(self, folder: Path) -> None:
        made = SqliteDatabases(folder).create()
        assert isinstance(made, Sqlite)
        self.url = made.url
        self.file = opened(made.path)
        """For who looks at it and does not belong to the service."""
        self.engines = open_engines(self.url)
        self.handles = Handles(made.path)
        self.world: World
        self._as_migrated = {table: self.file.execute(f"SELECT * FROM {table}").fetchall() for table in _FILLED}

    def clear(self) -> None:
        """The database is as the migrations have left it."""
        execute = self.file.execute
        execute("BEGIN IMMEDIATE")
        for table in _FILLED:
            execute(f"DELETE FROM {table}")
        for table, rows in self._as_migrated.items():
            for row in rows:
                execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        execute("COMMIT")

    def close(self) -> None:
        self.handles.close()
        self.file.close()

    def ask(self, call: Call) -> None:
        """What the driver is asked is the present world's affair."""
        self.world.ask(call)

    def bytes(self, n: int) -> bytes:
        return self.world.luck.randbytes(n)

    def random(self) -> float:
        return self.world.luck.random()


@contextmanager
def stage() -> Iterator[Stage]:
    """Where seeds are played: in memory if there is a file system for that, for no seed here cuts the power."""
    shared = Path("/dev/shm")  # noqa: S108
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-simulation-", dir=shared if shared.is_dir() else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        made = Stage(Path(folder))
        simulated_driver(made, made.handles, made.engines)
        with closing(made):
            _inject(patch, made)
            yield made


def _inject(patch: pytest.MonkeyPatch, made: Stage) -> None:
    """All chance of the service is the seed's, and a migrated file with its engines is there already."""
    patch.setattr(ids, "os", SimpleNamespace(urandom=made.bytes))
    patch.setattr(finish, "random", SimpleNamespace(random=made.random))
    patch.setattr(dispatcher, "uuid", SimpleNamespace(uuid4=lambda: uuid.UUID(bytes=made.bytes(16))))
    patch.setattr(transaction, "SENT_AHEAD", 2)
    patch.setattr(main, "_bring_up_to_date", _nothing)
    patch.setattr(dispatcher, "open_engines", lambda *_, **__: made.engines)


async def _nothing(*_: Any) -> None:
    pass


@dataclass
class World:
    """Everything outside the process, and the process's lives."""

    stage: Stage
    seed: str
    longest: int | None = None

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.luck = random.Random(f"{self.seed} luck")  # the service's own
        self.nature = nature_of(self.chance)
        self.trace: list[str] = []
        self.counted = Counter[str]()
        self.wrong: BaseException | None = None
        self.box = Box()
        self.witness = Witness(self.stage.file, self.box, self.say)
        self.clients = Clients(
            self.chance,
            self.nature,
            self.witness,
            self.box,
            now=lambda: _seconds(self.clock),
            wrong=self.is_wrong,
        )
        self.clock = FakeClock(_BEGINNING)
        self._is_dead = False
        self.lives = 0
        self._left = self.nature.length if self.longest is None else min(self.longest, self.nature.length)
        self._wall_moved = False
        self._names = list(self.nature.steps)
        self._weights = list(self.nature.steps.values())
        self._typed = 0
        self._is_calm = False
        self._settings: list[tuple[datetime, Step]] = []

    # -- lives

    def play(self) -> Ended:
        self.stage.world = self
        self.stage.clear()
        length = self._left
        self.say(str(self.nature))
        try:
            while not self._live():
                pass
        except Broken:
            pass
        return Ended(self.seed, length, self.nature, self.trace, self.wrong, self.counted)

    def _live(self) -> bool:
        """One process, to its end; whether it was the last one."""
        self.lives += 1
        self.clients.excuse = None
        self.clients.is_deaf = False
        self._calls: list[Call] = []
        self._connections: list[Connection] = []
        self._turns = 0
        self._began = 0.0
        self._is_dead = False
        self.service: Service | None = None
        self.core: Core | None = None
        self.loop = SimulatedLoop(self)
        for answers in (self.stage.engines.writer_answers, self.stage.engines.reader_answers):
            answers._last_at = -math.inf  # it was by another loop's time
        try:
            return self.loop.run_until_complete(self._serve()) or self.wrong is not None
        except Killed:
            self.say(f"-- life {self.lives} is killed")
            self.counted["killed"] += 1
            return False
        except Broken:
            raise
        except Exception as error:
            self.is_wrong(error)
            raise Broken from error
        finally:
            self._bury()

    def _bury(self) -> None:
        """Whatever the dead process still does reaches nobody; then the next one may begin."""
        self._is_dead = True
        self.clients.service_died()
        luck, self.luck = self.luck, random.Random(0)  # what it still draws depends on where its objects lie
        for connection in self._connections:
            connection.cut()
        self.stage.engines.writer.sync_engine.dispose(close=False)
        self.stage.engines.reader.sync_engine.dispose(close=False)
        for task in asyncio.all_tasks(self.loop):
            if getattr(task.get_coro(), "__name__", "") != "close":  # which would not even begin to close
                task.cancel()
        while tasks := asyncio.all_tasks(self.loop):  # those too that close what the others leave open
            _, late = self.loop.run_until_complete(asyncio.wait(tasks, timeout=5.0))
            for task in late:
                task.cancel()
        if self.core is not None:
            self.loop.run_until_complete(self.core.writer._hang_up())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.luck = luck
        self.box.close_all()
        old, self.clock = self.clock, self.clock.of_next_process()
        self.witness.restarted(_seconds(old), new_now=_seconds(self.clock), wall_moved=self._wall_moved)

    async def _serve(self) -> bool:
        settings = _settings_of(self.nature, self.stage.url)
        self.say(f"-- life {self.lives}")
        async with main.running(settings, self.hear, "127.0.0.1:1", self.clock) as service:
            self.service = service
            self.core = self.clients.core = service.core
            self._goodbye = self.loop.create_future()
            if self._left <= 0:
                self._goodbye.set_result(True)
            is_last = await self._goodbye
            if is_last:
                await self._rest(service)
            self.clients.excuse = "it ends"
        self.service = None
        if not is_last:
            await self._hang_up_all()
        return bool(is_last)

    async def _hang_up_all(self) -> None:
        tasks = [sent.task for sent in self.box.open.values() if sent.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # -- turns

    def ask(self, call: Call) -> None:
        if self._is_dead:
            call.answer.set_exception(sqlite3.OperationalError("the process is dead"))
            return
        self._calls.append(call)
        if call.kind == "connect":
            self._connections.append(call.connection)

    def turn(self, *, is_busy: bool, pause_sec: float | None) -> None:
        if self._is_dead:
            if not is_busy:
                self.loop.advance(_ns(pause_sec or 0.0))
            return
        if self.wrong is not None:
            raise Broken
        self._turns += 1
        if self._turns > _MOST_TURNS:
            self.is_wrong(Wrong("it never comes to rest"))
            raise Broken
        if not is_busy:
            self._move(pause_sec)
        elif self._calls and self.chance.random() < 0.2:
            self._answer()
        if self.wrong is not None:
            raise Broken

    def _move(self, pause_sec: float | None) -> None:
        is_at_work = self.service is not None and self._left > 0
        if not self._calls and self.service is not None:
            self._compare_memory(self.service)
        moves = (self._answer, self._step, lambda: self.pass_time(pause_sec or 0.0))
        weights = [
            1.0 if self._calls else 0.0,
            (0.3 if self._calls else 1.0) if is_at_work else 0.0,
            0.0 if pause_sec is None else self._slow if self._calls else 0.15 if is_at_work else 1.0,
        ]
        if not any(weights):
            self.is_wrong(Wrong("everybody waits, and for nothing"))
            return
        [move] = self.chance.choices(moves, weights)
        move()

    @property
    def _slow(self) -> float:
        return 0.0 if self._is_calm or self.service is None else self.nature.slow

    def pass_time(self, seconds: float) -> None:
        self.loop.advance(_ns(seconds))
        self.clock.advance(_ns(seconds) / 1e9)
        if any(self.loop.time() - call.at > ANSWER_SEC - 0.01 for call in self._calls):
            self.clients.excuse = "its database is silent"

    def _step(self) -> None:
        self._left -= 1
        [name] = self.chance.choices(self._names, self._weights)
        self.counted[name] += 1
        match name:
            case "pass time":
                seconds = self.chance.choice(_JUMPS)
                self.say(f"{seconds} s pass")
                self.pass_time(seconds)
            case "stall":
                self.say("the process stalls for 31.0 s, and beats come meanwhile")
                self.pass_time(31.0)
                self.clients.beat()
            case "move the wall clock":
                seconds = self.chance.choice((HOUR, -HOUR, 20.0, -20.0))
                self.say(f"the wall clock is moved by {seconds} s")
                self._wall_moved = True
                self.clock.jump(seconds)
                self.witness.only_grace()
            case "kill":
                self._kill()
            case "goodbye":
                self._say_goodbye()
            case "type a job" | "type a cancel" | "type a setting":
                self._type(name)
            case _:
                self.clients.do(name)
        if self._left <= 0 and not self._goodbye.done():
            self._goodbye.set_result(True)

    def _kill(self) -> None:
        if self.lives < _MOST_LIVES:
            raise Killed

    def _say_goodbye(self) -> None:
        if self.lives < _MOST_LIVES and self._left > 0 and not self._goodbye.done():
            self.say("-- goodbye")
            self.clients.excuse = "it ends"
            self._goodbye.set_result(False)

    def _type(self, name: str) -> None:
        if self.clients.type_sql(name, self.clock.shown()):
            self._typed += 1
            self._look(by_hand=True)

    # -- calls of the database

    def _answer(self) -> None:
        """One of them is run, or fails, or is the last."""
        call = self._calls.pop(self.chance.randrange(len(self._calls)))
        fate = self._fate(call)
        if fate == "kill before":
            self._say_call(call, fate)
            raise Killed
        if fate in ("fail", "cut"):
            self._fail(call, fate)
            return
        result, error = None, None
        try:
            result = call.run()
        except Exception as raised:  # noqa: BLE001 - it belongs to who asked
            error = raised
        self._ran(call, error)
        if fate == "kill after":
            self._say_call(call, fate)
            raise Killed
        if fate == "unknown":
            self._fail(call, fate)
        elif call.answer.done():
            return
        elif error is not None:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(result)

    def _fate(self, call: Call) -> str:
        nature, chance = self.nature, self.chance
        if self._is_calm or self.service is None:
            return "well"
        if chance.random() < nature.kills and self.lives < _MOST_LIVES:
            return chance.choice(("kill before", "kill after"))
        if chance.random() < nature.fails * (4 if call.kind == "COMMIT" else 1):
            return chance.choice(("fail", "unknown")) if call.kind == "COMMIT" else "fail"
        if chance.random() < nature.is_cut:
            return "cut"
        return "well"

    def _ran(self, call: Call, error: Exception | None) -> None:
        if call.connection.is_reader or error is not None:
            return
        if call.kind == "BEGIN":
            self._began = _seconds(self.clock)
        elif call.kind == "COMMIT":
            self._look()

    def _fail(self, call: Call, fate: str) -> None:
        self._say_call(call, fate)
        self.counted[f"{call.kind} {fate}"] += 1
        self.clients.excuse = "its database failed"
        if fate == "cut":
            call.connection.cut()
            error = sqlite3.OperationalError(f"no active connection, {INJECTED}")
        else:
            error = sqlite3.OperationalError(f"{INJECTED} at {call.kind}")
            error.sqlite_errorcode = self.chance.choice(
                (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
            )
        if fate == "unknown" and self._wall_moved:
            self.witness.only_grace()
        if not call.answer.done():
            call.answer.set_exception(error)

    def _look(self, *, by_hand: bool = False) -> None:
        before = dict(self.witness.tenants)
        since = _seconds(self.clock) if by_hand else self._began
        try:
            self.witness.look(_seconds(self.clock), self.clock._floor, since=since, by_hand=by_hand)
        except Wrong as wrong:
            self.is_wrong(wrong)
            return
        for name, tenant in self.witness.tenants.items():
            if before.get(name) != tenant:
                self._settings.append((tenant.updated_at, _set(name, tenant.settings)))

    # -- what must hold

    def hear(self, event: Event) -> None:
        match event:
            case LoopFailed(loop=loop, error=error) if "Traceback" in error:
                self.is_wrong(Wrong(f"the loop {loop} failed: {error}"))
            case WriterFailed(error=error) if self.clients.excuse is None:
                self.is_wrong(Wrong(f"the writer failed without a reason: {error}"))
            case RowSkipped(error=error) if not error.startswith("Unavailable"):
                self.is_wrong(Wrong(f"a row was skipped: {error}"))
            case DifferenceMended() | ProposalRefused() if not self._typed:
                self.is_wrong(Wrong(f"memory was wrong: {event}"))
            case WriterFailed() | DifferenceMended() | ProposalRefused() | Recovered():
                self.say(f"  {type(event).__name__}")
                self.counted[type(event).__name__] += 1
            case _:
                pass

    def is_wrong(self, error: BaseException) -> None:
        """The first is what counts; if the process is dead already, nobody saw it."""
        if self.wrong is None and not self._is_dead:
            self.wrong = error
            self.say(f"WRONG: {error}")

    def _compare_memory(self, service: Service) -> None:
        """Nothing is on its way to the database or back: memory and rows are one."""
        core, jobs = service.core, [known.row for known in self.witness.jobs.values()]
        if self._typed or core.writer.is_in_doubt or core.writer.backlog or core.order.has_unwritten:
            return
        held = {
            "queued": sorted(core.order.places()),
            "leased": sorted(core.leases.tokens().items()),
            "running": {name: n for name, n in core.order.running_by_tenant().items() if n},
            "states": {str(state): n for state, n in core.counts.by_state.items() if n},
        }
        written = {
            "queued": sorted(row.id for row in jobs if row.state == "queued"),
            "leased": sorted((row.id, row.token) for row in jobs if row.token),
            "running": dict(Counter(row.tenant for row in jobs if row.state in LEASED)),
            "states": dict(Counter(row.state for row in jobs)),
        }
        for name, value in held.items():
            if value != written[name]:
                self.is_wrong(Wrong(f"{name}: memory holds {value}, written is {written[name]}"))
        if self.clients.excuse is None and core.waiting.can_serve(core.order.can_pick, None):
            self.is_wrong(Wrong("a claim waits, there is a job for it, and nobody does anything about it"))

    async def _rest(self, service: Service) -> None:
        """Nothing fails any more: all that is under way ends, memory is what is written, a twin that never died would
        have picked the same, and, where the seed has the patience, each job comes to its end."""
        self._is_calm = True
        self.say("-- all is calm")
        # A clock that was set back makes nothing due before it is again where it was.
        self.clock.jump(max(0.0, (self.clock.now() - self.clock.shown()).total_seconds()))
        await self._all_answered()
        await service.housekeeper.stop()
        await service.ticker.stop()
        if self._typed:
            await service.ticker.tick()  # which notices
        await self._mended(service)
        self._nobody_holds_what_nobody_took()
        await self._compare_with_a_twin()  # now, since of what a lane owes nothing is left once it is empty
        if self.nature.drains and self._unfinished():
            await self._drain(service)
            await self._mended(service)
            await self._compare_with_a_twin()

    async def _all_answered(self) -> None:
        """Time passes only once nothing else is to do: who waits then waits for a job."""
        if tasks := self.clients.under_way():
            await asyncio.wait(tasks, timeout=None if self.nature.drains else 0.001)
        if tasks := self.clients.hang_up_all():
            await asyncio.wait(tasks)

    async def _mended(self, service: Service) -> None:
        await until_idle(service.core)  # some may have been told that it is silent, and what they asked is done yet
        if self._typed:
            while await audit(service.core):
                pass
        core = service.core
        async with core.reading() as connection:
            written, held = await view_of_sql(connection), view_of_memory(core)
        for name in (each.name for each in fields(View)):
            if getattr(held, name) != getattr(written, name):
                raise Wrong(f"{name}: memory holds {getattr(held, name)}, written is {getattr(written, name)}")

    def _nobody_holds_what_nobody_took(self) -> None:
        if self.clients.excuse is not None:
            return
        workers = {sent.asked.worker for sent in self.box.open.values() if isinstance(sent, Claim)}  # of this life
        for known in self.witness.jobs.values():
            if (
                known.row.worker in workers
                and known.row.token is not None
                and known.row.token not in self.witness.given
            ):
                raise Wrong(f"j{known.row.seq} is leased to {known.row.worker}, who was told nothing")

    async def _drain(self, service: Service) -> None:
        capped = [
            SetTenant(name=name, settings=TenantSettings(max_running=2 if name == "ada" else None)) for name in TENANTS
        ]
        opened = [SetQueue(name=queue, paused=False) for queue in QUEUES]
        await asyncio.wait([self.clients.send(sent) for sent in (*capped, *opened)])
        for _ in range(40):
            await service.ticker.tick()
            await self._take_all()
            if not self._unfinished():
                return
            self.pass_time(31.0)  # what nobody holds any more lapses, and what failed is due again
        raise Wrong(f"some jobs never come to their end: {self._unfinished()}")

    def _unfinished(self) -> list[Row]:
        return [known.row for known in self.witness.jobs.values() if known.row.state not in FINAL]

    async def _take_all(self) -> None:
        asked = ClaimRequest(worker=f"w{self.box.count + 1}", queues=QUEUES, limit=50, start=True)
        await self.clients.send(Claim(asked=asked))
        held = [
            self.clients._new_report(known.row.token, "complete")
            for known in self.witness.jobs.values()
            if known.row.state == "running" and known.row.token in self.witness.given
        ]
        if held:
            await self.clients.send(ReportMany(reports=held))

    async def _compare_with_a_twin(self) -> None:
        """Unless something was done of which the tables do not say when."""
        if self._typed or "prioritize" in self.nature.steps or self.box.has_overwritten("tenant"):
            return
        self.counted["twins"] += 1
        nature = self.nature
        history = await read_history(self.stage.engines)
        settings = _settings_of(nature, self.stage.url)
        twin = relive(history, Policy(nature.policy), step_units(settings.priority_step), self._settings)
        if twin.wrong:
            raise Wrong("; ".join(twin.wrong))

    # -- the trace

    def say(self, text: str) -> None:
        if not self._is_dead:
            self.trace.append(f"{_seconds(self.clock):9.3f} {text}")

    def _say_call(self, call: Call, fate: str) -> None:
        who = "reader" if call.connection.is_reader else "writer"
        self.say(f"  {who}'s {' '.join(call.sql.split()[:3])}: {fate}")


def _set(name: str, settings: TenantSettings) -> Step:
    def step(twin: Twin) -> None:
        twin.order.set_tenant(name, weight=settings.weight, max_running=settings.max_running, paused=settings.paused)

    return step


def _seconds(clock: FakeClock) -> float:
    return clock._elapsed_ns / 1e9


def _ns(seconds: float) -> int:
    return int(seconds * 1e9) + 1


def _settings_of(nature: Nature, url: str) -> Settings:
    said = {
        "database_url": url,
        "policy": nature.policy,
        "priority_step": nature.priority_step,
        "tick_ms": str(nature.tick_ms),
    }
    return read_settings({PREFIX + name.upper(): value for name, value in said.items()})


def play(stage: Stage, seed: str, longest: int | None = None) -> Ended:
    """One seed, or only its first steps."""
    return World(stage, seed, longest).play()


def shortest(stage: Stage, ended: Ended) -> Ended:
    """The same seed cut short, as long as it still goes wrong."""
    low, high, best = 0, ended.length, ended
    while low < high:
        middle = (low + high) // 2
        tried = play(stage, ended.seed, middle)
        if tried.wrong is None:
            low = middle + 1
        else:
            high, best = middle, tried
    return best
