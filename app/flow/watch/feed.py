"""The moves of jobs, for those who watch from outside: each commit is kept once, for a while, and every watcher reads
on from where it is. So the writer's side costs the same however many watch, and a slow watcher delays nobody: it is
told how much it has missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from app.errors import Unavailable
from app.flow.moves import Moved, Moves
from app.scheduling.job import Job, State

MOST_WATCHERS: Final = 100
KEPT_MOVES: Final = 10_000
"""So far may a watcher fall behind before it misses any."""

AT_ONCE: Final = 200
"""Most moves that a watcher is handed in one go."""

LOOK_EVERY_SEC: Final = 0.05
"""Least pause between two looks of a watcher: under load one look then serves many commits."""


@dataclass(slots=True, eq=False)
class StateMove:
    """A job went from `old_state` (None: it is new) to `new_state`. The times are those of the job after it; its
    payload is left out, so that many moves can be kept. `written` is the move as it goes over the wire, once
    somebody has written it."""

    id: str
    seq: int
    tenant: str
    queue: str
    test_suite: str
    old_state: State | None
    new_state: State
    submitted_at: datetime
    run_at: datetime
    queued_at: datetime | None
    scheduled_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    written: bytes = b""

    @classmethod
    def of(cls, old: State | None, job: Job) -> Self:
        """The move that left `job` as it is."""
        return cls(
            job.id,
            job.seq,
            job.tenant,
            job.queue,
            job.test_suite,
            old,
            job.state,
            job.submitted_at,
            job.run_at,
            job.queued_at,
            job.scheduled_at,
            job.started_at,
            job.completed_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFilter:
    """Which moves to watch; `state` is the one moved to, None is any."""

    tenant: str | None = None
    state: State | None = None
    queue: str | None = None
    test_suite: str | None = None

    def takes(self, move: StateMove) -> bool:
        """Whether it is one of them."""
        return (
            (self.tenant is None or self.tenant == move.tenant)
            and (self.state is None or self.state is move.new_state)
            and (self.queue is None or self.queue == move.queue)
            and (self.test_suite is None or self.test_suite == move.test_suite)
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """The next moves, after `missed` others that came too fast."""

    moves: Sequence[StateMove]
    missed: int = 0


class Feed:
    """What has moved of late, and who watches. It listens to the moves only while somebody does."""

    def __init__(self, moves: Moves, ended: asyncio.Future[None]) -> None:
        """`ended` is done once the service drains."""
        self.ended = ended
        self._moves = moves
        self._kept: list[StateMove] = []
        self._first = 0
        self._watchers: set[Watcher] = set()
        self._readers: set[Watcher] = set()
        self._leave: Callable[[], None] | None = None
        self._news = asyncio.Event()

    def watch(self, *, reads: bool = True) -> Watcher:
        """A watcher from now on, to be closed. One that does not read only hears that there is something new, and
        nothing is kept for it. Raises `Unavailable` while as many as can be served watch already."""
        if len(self._watchers) >= MOST_WATCHERS:
            raise Unavailable(f"{MOST_WATCHERS} clients watch already; try again later", retry_after=10)
        if self._leave is None:
            self._leave = self._moves.listen(self._keep)
        watcher = Watcher(self)
        self._watchers.add(watcher)
        if reads:
            self._readers.add(watcher)
        return watcher

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._watchers)

    @property
    def position(self) -> int:
        """The number that the next move gets."""
        return self._first + len(self._kept)

    def since(self, position: int) -> Batch:
        """Some of the moves from `position` on, and how many before them are kept no more."""
        start = max(position, self._first)
        offset = start - self._first
        return Batch(self._kept[offset : offset + AT_ONCE], missed=start - position)

    async def beyond(self, position: int) -> None:
        """Wait until the move with this number has happened."""
        while self.position <= position:
            await self._news.wait()

    def lose(self, count: int) -> None:
        """So many moves may have happened, and nobody can be told which. Who watches has missed them, and with them
        what was kept and not read yet: what is told without a gap is told in order."""
        if count:
            self._first, self._kept = self.position + count, []
            self._tell_of_news()

    def forget(self, watcher: Watcher) -> None:
        """It watches no more."""
        self._watchers.discard(watcher)
        self._readers.discard(watcher)
        if not self._readers:
            self._first, self._kept = self.position, []
        if not self._watchers and self._leave is not None:
            self._leave()
            self._leave = None

    def _keep(self, moves: Sequence[Moved]) -> None:
        if self._readers:
            self._kept += [StateMove.of(moved.old, moved.job) for moved in moves if moved.job is not None]
            self._forget_oldest()
        else:
            self._first += len(moves)
        self._tell_of_news()

    def _tell_of_news(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _forget_oldest(self) -> None:
        # Rarely and many at once: each cut moves all that stays.
        if len(self._kept) > 2 * KEPT_MOVES:
            excess = len(self._kept) - KEPT_MOVES
            del self._kept[:excess]
            self._first += excess


class Watcher:
    """One that watches, and how far it has come."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._position = feed.position

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """It watches no more; again: the same."""
        self._feed.forget(self)

    async def arrived(self) -> None:
        """Wait until there is something new."""
        await self._feed.beyond(self._position)

    def next(self) -> Batch:
        """Some of what is new, perhaps nothing."""
        batch = self._feed.since(self._position)
        self._position += batch.missed + len(batch.moves)
        return batch

    def skip(self) -> None:
        """All that has happened is known."""
        self._position = self._feed.position

    async def batches(self, quiet_sec: float) -> AsyncIterator[Batch]:
        """What is new, for ever; an empty batch when nothing was for so long."""
        while True:
            try:
                async with asyncio.timeout(quiet_sec):
                    await self.arrived()
            except TimeoutError:
                yield Batch(())
                continue
            yield self.next()
            await asyncio.sleep(LOOK_EVERY_SEC if self._feed.position == self._position else 0)
