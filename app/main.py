"""Builds everything, and owns the start and the end: the only place where the parts meet."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import uvicorn

from app.api.application import create_litestar
from app.api.front import Front
from app.api.protocol import Protocol
from app.clock import Clock
from app.errors import BadSettings
from app.events import (
    AdminKeyMissing,
    Emit,
    Event,
    SchemaAhead,
    SchemaMigrated,
    ServerDraining,
    ServerListening,
    ServerStopped,
)
from app.flow import replicas, retention, rollup
from app.flow.audit.audit import audit
from app.flow.core import Core, Phase
from app.flow.dispatch import end_waiting, serve_soon, serve_waiting
from app.flow.housekeeping import Housekeeper, Round
from app.flow.memory import OrderAndMoves
from app.flow.onlooker import Onlooker
from app.flow.recover import recover
from app.flow.tick import Ticker
from app.flow.watch.division import DIVIDE_EVERY_SEC, divide_given
from app.keys import without_secrets
from app.metrics.meter import Meter
from app.replica.forward import Forwarder
from app.replica.life import TAKING_OVER_SEC, Life
from app.replica.probe import probing
from app.replica.reign import Reign
from app.replica.switch import Switch
from app.settings import Settings
from app.spans import NO_SPANS, Spans
from app.store import copies, keys, migrate
from app.store.dialect import SQLITE
from app.store.dispatcher import Dispatcher, clock_of, sole_owner
from app.store.engine import Engines, Timeouts
from app.store.writer import Writer

if TYPE_CHECKING:  # it needs libraries that are not always there
    from app.traces import Traces

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)

_LAST_WORDS_SEC: Final = 0.25
_FIRST_WORDS_SEC: Final = 1.0
"""Each answer since the signal has closed its connection. So long one is waited for that says nothing more, and one
that has said nothing yet."""

_STUCK_MS: Final = 60_000
"""A client that takes nothing of its answer for so long is cut off by the kernel."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that run: what requests work on, and the loop that lets time pass."""

    core: Core
    ticker: Ticker
    housekeeper: Housekeeper
    meter: Meter


async def serve(settings: Settings, emit: Emit) -> int:
    """Run the service until a signal ends it; its exit code.

    Raises `BadSettings`, `SchemaOutdated`, `AnotherDispatcher`, and what the database raises if it is away.
    """
    _allow_as_many_connections_as_may_be()
    with _bound_socket(settings) as listener:
        host, port = listener.getsockname()[:2]
        _refuse_to_serve_anybody(settings, host)
        address = settings.advertise or _reached_at(host, port)
        async with (
            _traces(settings) as traces,
            _replica(settings, emit, address, traces or NO_SPANS) as (life, application),
        ):
            await _warn_if_nobody_can_enter(life.onlooker)
            served = traces.around(application) if traces else application
            server = _Server(_uvicorn_config(served), lambda: emit(ServerListening(host, port)))
            with _signals() as signals, _collecting_seldom():
                serving = asyncio.create_task(server.serve(sockets=[listener]), name="server")
                living = asyncio.create_task(life.run(), name="replica")
                exit_code = await _until_asked_to_end(living, serving, signals, emit)
                application.is_ending = True
                await _left(life, living)
                await asyncio.gather(life.rest(), application.wait_idle(settings.shutdown_grace_sec))
                server.should_exit = True
                await serving
                await _ended(living)
    emit(ServerStopped())
    return exit_code


@asynccontextmanager
async def _replica(settings: Settings, emit: Emit, address: str, spans: Spans) -> AsyncIterator[tuple[Life, Front]]:
    """One server on the database, and the application by which it serves all its life."""
    meter = Meter(settings)
    emit = _to_both(meter.hear, emit)
    async with (
        _database(settings) as (engines, _),
        AsyncExitStack() as stack,
    ):
        await _bring_up_to_date(settings, engines, emit)
        clock = await clock_of(engines)
        dispatcher = Dispatcher(clock, emit, address, settings.leader_ttl_sec)
        onlooker = Onlooker(settings, engines, dispatcher, clock, emit, spans)

        meter.look_on(onlooker)

        @asynccontextmanager
        async def begin() -> AsyncIterator[Reign]:
            core = Core(settings, engines, dispatcher, clock, emit, spans)
            application = create_litestar(core, emit, meter.scrape)
            async with _dispatching(core, meter) as service:
                try:
                    with _passed_over():
                        yield Reign(core, service.ticker, service.housekeeper, application)
                finally:
                    meter.look_on(onlooker)

        life = Life(onlooker, begin)
        stack.push_async_callback(life.close)
        forwarder = Forwarder(dispatcher.holder)
        stack.push_async_callback(forwarder.close)
        switch = Switch(life, forwarder, settings.leader_ttl_sec + TAKING_OVER_SEC)
        if not onlooker.is_alone:
            switch.standby = create_litestar(onlooker, emit, meter.scrape, switch.hand_on)
            await stack.enter_async_context(probing(life.way, forwarder, dispatcher.renew_every_sec, emit))
        await life.start()
        yield life, Front(switch, emit, clock, settings.hosts)


