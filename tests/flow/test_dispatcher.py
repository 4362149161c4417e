"""One process dispatches on a database: a second one refuses to start and says who is there, one that was killed
is followed, and one that was taken over writes no more."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from app import main
from app.clock import Clock
from app.errors import AnotherDispatcher, DispatchLost, NotDispatching, Unavailable
from app.events import DispatcherAwaited, WriterFailed
from app.flow import recover
from app.flow.cancel import CancelFilter, cancel_many
from app.flow.core import Core
from app.flow.look import JobFilter, list_jobs
from app.main import running
from app.store import dispatcher
from app.store.dispatcher import Dispatcher
from tests.databases import Database
from tests.flow.harness import (
    PATIENCE_SEC,
    Away,
    Heard,
    Running,
    answers_of,
    failing,
    gate,
    hang_up,
    in_one_group,
    mortal,
    service,
    settings_for,
    until_idle,
)
from tests.flow.views import assert_memory_equals_sql, portrait

CLAIM_SEC = 0.5


@pytest.fixture
def short_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer watches a silent holder for this long."""
    monkeypatch.setattr(Dispatcher, "claim_sec", CLAIM_SEC)
    monkeypatch.setattr(dispatcher, "_WATCH_SEC", 0.02)


@pytest.fixture
def long_claim(short_claim: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it sets the pace
    """Longer than a holder that lives is silent on the busiest machine."""
    monkeypatch.setattr(Dispatcher, "claim_sec", PATIENCE_SEC)


async def row_of(database: Database) -> tuple[object, ...]:
    [row] = await database.fetch("SELECT holder, address, epoch, expires_at IS NULL FROM dispatcher")
    return row


async def beating(running: Running) -> None:
    """What the loop of ticks does for a holder that is idle."""
    while True:
        await running.tick(after=1)
        await asyncio.sleep(0.02)


@pytest.mark.usefixtures("long_claim")
async def test_a_second_server_refuses_and_says_who_is_there(database: Database) -> None:
    async with service(database, address="10.0.0.7:8080") as first:
        alive = asyncio.create_task(beating(first))

        with pytest.raises(AnotherDispatcher) as refused:
            async with service(database, clock=Clock(), address="10.0.0.8:8080"):
                pass

        await hang_up(alive)
        assert refused.value.address == "10.0.0.7:8080"
        assert refused.value.holder == first.core.dispatcher.holder
        assert refused.value.holder.startswith(f"{socket.gethostname()} process {os.getpid()} ")
        assert refused.value.holder in str(refused.value)
        assert "10.0.0.7:8080" in str(refused.value)
        assert first.core.writer.lost is None
        await first.submit()
        await assert_memory_equals_sql(first.core)


async def test_the_row_tells_who_dispatches_and_for_the_how_manieth_time(database: Database) -> None:
    for epoch in (1, 2, 3):
        async with service(database, address=f"host:{epoch}") as running_:
            holder = running_.core.dispatcher.holder
            assert await row_of(database) == (holder, f"host:{epoch}", epoch, False)
        assert await row_of(database) == (holder, f"host:{epoch}", epoch, True)  # given back
    async with mortal(database, address="host:4") as killed:
        await killed.restart()
        assert (await row_of(database))[1:3] == ("host:4", 5)


@pytest.mark.usefixtures("short_claim")
async def test_a_server_that_was_killed_is_waited_out_where_no_file_is_locked(database: Database) -> None:
    heard = Heard()
    async with mortal(database, address="killed:1") as killed:
        await killed.die()
        begun = Clock().monotonic()

        async with running(settings_for(database), heard, "next:1", Clock()):
            took = Clock().monotonic() - begun

    awaited = heard.all(DispatcherAwaited)
    if database.kind == "sqlite":
        assert awaited == []
    else:
        assert [(event.address, event.wait_sec) for event in awaited] == [("killed:1", CLAIM_SEC)]
        assert took >= CLAIM_SEC


async def test_a_server_that_could_not_start_is_not_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_core: Core) -> None:
        raise Away("injected")

    with monkeypatch.context() as patched:
        patched.setattr(main, "recover", fails)
        with pytest.raises(Away):
            async with service(database, address="failed:1"):
                pytest.fail("it has started")
    assert (await row_of(database))[1:] == ("failed:1", 1, True)  # given back
    async with service(database) as second:
        assert second.heard.all(DispatcherAwaited) == []


