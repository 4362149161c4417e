"""The dispatcher ends, politely or not, or stands still: another goes on, soon, and as if it had always been there."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.clock import parse_rfc3339
from app.scheduling.scheduler import Policy, step_units
from app.store.dispatcher import FOR_A_COPY
from app.store.engine import open_engines
from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.replica import standing_still
from tests.replica.several import TTL_SEC, Replicas, claimed, replicas_on, submitted, until
from tests.replica.standing_still import COMMITS, PROVES, Stop
from tests.served import PATIENCE_SEC, PROGRAM, Served
from tests.twin import Twin, read_history, relive

_SLOW: Final = 10.0
"""So much slower may a machine be than the one on which the promises were measured."""


class Gap:
    """Calls through one replica, one after the other; the longest that any of them took."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.stored: list[str] = []
        self.longest_sec = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Calls come for as long as the block lasts, and a while after it. None of them may fail."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:  # a call that fails ends the test
            group.create_task(self._call(over))
            await self._more(5)
            yield
            await self._more(5)
            over.set()

    async def _more(self, count: int) -> None:
        wanted = len(self.stored) + count

        async def has() -> bool:
            return len(self.stored) >= wanted

        await until(has)

    async def _call(self, over: asyncio.Event) -> None:
        while not over.is_set():
            began = time.monotonic()
            job = await submitted(self._client, f"gap-{len(self.stored)}", queue="gap")
            self.longest_sec = max(self.longest_sec, time.monotonic() - began)
            self.stored.append(job["id"])


class Crowd:
    """Who submits and who works, through whichever replica a proxy would send them to. None of their calls may fail."""

    def __init__(self, clients: list[httpx.AsyncClient], chance: random.Random) -> None:
        self.clients = clients
        self.stored: list[str] = []
        self.done: list[str] = []
        self._chance = chance
        self._over = asyncio.Event()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """For as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(self._submit(number))
                group.create_task(self._work())
            yield
            self._over.set()

    async def _submit(self, number: int) -> None:
        while not self._over.is_set():
            key = f"crowd-{number}-{len(self.stored)}"
            self.stored.append((await submitted(self._chance.choice(self.clients), key, queue="crowd"))["id"])

    async def _work(self) -> None:
        while not self._over.is_set():
            for job in await claimed(self._chance.choice(self.clients), queues=["crowd"], wait_sec=1, start=True):
                body, client = {"token": job["lease"]["token"]}, self._chance.choice(self.clients)
                assert (await client.post(f"/jobs/{job['id']}/complete", json=body)).is_success
                self.done.append(job["id"])


async def test_a_dispatcher_that_is_asked_to_end_hands_over_and_nobody_notices(postgres: Database) -> None:
    async with replicas_on(postgres, 3, leader_ttl_sec=PATIENCE_SEC) as made:
        first, second, third = made.all
        async with first.client() as by_first, second.client() as by_second, third.client() as by_third:
            job = await submitted(by_first, "leased")
            [leased] = await claimed(by_first, start=True)
            gap, crowd = Gap(by_third), Crowd([by_first, by_second, by_third], chance_of("a crowd"))
            waiting = asyncio.create_task(claimed(by_third, queues=["later"], wait_sec=30))
            async with crowd.at_work(), gap.watched():
                crowd.clients.remove(by_first)
                first.signal(signal.SIGTERM)
                await first.logged("dispatch_handed_over")
                assert await waiting == []  # comes back, and would come again
            path, token = f"/jobs/{job['id']}", {"token": leased["lease"]["token"]}
            assert (await by_third.post(path + "/complete", json=token)).json()["state"] == "completed"
            assert await first.exited() == 0
        heirs = [served for served in (second, third) if _names(served).count("dispatch_begun")]
        assert len(heirs) == await made.epoch() - 1 == 1
        without_sec = _time_of(heirs[0], "dispatch_begun") - _time_of(first, "server_draining")
        waited_ms = f"{gap.longest_sec * 1000:.0f} ms"
        print(f"nobody dispatched for {without_sec * 1000:.0f} ms, no call took longer than {waited_ms}")  # noqa: T201
        assert without_sec < 0.5 * _SLOW
        assert gap.longest_sec < 1 * _SLOW
        rows = await postgres.fetch("SELECT id, state, attempt FROM jobs")
        states = {str(job_id).replace("-", ""): (state, attempt) for job_id, state, attempt in rows}
        assert states.keys() == {job["id"], *gap.stored, *crowd.stored}
        assert len(crowd.done) == len(set(crowd.done)) > 0
        assert {states[done] for done in crowd.done} == {("completed", 1)}


async def test_a_dispatcher_that_is_killed_is_followed_within_the_time_of_a_claim(postgres: Database) -> None:
    async with replicas_on(postgres, 2) as made, made.all[1].client() as by_second:
        await submitted(by_second, "leased")
        [leased] = await claimed(by_second, start=True)
        gap = Gap(by_second)
        async with gap.watched():
            await made.all[0].kill()
            await made.all[1].logged("dispatch_begun")
        print(f"nobody dispatched for at most {gap.longest_sec:.2f} s of {TTL_SEC + 1}")  # noqa: T201
        assert gap.longest_sec < TTL_SEC + 1 * _SLOW
        token = {"token": leased["lease"]["token"]}
        assert (await by_second.post(f"/jobs/{leased['id']}/complete", json=token)).is_success
        assert (await by_second.get("/health/ready")).json()["role"] == "dispatcher"


async def test_without_a_dispatcher_a_call_waits_for_a_while_and_is_then_refused(postgres: Database) -> None:
    async with replicas_on(postgres, 2, leader_ttl_sec=1) as made, made.all[1].client() as by_second:
        # Somebody holds the row who is not there.
        await postgres.execute(
            "UPDATE dispatcher SET holder = 'ghost', address = '127.0.0.1:1', epoch = epoch + 1,"
            " expires_at = now() + interval '1 hour'"
        )
        await made.all[0].logged("dispatch_taken_over")
        began = time.monotonic()
        refused = await by_second.post("/jobs", json={"tenant": "acme", "test_suite": "suite"})
        assert (refused.status_code, int(refused.headers["retry-after"])) == (503, 1)
        assert "no replica dispatches" in refused.json()["error"]
        assert time.monotonic() - began >= 1
        assert (await by_second.get("/jobs")).json() == []  # who only looks is served
        assert (await by_second.get("/health/ready")).status_code == 200
        await postgres.execute("UPDATE dispatcher SET expires_at = NULL")
        await submitted(by_second, "again")


async def test_a_dispatcher_that_stood_still_and_was_not_followed_goes_on(postgres: Database) -> None:
    async with replicas_on(postgres, 1, leader_ttl_sec=1) as made, made.all[0].client() as client:
        await submitted(client, "before")
        made.all[0].signal(signal.SIGSTOP)
        await until(lambda: postgres.value("SELECT expires_at < clock_timestamp() FROM dispatcher"))
        asked = asyncio.create_task(client.get("/stats"))
        made.all[0].signal(signal.SIGCONT)
        assert (await asked).json()["queue_depth"] == 1
        await submitted(client, "after")
        assert await made.epoch() == 1


_COUNTING: Final = """
import signal, weakref
from app.flow.core import Core
begin, begun = Core.__init__, weakref.WeakSet()
def counted(self, *given):
    begin(self, *given)
    begun.add(self)
