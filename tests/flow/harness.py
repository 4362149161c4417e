"""The service in this process, without HTTP: clocks that only a test moves, an end without goodbye, groups of
writes put together by hand, and faults in the writer's transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import event
from sqlalchemy.util import await_only

from app.clock import Clock
from app.errors import DispatchLost
from app.events import Event
from app.flow import cancel, dispatch, finish, rollup, submit
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.submit import JobRequest
from app.flow.tick import Ticker
from app.main import running
from app.metrics.meter import Meter
from app.scheduling.job import Job
from app.settings import PREFIX, Settings, read_settings
from app.spans import NO_SPANS, Spans
from app.store.dialect import POSTGRES
from app.store.transaction import Transaction
from tests.databases import Database

T = TypeVar("T")
E = TypeVar("E", bound=Event)

PATIENCE_SEC: Final = 20.0
"""Longer than anything here takes on a slow machine; a test that waits so long has failed."""

HOUR: Final = 3600.0


class FakeClock(Clock):
    """A wall clock and a monotonic clock that stand still until a test moves one or both of them, but for what
    tells one reading from the next."""

    def __init__(self, wall: datetime | None = None) -> None:
        super().__init__()
        self._shown = wall or datetime.now(UTC)
        self._elapsed_ns = 0

    def _wall(self) -> datetime:
        return self._shown

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def monotonic_ns(self) -> int:
        self._elapsed_ns += 1
        return 1_000_000_000 + self._elapsed_ns

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.jump(seconds)
        self.flow(seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._shown += timedelta(seconds=seconds)

    def flow(self, seconds: float) -> None:
        """Time passes, and the wall clock does not notice."""
        self._elapsed_ns += round(seconds * 1e9)

    def of_next_process(self, *, wall_jumped: float = 0) -> FakeClock:
        """What a process that starts now has: the same wall clock, and no memory of what was given out."""
        return FakeClock(self._shown + timedelta(seconds=wall_jumped))


class Heard:
    """Takes events and keeps them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self._events.append(event)
        self._news.set()

    def all(self, kind: type[E]) -> list[E]:
        """The events of this kind so far."""
        return [event for event in self._events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], count: int = 1) -> list[E]:
        """The events of this kind, once there are `count`."""
        async with asyncio.timeout(PATIENCE_SEC):
            while len(self.all(kind)) < count:
                self._news.clear()
                await self._news.wait()
        return self.all(kind)


@dataclass(frozen=True)
class Running:
    """A service that runs. What tests say to it most is said in a word."""

    core: Core
    ticker: Ticker
    heard: Heard
    meter: Meter

    @property
    def clock(self) -> FakeClock:
        assert isinstance(self.core.clock, FakeClock)
        return self.core.clock

    async def submit(self, tenant: str = "acme", name: str = "unit", **asked: Any) -> Job:
        """One new job; `name` is its test suite."""
        [submitted] = await submit.submit(self.core, [JobRequest(tenant=tenant, test_suite=name, **asked)])
        return submitted.job

    async def submit_all(self, requests: Iterable[JobRequest]) -> list[Job]:
        """New jobs, in one batch."""
        return [submitted.job for submitted in await submit.submit(self.core, list(requests))]

    async def claim(self, limit: int = 1, *queues: str, start: bool = False, lease_sec: int = 30) -> list[Job]:
        """Up to `limit` jobs."""
        wanted = ClaimRequest(worker="w", queues=queues or ("default",), limit=limit, start=start, lease_sec=lease_sec)
        return await dispatch.claim(self.core, wanted)

    async def claim_one(self, *queues: str, start: bool = False, lease_sec: int = 30) -> Job:
        """The next job, which there must be."""
        [job] = await self.claim(1, *queues, start=start, lease_sec=lease_sec)
        return job

    async def complete(self, job: Job, result: Any = None) -> Job:
        """Say that a claimed job is completed."""
        return await finish.complete(self.core, job.id, token_of(job), result)

    async def fail(self, job: Job, error: str = "it broke", *, retry: bool = True) -> Job:
        """Say that a claimed job failed."""
        return await finish.fail(self.core, job.id, token_of(job), error, retry=retry)

    async def release(self, job: Job) -> Job:
        """Give a claimed job back."""
        return await finish.release(self.core, job.id, token_of(job))

    async def cancel(self, job: Job) -> Job:
        """A job is no longer wanted."""
        return await cancel.cancel(self.core, job.id)

    async def tick(self, after: float = 0) -> float:
        """Let time pass, then tick."""
        self.clock.advance(after)
        return await self.ticker.tick()

    async def roll_all_up(self) -> None:
        """Every hour that is over and is not rolled up yet."""
        async with asyncio.timeout(PATIENCE_SEC):
            while await rollup.roll_up(self.core):
                pass

    async def crash(self) -> None:
        """End as if killed: no write is finished, no claim is given back. Leave the `with` block next."""
        loops = [task for task in (self.ticker._task, self.core.writer._task) if task is not None]
        tasks = [*loops, *self.core._spawned]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.ticker._task = self.core.writer._task = None
        self.core.writer._lost = DispatchLost("killed by the test")  # so nobody lets the next server in