@asynccontextmanager
async def running(
    settings: Settings, emit: Emit, address: str, clock: Clock | None = None, spans: Spans = NO_SPANS
) -> AsyncIterator[Service]:
    """The service without its HTTP side: migrated, recovered, dispatching and ticking by `clock`. It does not stand by.

    Raises what `serve` raises, and `AnotherDispatcher` also where another replica dispatches.
    """
    meter = Meter(settings)
    emit = _to_both(meter.hear, emit)
    async with _database(settings) as (engines, is_locked):
        await _bring_up_to_date(settings, engines, emit)
        clock = clock or Clock()
        dispatcher = Dispatcher(clock, emit, address, settings.leader_ttl_sec)
        await dispatcher.take(engines.writer, locked=is_locked)
        async with _dispatching(Core(settings, engines, dispatcher, clock, emit, spans), meter) as service:
            yield service


def _database(settings: Settings) -> AbstractAsyncContextManager[tuple[Engines, bool]]:
    """`sole_owner`. What a process has locked that stands still in a transaction is free once it may be followed."""
    usual = Timeouts()
    timeouts = replace(usual, idle=min(usual.idle, settings.leader_ttl_sec))
    return sole_owner(settings.database_url, synchronous=settings.sqlite_synchronous, timeouts=timeouts)


@asynccontextmanager
async def _dispatching(core: Core, meter: Meter) -> AsyncIterator[Service]:
    """What dispatches on a database that was just taken; at the end it is given back."""
    core.writer = _writer_of(core)
    try:
        await _refuse_what_was_copied(core.engines)
        await recover(core)
    except BaseException:  # it may be cut short as well
        await _let_the_next_in(core)
        raise
    core.writer.start()
    ticker = Ticker(core)
    ticker.start()
    housekeeper = Housekeeper(core, _rounds(core))
    housekeeper.start()
    meter.watch(core, housekeeper)
    core.phase = Phase.SERVING
    try:
        yield Service(core, ticker, housekeeper, meter)
    finally:
        core.phase = Phase.DRAINING
        end_waiting(core)
        await housekeeper.stop()
        await ticker.stop()
        await core.spawned_work()
        await core.writer.close()
        if core.writer.lost is None:
            await _let_the_next_in(core)


def _writer_of(core: Core) -> Writer:
    memory = OrderAndMoves(
        core.order,
        core.moves,
        reload=lambda: recover(core, after_doubt=True),
        untold=core.feed.lose,
        follow_up=lambda tx: serve_waiting(core, tx),
        committed=lambda: serve_soon(core),
    )
    engines = core.engines
    return Writer(engines.writer, engines.writer_answers, memory, core.dispatcher, core.clock, core.emit, core.spans)


async def _let_the_next_in(core: Core) -> None:
    """A database that is away cannot be told; the next server waits the claim out."""
    with suppress(Exception):
        await core.dispatcher.release(core.engines.writer)


def _rounds(core: Core) -> tuple[Round, ...]:
    """The slow regular work of a service."""
    rounds = (
        Round("division", DIVIDE_EVERY_SEC, divide_given),
        Round("roll-up", rollup.EVERY_SEC, rollup.roll_up),
        Round("audit", core.settings.audit_sec, audit),
        Round("retention", retention.EVERY_SEC, retention.retire),
    )
    if core.is_alone:
        return rounds
    return (*rounds, Round(replicas.ROUND, core.dispatcher.renew_every_sec, replicas.beat_as_dispatcher))


@asynccontextmanager
async def _traces(settings: Settings) -> AsyncIterator[Traces | None]:
    """What traces the service, if the settings say so. Raises `BadSettings` if that is not installed."""
    if not settings.traces:
        yield None
        return
    try:
        from app.traces import Traces
    except ImportError as error:
        raise BadSettings(
            f"FAIRLANE_TRACES needs what the extra otel installs, pip install 'fairlane[otel]': {error}"
        ) from error
    try:
        traces = Traces()
    except ValueError as error:
        raise BadSettings(f"an OTEL_ variable cannot be used: {error}") from error
    try:
        yield traces
    finally:
        await traces.close()


def _to_both(first: Emit, second: Emit) -> Emit:
    """Takes each event to both listeners."""

    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit


async def _bring_up_to_date(settings: Settings, engines: Engines, emit: Emit) -> None:
    """A SQLite file is migrated as a matter of course, a Postgres only if told to: others may use it."""
    if engines.dialect == SQLITE or settings.migrate:
        before = await migrate.status(settings.database_url)
        if before.pending:
            await migrate.upgrade(settings.database_url)
            emit(SchemaMigrated(before.current, before.head))
    found = await migrate.require_usable(engines.writer)
    if found.is_newer:
        emit(SchemaAhead(found.current, found.head))


async def _refuse_what_was_copied(engines: Engines) -> None:
    """Asked by who dispatches already, so that no copy can begin after it. Raises `NotServed`."""
    async with engines.writer.connect() as connection:
        await copies.require_servable(connection)