Core.__init__ = counted
signal.signal(signal.SIGUSR1, lambda *_: print("in memory:", len(begun), flush=True))
"""


async def test_nothing_of_what_a_dispatcher_had_in_memory_outlives_its_time(postgres: Database) -> None:
    program, once = _COUNTING + PROGRAM, httpx.Limits(max_keepalive_connections=0)
    async with replicas_on(postgres, 1, program=program) as made, made.all[0].client(limits=once) as client:
        for epoch in (3, 5, 7):
            await submitted(client, f"before-{epoch}")
            await postgres.execute("UPDATE dispatcher SET epoch = epoch + 1, expires_at = NULL")
            await made.all[0].logged("dispatch_begun", lambda event, now=epoch: event["epoch"] == now)  # type: ignore[misc]
        made.all[0].signal(signal.SIGUSR1)
        await made.all[0].printed("in memory: ")
        assert "in memory: 2\n" in made.all[0].text  # the one that stands by, and the one that dispatches


async def test_nobody_stands_by_for_a_copy(postgres: Database) -> None:
    async with replicas_on(postgres, 1) as made:
        await postgres.execute(
            f"UPDATE dispatcher SET holder = 'a copy', address = '{FOR_A_COPY}', epoch = epoch + 1,"
            " expires_at = now() + interval '1 hour'"
        )
        assert await made.all[0].exited() == 1
        assert (
            f"another Fairlane server dispatches on this database: a copy, listening on {FOR_A_COPY}"
            in made.all[0].text
        )
        assert "Traceback" not in made.all[0].text


@pytest.mark.parametrize("moment", [PROVES, COMMITS])
async def test_a_dispatcher_that_stands_still_commits_nothing_after_another_took_over(
    postgres: Database, tmp_path: Path, moment: str
) -> None:
    ttl_sec, stop = 1.0, Stop(tmp_path, moment)
    stopping: dict[str, Any] = {"program": standing_still.PROGRAM, "environment": stop.environment}
    async with replicas_on(postgres, 1, leader_ttl_sec=ttl_sec, **stopping) as made:
        first = made.all[0]
        second = await made.start(program=PROGRAM, environment={})
        await second.logged("standing_by")
        async with first.client() as by_first, second.client() as by_second:
            queued = [await submitted(by_first, f"before-{n}") for n in range(3)]
            stop.ask()
            claiming = asyncio.create_task(claimed(by_first))
            await second.logged("dispatch_begun")
            leased = await _claimed_at_last(by_second)
            assert leased["id"] == queued[0]["id"]
            asked = asyncio.create_task(by_first.get("/stats"))  # its own memory is old by then
            await asyncio.sleep(1.5 * ttl_sec)
            first.signal(signal.SIGCONT)
            assert (await asked).json()["queue_depth"] == 2
            await first.logged("dispatch_taken_over")
            if moment == COMMITS:  # nobody knows whether it has
                with pytest.raises(AssertionError, match="503"):
                    await claiming
            else:  # the next one is asked
                assert [job["id"] for job in await claiming] == [queued.pop(1)["id"]]
            assert [job["id"] for job in await claimed(by_first, limit=5)] == [job["id"] for job in queued[1:]]
            assert (await by_first.get("/health/ready")).json()["role"] == "standby"
    attempts = await postgres.fetch("SELECT attempt FROM jobs")
    assert attempts == [(1,)] * 3
    assert await postgres.value("SELECT count(*) FROM job_attempts") == 0


async def _claimed_at_last(client: httpx.AsyncClient) -> dict[str, Any]:
    """A job, once Postgres has ended the session of who stands still: until then the rows are locked that it meant."""
    async with asyncio.timeout(PATIENCE_SEC):
        while (answer := await client.post("/jobs/claim", json={"worker": "w"})).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    [job] = answer.json()["jobs"]
    return dict(job)


@pytest.mark.torture
async def test_the_order_after_changes_of_hands_is_that_of_a_twin_without_them(postgres: Database) -> None:
    chance = chance_of("order over changes of hands")
    async with replicas_on(postgres, 2, leader_ttl_sec=1) as made:
        for tenant, weight in (("red", 3), ("blue", 1)):
            async with made.all[0].client() as client:
                assert (await client.put(f"/tenants/{tenant}", json={"weight": weight})).is_success
        for change in range(2 * EFFORT):
            await _work(made, chance, change)
            await _change_hands(made, chance)
        await _work(made, chance, -1)
        async with open_engines(postgres.url) as engines:
            history = await read_history(engines)
    settings = [(history.jobs[0].submitted_at, _weigh)]
    relived = relive(history, Policy.VIRTUAL_TIME, step_units(Decimal(1)), settings)
    assert relived.wrong == []
    assert len(relived.picked) > 20 * EFFORT


def _weigh(twin: Twin) -> None:
    twin.order.set_tenant("red", weight=3, max_running=None, paused=False)


async def _work(made: Replicas, chance: random.Random, change: int) -> None:
    """Jobs come and go through any of those that live."""
    clients = [served.client() for served in made.all if served.process.returncode is None]
    for n in range(20):
        fields = {
            "tenant": chance.choice(("red", "blue")),
            "priority": chance.randrange(4),
            "cost": chance.randint(1, 3),
        }
        await submitted(chance.choice(clients), f"{change}-{n}", **fields)
        if chance.random() < 0.6:
            for job in await claimed(chance.choice(clients), start=True):
                end = chance.choice(("complete", "release"))
                body = {"token": job["lease"]["token"]}
                assert (await chance.choice(clients).post(f"/jobs/{job['id']}/{end}", json=body)).is_success
    for client in clients:
        await client.aclose()


async def _change_hands(made: Replicas, chance: random.Random) -> None:
    """The one that dispatches ends, and one more is started."""
    [dispatching] = [served for served in made.all if served.process.returncode is None and _dispatches(served)]
    if chance.random() < 0.5:
        await dispatching.kill()
    else:
        assert await dispatching.stop() == 0
    await made.start()


def _dispatches(served: Served) -> bool:
    return "dispatch_begun" in _names(served)


def _time_of(served: Served, name: str) -> float:
    [event] = [event for event in served.events if event["event"] == name]
    return parse_rfc3339(event["time"]).timestamp()


def _names(served: Served) -> list[str]:
    return [event["event"] for event in served.events]