def token_of(job: Job) -> str:
    assert job.token is not None, f"job {job.id} is {job.state}, nobody holds it"
    return job.token


def settings_for(database: Database, **settings: object) -> Settings:
    """The settings as the environment would say them; a tick comes when a test wants one."""
    said: dict[str, object] = {"database_url": database.url, "tick_ms": 60_000, **settings}
    return read_settings({PREFIX + name.upper(): str(value) for name, value in said.items()})


@asynccontextmanager
async def service(
    database: Database,
    *,
    clock: Clock | None = None,
    ticking: bool = False,
    address: str = "127.0.0.1:1",
    spans: Spans = NO_SPANS,
    **settings: Any,
) -> AsyncIterator[Running]:
    """The service on `database`. Unless it is `ticking`, nothing in it comes by itself: tests tick themselves, and no
    slow round meets what they do if they take longer than its period."""
    heard = Heard()
    told = settings_for(database, **settings)
    async with running(told, heard, address, clock or FakeClock(), spans) as made:
        if not ticking:
            await made.ticker.stop()
            await made.housekeeper.stop()
        yield Running(made.core, made.ticker, heard, made.meter)


# --- Waiting for it ----------------------------------------------------------------------------------------


async def until(happened: Callable[[], object]) -> None:
    """Let the loop turn until something has happened of which nobody is told."""
    async with asyncio.timeout(PATIENCE_SEC):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def until_idle(core: Core) -> None:
    """All that was under way when this is called has ended."""
    await core.write(_nothing)
    await core.spawned_work()


async def _nothing(_tx: Transaction) -> None:
    pass


# --- Groups ------------------------------------------------------------------------------------------------


