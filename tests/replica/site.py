"""Several servers on one Postgres, and clients at work through all of them while somebody does bad things; and the
verdict in the end."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import httpx

from tests import served
from tests.databases import Database
from tests.effort import chance_of
from tests.faults.proxy import Proxy, Wanted, anybody, at_each_in_turn
from tests.history.checker import violations
from tests.history.clients import Site, set_up
from tests.history.record import Call, History
from tests.history.table import Row, Tell
from tests.history.tables import read_tables
from tests.history.terms import Terms
from tests.replica.several import TTL_SEC, until
from tests.served import PATIENCE_SEC, Served

CROWD: Final = 16
_GO_ON: Final = 20
_LATE_SEC: Final = 10.0
_LAST: Final = 100


class Member:
    """One replica, on one address whichever process serves there. `served` is the last one."""

    def __init__(self, database_url: str, port: int | None = None, **settings: Any) -> None:
        self.port = port or free_port()
        self.address = str(settings.get("advertise", f"127.0.0.1:{self.port}"))
        self._url = database_url
        self._settings = settings
        self.served: Served

    async def start(self) -> None:
        """A process that listens."""
        self.served = await served.start(self._url, port=self.port, **self._settings)
        await self.served.logged("server_listening")

    async def is_ready_as(self, role: str) -> None:
        """Wait until it says so."""
        async with self.served.client() as client, asyncio.timeout(PATIENCE_SEC):
            while (await client.get("/health/ready")).json().get("role") != role:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


class Replicas:
    """All of them and their clients. The balancer in between asks nobody whether he is well, so that some clients stay
    with whoever is in trouble."""

    def __init__(self, database: Database, members: list[Member], site: Site) -> None:
        self.database = database
        self.members = members
        self.site = site

    @property
    def history(self) -> History:
        """All that the clients were told."""
        return self.site.history

    @property
    def chance(self) -> random.Random:
        """By which the test acts."""
        return self.site.chance

    async def epoch(self) -> int:
        """How often the row was taken."""
        return int(await self.database.value("SELECT epoch FROM dispatcher"))

    async def dispatcher(self) -> Member:
        """The one that the row names."""
        address = await self.database.value("SELECT address FROM dispatcher")
        [found] = [member for member in self.members if member.address == address]
        return found

    async def taken_over(self, epoch: int) -> None:
        """Wait until somebody has taken the row since that epoch, and dispatches."""

        async def is_so() -> bool:
            return await self.epoch() > epoch

        await until(is_so)
        await (await self.dispatcher()).is_ready_as("dispatcher")

    @asynccontextmanager
    async def trouble(self, name: str) -> AsyncIterator[None]:
        """The block makes trouble. After it work goes on, and the register knows each replica."""
        with self.history.fault(name):
            yield
            await self.progress()
            for member in self.members:
                await until(lambda member=member: self._is_listed(member))  # type: ignore[misc]

    async def progress(self, count: int = _GO_ON) -> None:
        """Wait until so many more jobs are completed."""
        await self._more(count, lambda call: call.is_ok and call.kind == "complete")

    async def refused(self, count: int) -> None:
        """Wait until so many more calls are answered with a 503."""
        await self._more(count, lambda call: call.status == 503)

    async def _more(self, count: int, matches: Callable[[Call], bool]) -> None:
        begun = len(self.history.calls)

        async def are_there() -> bool:
            return sum(matches(call) for call in self.history.calls[begun:]) >= count

        await until(are_there)

    async def _is_listed(self, member: Member) -> bool:
        seen = f"SELECT last_seen_at > clock_timestamp() - interval '{TTL_SEC} s' FROM replicas"
        return (True,) in await self.database.fetch(f"{seen} WHERE address = '{member.address}'")

    async def verdict(self, terms: Terms, tell: Tell, fault: str) -> None:
        """What the checker finds once all are stopped: nothing."""
        assert {await member.served.stop() for member in self.members} == {0}
        tables = await read_tables(self.database)
        found = violations(self.history, tables, terms)
        tell(Row.of(fault, "postgres", self.history, tables, found))
        print(f"{fault}: {len(tables.jobs)} jobs, {summary(self.history)}")  # noqa: T201 - pytest shows it where asked
        assert {call.status for call in self.history.calls} <= {None, 200, 201, 404, 409, 422, 429, 503}
        assert found == []


@asynccontextmanager
async def balanced(members: list[Member], is_wanted: Wanted = anybody) -> AsyncIterator[str]:
    """They run, the first dispatches; the address at which a client gets any of them. Whatever happens, no process is
    left in the end."""
    balancer = Proxy(at_each_in_turn([_port_of(member) for member in members], is_wanted))
    async with balancer.run(), AsyncExitStack() as stack:
        for member in members:
            stack.push_async_callback(_killed, member)
        await members[0].start()
        await members[0].is_ready_as("dispatcher")
        await asyncio.gather(*(member.start() for member in members[1:]))
        yield f"http://127.0.0.1:{balancer.port}"


@asynccontextmanager
async def at_work(
    database: Database, members: list[Member], name: str, tell: Tell, terms: Terms | None = None
) -> AsyncIterator[Replicas]:
    """They run, and their clients are at work for the duration of the block; then comes the verdict."""
    async with balanced(members) as url:
        site = Site(url, chance_of(name), CROWD)
        site.up.set()
        async with site.voice("administrator") as voice:
            await set_up(site, voice)
        made = Replicas(database, members, site)
        with _told_if_it_fails(made):
            async with site.at_work():
                await made.progress(5)
                yield made
        await made.verdict(terms or Terms(), tell, name)


@contextmanager
def _told_if_it_fails(replicas: Replicas) -> Iterator[None]:
    """What clients were told of late, and what each replica has said last."""
    try:
        yield
    except BaseException:
        late = [call for call in replicas.history.calls if call.invoked_at > time.monotonic() - _LATE_SEC]
        print(Counter((call.kind, call.status) for call in late))  # noqa: T201 - pytest shows it where the test fails
        for member in replicas.members:
            print(member.address, *member.served.events[-_LAST:], sep="\n")  # noqa: T201
        raise


def _port_of(member: Member) -> int:
    """Where others find it: at its proxy's, if there is one."""
    return int(member.address.rpartition(":")[2])


async def _killed(member: Member) -> None:
    if hasattr(member, "served"):
        await member.served.kill()


def summary(history: History) -> str:
    """For whoever reads the report of a run."""
    statuses = Counter(call.status or 0 for call in history.calls)
    counts = ", ".join(f"{status or 'no answer'} x {n}" for status, n in sorted(statuses.items()))
    answered = [call for call in history.calls if call.returned_at < math.inf]
    slowest = max(answered, key=seconds)
    done = sum(call.is_ok for call in history.of("complete"))
    return f"{done} completed; {counts}; the slowest answer: {slowest} after {seconds(slowest):.2f} s"


def seconds(call: Call) -> float:
    """How long an answer took, beyond what was asked to be waited for."""
    asked = call.body.get("wait_sec", 0) if call.kind == "claim" else 0
    return call.returned_at - call.invoked_at - float(asked)


async def is_ready(port: int) -> bool:
    """What a balancer asks who is to know of deployments."""
    try:
        async with httpx.AsyncClient(verify=False) as client:  # noqa: S501 - plain HTTP, and a context takes long to make
            answer = await client.get(f"http://127.0.0.1:{port}/health/ready", timeout=PATIENCE_SEC)
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def assert_all_answered(history: History) -> None:
    """No client had to give up waiting, or was hung up on."""
    assert [str(call) for call in history.calls if call.status is None] == []


def free_port() -> int:
    """One at which nobody listens right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