@contextmanager
def _bound_socket(settings: Settings) -> Iterator[socket.socket]:
    """A socket bound first of all, so that a port in use is found out before anything is touched."""
    try:
        [*addresses] = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # a name that is too long is none for Python's own codec
        host = without_secrets(settings.host)
        raise BadSettings(f"FAIRLANE_HOST {host!r} is no address of this machine: {error}") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _let_go_of_stuck_clients(listener)
        try:
            listener.bind(address)
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise BadSettings(f"cannot listen on {where}: {error.strerror}; choose another FAIRLANE_PORT") from error
        yield listener


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Python looks for cycles each time so many objects have come, and from time to time at all there are; but what
    waits in memory are no cycles, and to look at a hundred thousand jobs holds everything for half a second. So what
    was recovered is not looked at any more, and the rest less often: a third less work for a batch of jobs."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _give_back_what_is_free()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def _passed_over() -> Iterator[None]:
    """The same for who dispatches later in its life, without a look at everything: it is waited for."""
    gc.freeze()
    _give_back_what_is_free()
    try:
        yield
    finally:
        gc.unfreeze()


def _give_back_what_is_free() -> None:
    """To read a million jobs takes memory that nobody needs any more. Only glibc keeps it until it is told."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _reached_at(host: str, port: int) -> str:
    """Where other replicas find this one, if nobody says it; by the machine's name, if it listens at all addresses."""
    where = ip_address(host)
    if where.is_unspecified:
        return f"{socket.gethostname()}:{port}"
    return f"[{host}]:{port}" if where.version == 6 else f"{host}:{port}"


def _refuse_to_serve_anybody(settings: Settings, host: str) -> None:
    """Raises `BadSettings` where others could do everything and nobody has said that they may."""
    if settings.keys == "auto" and not ip_address(host).is_loopback:
        raise BadSettings(
            f"others can reach {host}: make keys with `fairlane keys create` and say FAIRLANE_KEYS=required, or say"
            " FAIRLANE_KEYS=off if everybody who reaches it may do everything"
        )


async def _warn_if_nobody_can_enter(core: Core) -> None:
    async with core.reading() as connection:
        if core.settings.keys == "required" and not await keys.any_admin(connection, core.clock.shown()):
            core.emit(AdminKeyMissing())


def _allow_as_many_connections_as_may_be() -> None:
    """Each connection is an open file, and systems allow few (1,024 is usual) until a process asks for more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _let_go_of_stuck_clients(listener: socket.socket) -> None:
    """Whom it accepts inherits this. No application can: to close a connection is to wait for what is still to be
    sent, so clients that never read would hold their connections for ever. Only Linux knows it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)


def _uvicorn_config(application: object) -> uvicorn.Config:
    return uvicorn.Config(
        application,  # type: ignore[arg-type] # uvicorn's own ASGI types are wider than any application's
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: it closes the listener first, and Fairlane answers while it drains."""

    def __init__(self, config: uvicorn.Config, when_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_listening = when_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First nobody is let in any more, and who is connected may say what he was about to: to hang up on a request
        that is on its way leaves its client in doubt."""
        for listening in self.servers:
            listening.close()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:  # one that was let in last is not among the connections yet
            await asyncio.sleep(_LAST_WORDS_SEC / 10)
            if loop.time() - began >= self._words_to_come_sec():
                break
        await super().shutdown(sockets)

    def _words_to_come_sec(self) -> float:
        connections = self.server_state.connections
        if any(isinstance(each, Protocol) and each.has_said_nothing for each in connections):
            return _FIRST_WORDS_SEC
        return _LAST_WORDS_SEC if connections else 0.0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _signals() -> Iterator[asyncio.Queue[signal.Signals]]:
    """The first ending signal is put into the queue; a second one ends the process on the spot, as a crash
    would, which loses nothing that was acknowledged."""
    loop, received = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()

    def receive(number: signal.Signals) -> None:
        if not received.empty() or is_ending:
            os._exit(128 + number)
        is_ending.append(number)
        received.put_nowait(number)

    is_ending: list[signal.Signals] = []
    for number in _ENDING:
        loop.add_signal_handler(number, receive, number)
    try:
        yield received
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


async def _left(life: Life, living: asyncio.Task[None]) -> None:
    """The replica has let go of what another one can take, or has come to its end by itself."""
    leaving = asyncio.create_task(life.leave(), name="leaving")
    await asyncio.wait({leaving, living}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()


async def _ended(living: asyncio.Task[None]) -> None:
    """Raises what it has come to its end by, if that was not we."""
    living.cancel()
    with suppress(asyncio.CancelledError):
        await living


async def _until_asked_to_end(
    living: asyncio.Task[None], serving: asyncio.Task[None], signals: asyncio.Queue[signal.Signals], emit: Emit
) -> int:
    """Wait for a signal (0), or for what makes going on impossible (1)."""
    asked = asyncio.create_task(signals.get(), name="signal")
    await asyncio.wait({asked, living, serving}, return_when=asyncio.FIRST_COMPLETED)
    if asked.done():
        emit(ServerDraining(asked.result().name))
        return 0
    asked.cancel()
    return 1
