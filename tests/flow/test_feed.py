"""Who watches the moves: told each in order, however slow, and never at the writer's expense."""

from __future__ import annotations

import pytest

from app.errors import Unavailable
from app.flow.core import Core
from app.flow.submit import JobRequest
from app.flow.watch import feed
from app.flow.watch.feed import Batch, MoveFilter, StateMove, Watcher
from app.scheduling.job import State
from tests.databases import Database, Databases
from tests.flow.harness import failing, service


def _all(watcher: Watcher) -> list[Batch]:
    """All that is new to it."""
    batches = [watcher.next()]
    while batches[-1].moves:
        batches.append(watcher.next())
    return batches[:-1]


def _listeners(core: Core) -> int:
    return len(core.moves._listeners)


async def test_each_watcher_reads_on_from_where_it_is(database: Database) -> None:
    async with service(database) as running:
        watched = running.core.feed
        with watched.watch() as early:
            job = await running.submit()
            with watched.watch() as late:
                claimed = await running.claim_one(start=True)
                await running.complete(claimed)
                told = [(move.old_state, move.new_state) for batch in _all(late) for move in batch.moves]
            assert told == [
                (State.QUEUED, State.SCHEDULED),
                (State.SCHEDULED, State.RUNNING),
                (State.RUNNING, State.COMPLETED),
            ]
            [batch] = _all(early)
            assert [move.new_state for move in batch.moves] == ["queued", "scheduled", "running", "completed"]
            assert {move.id for move in batch.moves} == {job.id}
            assert batch.moves[0].started_at is None
            assert batch.moves[-1].started_at == claimed.started_at
            assert not _all(early)


async def test_it_listens_only_while_somebody_watches(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        before = _listeners(core)
        first, second = core.feed.watch(), core.feed.watch()
        assert _listeners(core) == before + 1
        first.close()
        first.close()
        await running.submit()
        assert len(_all(second)) == 1
        second.close()
        assert _listeners(core) == before
        await running.submit()
        with core.feed.watch() as third:
            assert not _all(third)
            await running.submit()
            assert len(_all(third)) == 1


async def test_for_who_only_hears_of_news_nothing_is_kept(database: Database) -> None:
    async with service(database) as running:
        core = running.core
        with core.feed.watch(reads=False) as bell:
            await running.submit()
            await bell.arrived()
            assert not core.feed._kept
            bell.skip()
            with core.feed.watch() as reader:
                await running.submit()
                await bell.arrived()
                assert [len(batch.moves) for batch in _all(reader)] == [1]
            assert not core.feed._kept
            await running.submit()
            assert core.feed.position == 3


async def test_a_slow_watcher_is_told_how_many_it_missed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "KEPT_MOVES", 50)
    async with service(database) as running:
        with running.core.feed.watch() as slow:
            for _ in range(4):
                await running.submit_all([JobRequest(tenant="acme", test_suite="unit")] * 40)
            batches = _all(slow)
            told = [move.seq for batch in batches for move in batch.moves]
            assert batches[0].missed + len(told) == 160
            assert len(told) >= 50
            assert told == sorted(told)
            assert [batch.missed for batch in batches[1:]] == [0] * (len(batches) - 1)
        assert len(running.core.feed._kept) == 0


async def test_after_a_doubtful_commit_a_watcher_is_told_of_a_gap(database: Database) -> None:
    async with service(database) as running:
        job = await running.submit()
        with running.core.feed.watch() as watcher:
            with failing(running.core, "after commit"), pytest.raises(Unavailable):
                await running.cancel(job)
            await running.tick()
            await running.submit()

            [gap, after] = [watcher.next(), watcher.next()]

        assert gap.missed == 1
        assert [move.old_state for move in (*gap.moves, *after.moves)] == [None]


async def test_no_more_watch_than_can_be_served(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_WATCHERS", 2)
    async with service(database) as running:
        watched = running.core.feed
        first, _ = watched.watch(), watched.watch()
        with pytest.raises(Unavailable):
            watched.watch()
        assert watched.watchers == 2
        first.close()
        watched.watch()


async def test_a_quiet_watcher_gets_empty_batches_until_something_moves(database: Database) -> None:
    async with service(database) as running:
        with running.core.feed.watch() as watcher:
            batches = watcher.batches(quiet_sec=0.01)
            assert await anext(batches) == Batch(())
            job = await running.submit()
            async for batch in batches:
                if batch.moves:
                    assert [move.id for move in batch.moves] == [job.id]
                    break


async def test_a_filter_takes_what_matches_in_all_it_names(sqlite_databases: Databases) -> None:
    async with service(sqlite_databases.create()) as running:
        move = StateMove.of(None, await running.submit("acme", "unit"))
    assert MoveFilter().takes(move)
    assert MoveFilter(tenant="acme", state=State.QUEUED, queue="default", test_suite="unit").takes(move)
    for other in (
        MoveFilter(tenant="b"),
        MoveFilter(tenant="acme", state=State.PENDING),
        MoveFilter(tenant="acme", queue="gpu"),
        MoveFilter(tenant="acme", test_suite="smoke"),
    ):
        assert not other.takes(move)