@pytest.mark.usefixtures("short_claim")
async def test_who_reads_for_longer_than_its_claim_lasts_is_given_time_to_put_it_in_order(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = recover._read

    async def read_slowly(*given: Any) -> Any:
        await asyncio.sleep(2 * CLAIM_SEC)
        return await read(*given)

    monkeypatch.setattr(recover, "_read", read_slowly)
    async with service(postgres, clock=Clock()):
        claimed = await postgres.value("SELECT expires_at - last_time FROM dispatcher")
    assert claimed.total_seconds() >= 2.9 * CLAIM_SEC


async def test_a_server_that_went_in_peace_is_not_waited_for(database: Database) -> None:
    async with service(database):
        pass
    async with service(database) as second:
        assert second.heard.all(DispatcherAwaited) == []


@pytest.mark.usefixtures("short_claim")
async def test_a_server_that_goes_in_peace_while_it_is_watched_is_followed_at_once(postgres: Database) -> None:
    first = service(postgres)
    await first.__aenter__()
    heard = Heard()
    second = running(settings_for(postgres), heard, "next:1", Clock())
    starting = asyncio.create_task(second.__aenter__())
    await heard.wait_for(DispatcherAwaited)

    await first.__aexit__(None, None, None)

    async with asyncio.timeout(PATIENCE_SEC):
        made = await starting
    assert made.core.writer.lost is None
    await second.__aexit__(None, None, None)


@pytest.mark.usefixtures("long_claim")
async def test_of_two_servers_that_start_at_once_one_refuses(database: Database) -> None:
    refused = asyncio.Event()

    async def start(address: str) -> str:
        try:
            async with (
                service(database, clock=Clock(), ticking=True, tick_ms=50, address=address),
                asyncio.timeout(PATIENCE_SEC),
            ):
                await refused.wait()  # however late the other one comes
                return address
        except AnotherDispatcher:
            refused.set()
            raise

    starts = [asyncio.create_task(start(address)) for address in ("one:1", "two:2")]
    answers = await answers_of(starts)

    assert {type(answer) for answer in answers} == {str, AnotherDispatcher}
    assert await database.value("SELECT epoch FROM dispatcher") == 1


# --- Taken over --------------------------------------------------------------------------------------------


async def forge_a_newcomer(database: Database) -> None:
    """What a newcomer writes that has watched a holder for long enough."""
    await database.execute(
        "UPDATE dispatcher SET holder = 'newcomer', address = 'newcomer:1', epoch = epoch + 1 WHERE name = 'main'"
    )


async def test_who_was_taken_over_writes_no_more_and_says_so(database: Database) -> None:
    async with service(database) as running_:
        core = running_.core
        await running_.submit()
        before = await portrait(core)
        await forge_a_newcomer(database)

        answers = await in_one_group(core, running_.submit(name="lost"), running_.claim(), running_.submit("new"))

        assert [type(answer) for answer in answers] == [NotDispatching] * 3
        assert all("taken over" in str(answer) for answer in answers)
        assert isinstance(core.writer.lost, DispatchLost)
        assert core.writer.lost_event.is_set()
        health = core.health()
        assert (health.live, health.ready) == (False, False)
        assert "taken over" in health.why
        assert [event.requests for event in running_.heard.all(WriterFailed)] == [3]
        assert await portrait(core) == before
        for request in (running_.submit(), running_.claim(), until_idle(core)):
            with pytest.raises(Unavailable, match="taken over"):
                await request
        assert len(running_.heard.all(WriterFailed)) == 1  # nobody even tried
        assert len((await list_jobs(core, JobFilter())).jobs) == 1  # but looking is allowed
    assert (await row_of(database))[0] == "newcomer"  # the end gave nothing back that was not its own


async def test_a_cancellation_of_many_that_is_cut_short_does_not_say_that_it_has_done_nothing(
    database: Database,
) -> None:
    async with service(database) as running_:
        await running_.submit()
        await forge_a_newcomer(database)
        with pytest.raises(Unavailable, match="taken over") as refused:
            await cancel_many(running_.core, CancelFilter(tenant="acme"))
        assert not isinstance(refused.value, NotDispatching)


async def test_who_is_taken_over_in_the_middle_of_a_transaction_does_not_commit_it(postgres: Database) -> None:
    async with service(postgres) as running_:
        core = running_.core
        job = await running_.submit()
        with gate(core, "statement", statement="UPDATE jobs") as stopped:
            claiming = asyncio.create_task(running_.claim())
            await stopped.reached()
            await forge_a_newcomer(postgres)
            stopped.open()
            [answer] = await answers_of([claiming])

        assert isinstance(answer, Unavailable)
        assert core.writer.lost is not None
        assert await postgres.fetch("SELECT state, token FROM jobs") == [("queued", None)]
        assert core.order.queued_job(job.id) is not None


async def test_who_is_taken_over_while_in_doubt_does_not_go_on(database: Database) -> None:
    async with service(database) as running_:
        core = running_.core
        with failing(core, "after commit"), pytest.raises(Unavailable):
            await running_.submit()
        await forge_a_newcomer(database)

        with pytest.raises(Unavailable, match="taken over"):
            await running_.submit()

        assert core.writer.lost is not None
        assert await database.value("SELECT count(*) FROM jobs") == 1


async def test_what_waits_while_the_dispatch_is_lost_is_refused_too(postgres: Database) -> None:
    async with service(postgres) as running_:
        core = running_.core
        with gate(core, "begin") as stopped:
            first = asyncio.create_task(running_.submit(name="first"))
            await stopped.reached()
            later = [asyncio.create_task(running_.submit(name="later")) for _ in range(3)]
            await forge_a_newcomer(postgres)
            stopped.open()
            answers = await answers_of([first, *later])

        assert [type(answer) for answer in answers] == [NotDispatching] * 4
        assert await postgres.value("SELECT count(*) FROM jobs") == 0


@pytest.mark.usefixtures("short_claim")
async def test_a_holder_that_wakes_up_after_it_was_followed_loses_to_its_follower(postgres: Database) -> None:
    async with service(postgres, address="sleeper:1") as sleeper:
        await sleeper.submit(name="mine")
        async with service(postgres, clock=Clock(), address="follower:1") as follower:
            await follower.submit(name="theirs")

            with pytest.raises(Unavailable, match="taken over"):
                await sleeper.submit(name="lost")

            await follower.submit(name="more")
            await assert_memory_equals_sql(follower.core)
            assert (await row_of(postgres))[1:3] == ("follower:1", 2)
        assert sleeper.core.writer.lost is not None
    assert await postgres.value("SELECT count(*) FROM jobs") == 3


async def test_an_idle_holder_shows_every_second_that_it_lives(postgres: Database) -> None:
    async with service(postgres) as running_:
        seen = []
        for _ in range(3):
            await running_.tick(after=1.1)
            seen.append(await postgres.value("SELECT expires_at FROM dispatcher"))
        assert seen == sorted(set(seen))