async def in_one_group(core: Core, *requests: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run the requests in one transaction, in this order; what each answered or raised. The service must be idle,
    and each request must write before it waits for anything."""
    commits = core.writer.commits
    answers = await answers_of([asyncio.ensure_future(request) for request in requests])
    assert core.writer.commits <= commits + 1, "they were more than one group"
    return answers


async def answers_of(tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """What each answered or raised."""
    async with asyncio.timeout(PATIENCE_SEC):
        return await asyncio.gather(*tasks, return_exceptions=True)


class Backlog:
    """The writes that wait for the writer."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def grows_to(self, count: int) -> None:
        """Wait until so many writes wait."""
        await until(lambda: len(self._core.writer._waiting) >= count)


@asynccontextmanager
async def busy(core: Core) -> AsyncIterator[Backlog]:
    """The writer is in the middle of a transaction; what is written meanwhile waits for its end."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def hold(_tx: Transaction) -> None:
        begun.set()
        await end.wait()

    holding = asyncio.create_task(core.write(hold))
    async with asyncio.timeout(PATIENCE_SEC):
        await begun.wait()
    try:
        yield Backlog(core)
    finally:
        end.set()
        await holding


# --- Faults ------------------------------------------------------------------------------------------------

Moment = Literal["begin", "statement", "commit", "after commit"]


class Away(ConnectionError):
    """What a driver says when the database is gone."""


@contextmanager
def statements_of(core: Core) -> Iterator[list[str]]:
    """The statements that the writer runs, as they come."""
    run: list[str] = []
    with _listening(core, "before_cursor_execute", lambda _connection, _cursor, sql, *_rest: run.append(sql)):
        yield run


@contextmanager
def commits_of(core: Core) -> Iterator[list[object]]:
    """Grows by one with every COMMIT that the writer's connection is sent."""
    seen: list[object] = []

    def count(connection: object) -> None:
        seen.append(connection)

    with _listening(core, "commit", count):
        yield seen


@contextmanager
def failing(core: Core, moment: Moment, *, statement: str = "", after: int = 0, times: int = 1) -> Iterator[None]:
    """The writer's next `times` transactions fail at `moment`, with an error as of a database that is away:
    at the first `statement` that contains these words, or before, or after COMMIT has reached the database.
    The first `after` of them are let pass."""
    met = 0

    def meet() -> None:
        nonlocal met
        met += 1
        if after < met <= after + times:
            raise Away(f"injected at {moment}")

    with _meeting(core, moment, statement, meet):
        yield
    assert met > after, f"nothing failed at {moment}"


class Gate:
    """Where the writer stops: `reached` once it is there, going on after `open`."""

    def __init__(self, after: int) -> None:
        self._after = after
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(PATIENCE_SEC):
            await self._reached.wait()

    def open(self) -> None:
        self._opened.set()

    def stop_here(self) -> None:
        """Called by SQLAlchemy inside its greenlet."""
        self._after -= 1
        if self._after < 0 and not self._reached.is_set():
            self._reached.set()
            await_only(self._opened.wait())


@contextmanager
def gate(core: Core, moment: Moment, *, statement: str = "", after: int = 0) -> Iterator[Gate]:
    """Stops the writer at `moment` of its next transaction, after letting `after` of them pass."""
    made = Gate(after)
    with _meeting(core, moment, statement, made.stop_here):
        try:
            yield made
        finally:
            made.open()


@contextmanager
def _meeting(core: Core, moment: Moment, statement: str, act: Callable[[], None]) -> Iterator[None]:
    def at_statement(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
        if statement in sql:
            act()

    if moment == "after commit":
        with _after_commit(core, act):
            yield
    elif moment == "commit":
        with _before_commit(core, act):
            yield
    elif moment == "statement":
        with _listening(core, "before_cursor_execute", at_statement):
            yield
    else:
        with _listening(core, moment, lambda _connection: act()):
            yield


@contextmanager
def _listening(core: Core, name: str, listener: Callable[..., None]) -> Iterator[None]:
    engine = core.engines.writer.sync_engine
    event.listen(engine, name, listener)
    try:
        yield
    finally:
        event.remove(engine, name, listener)


@contextmanager
def _before_commit(core: Core, act: Callable[[], None]) -> Iterator[None]:
    """On Postgres a statement may be the whole transaction; the COMMIT that follows is sent to nobody."""
    was_all = False

    def at_statement(_connection: object, cursor: Any, *_rest: object) -> None:
        nonlocal was_all
        if core.engines.dialect == POSTGRES and cursor._adapt_connection.autocommit:
            act()
            was_all = True

    def at_commit(_connection: object) -> None:
        nonlocal was_all
        if not was_all:
            act()
        was_all = False

    with _listening(core, "before_cursor_execute", at_statement), _listening(core, "commit", at_commit):
        yield


@contextmanager
def _after_commit(core: Core, act: Callable[[], None]) -> Iterator[None]:
    dialect = core.engines.writer.sync_engine.dialect
    commit = dialect.do_commit

    def commit_then_act(connection: Any) -> None:
        commit(connection)
        act()

    dialect.do_commit = commit_then_act  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del dialect.do_commit  # the method of the class is behind it


# --- Plain SQL ---------------------------------------------------------------------------------------------


async def by_hand(database: Database, *statements: str) -> None:
    """Statements in a bare session while the service is at work. SQLite's would stop the whole loop, and the
    service with it, while it waits for the writer: so they run in a thread."""
    if database.kind == "postgres":
        await database.execute(*statements)
        return
    await asyncio.to_thread(lambda: asyncio.run(database.execute(*statements)))


def cancel_sql(job: Job) -> str:
    """What somebody types to cancel a job, whatever it is doing."""
    return (
        "UPDATE jobs SET state = 'cancelled', completed_at = submitted_at, token = NULL, lease_sec = NULL,"
        f" lease_expires_at = NULL WHERE id = '{job.id}'"
    )


def requeue_sql(job: Job) -> str:
    """To take a leased job from its worker and let it wait again."""
    return (
        "UPDATE jobs SET state = 'queued', token = NULL, lease_sec = NULL, lease_expires_at = NULL, charge = NULL,"
        " dispatch_weight = NULL, scheduled_at = NULL, started_at = NULL, worker = NULL, progress = NULL"
        f" WHERE id = '{job.id}'"
    )


def lease_sql(job: Job, token: str = "by hand") -> str:  # noqa: S107 - not a secret
    """To lease a queued job to nobody."""
    return (
        f"UPDATE jobs SET state = 'scheduled', token = '{token}', lease_sec = 30, lease_expires_at = run_at,"
        " charge = 0, dispatch_weight = 1, scheduled_at = run_at, worker = 'by hand', attempt = attempt + 1"
        f" WHERE id = '{job.id}'"
    )


def enqueue_sql(job: Job) -> str:
    """To queue a pending job before it is due."""
    return f"UPDATE jobs SET state = 'queued', queued_at = submitted_at, effective_priority = 4 WHERE id = '{job.id}'"


async def hang_up(task: asyncio.Task[Any]) -> None:
    """The client hangs up."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# --- Ends and starts ---------------------------------------------------------------------------------------


class Mortal:
    """A service that is killed and started again, as often as a test likes. `running` is the present one."""

    def __init__(self, database: Database, stack: AsyncExitStack, settings: dict[str, Any]) -> None:
        self._database = database
        self._stack = stack
        self._settings = settings
        self.running: Running

    async def start(self, clock: FakeClock, **settings: Any) -> Running:
        """A new process by `clock`."""
        self._settings |= settings
        made = service(self._database, clock=clock, **self._settings)
        self.running = await self._stack.enter_async_context(made)
        return self.running

    async def die(self) -> None:
        """End without goodbye."""
        await self.running.crash()
        await self._stack.aclose()

    async def restart(self, *, wall_jumped: float = 0, **settings: Any) -> Running:
        """End without goodbye, and be there again in the same moment."""
        clock = self.running.clock.of_next_process(wall_jumped=wall_jumped)
        await self.die()
        return await self.start(clock, **settings)


@asynccontextmanager
async def mortal(database: Database, **settings: Any) -> AsyncIterator[Mortal]:
    """The service on `database`, running."""
    async with AsyncExitStack() as stack:
        made = Mortal(database, stack, settings)
        await made.start(FakeClock())
        yield made
