"""One transaction of the writer, shared by a group of writes. What nobody looks at is collected and written together,
at the latest before the next statement looks at the tables, at best with what ends the transaction. Where there are
many new rows, the database is at work on some while the next are being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.clock import Clock
from app.scheduling.job import Job
from app.store import jobs, queues, tenants
from app.store.numbers import Numbers
from app.store.parts import Part, Told

SENT_AHEAD: Final = 200
"""So many new jobs are sent on their way before the next are made. Fewer would cost more in statements than is won."""


class Transaction:
    """What a write gets to work with. It is open for the duration of the write and no longer."""

    def __init__(
        self, connection: AsyncConnection, clock: Clock, numbers: Numbers, *, has_begun: bool, is_careful: bool
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._numbers = numbers
        self._new_tenants: set[str] = set()
        self._new_queues: set[str] = set()
        self._new_jobs: list[Job] = []
        self._parts: list[Part] = []
        self._on_the_way: asyncio.Task[None] | None = None
        self.has_begun = has_begun
        """Whether the database may know of it yet."""
        self.is_careful = is_careful
        """Whether what memory expected has been found wrong: look before anything is changed."""
        self.steps_after_commit: list[Callable[[], None]] = []
        self.touched = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        connection: AsyncConnection,
        clock: Clock,
        numbers: Numbers,
        *,
        has_begun: bool = True,
        is_careful: bool = False,
    ) -> AsyncIterator[Transaction]:
        """A transaction on a connection. Whatever ends the block, nothing is under way on the connection then."""
        tx = cls(connection, clock, numbers, has_begun=has_begun, is_careful=is_careful)
        try:
            yield tx
        except asyncio.CancelledError:
            if tx._on_the_way is not None:
                tx._on_the_way.cancel()  # nobody knows whether it would ever end
            raise
        finally:
            await tx.drop_collected()

    @property
    def clock(self) -> Clock:
        """The times that go into rows come from here."""
        return self._clock

    def next_seq(self) -> int:
        """The number of the next new job; at most as many as `Writer.write` was told."""
        return self._numbers.take()

    def need_tenant(self, name: str) -> None:
        """The tenant's row exists before anything that follows."""
        self.touched += 1
        self._new_tenants.add(name)

    def need_queue(self, name: str) -> None:
        """The queue's row exists before anything that follows."""
        self.touched += 1
        self._new_queues.add(name)

    def insert_job(self, job: Job) -> None:
        """Insert a new job, together with its neighbours of this group."""
        self.touched += 1
        self._new_jobs.append(job)

    def after_commit(self, step: Callable[..., None], *args: Any) -> None:
        """Call `step(*args)` once the transaction is durable, and never if it is undone."""
        self.steps_after_commit.append(lambda: step(*args))

    def connection(self) -> AsyncConnection:
        """For a statement that has nothing to do with what is collected."""
        self.has_begun = True
        return self._connection

    async def reading(self) -> AsyncConnection:
        """The connection to look with before anything is changed: a write that finds it must refuse may
        still raise a `FairlaneError`, and its neighbours do not notice."""
        await self.flush()
        return self.connection()

    async def settled(self) -> AsyncConnection:
        """The connection to write on, with everything collected so far in the database."""
        self.touched += 1
        return await self.reading()

    def write(self, *written: Part) -> None:
        """Write these, at the latest before the next statement. No row is in two of them."""
        self.touched += 1
        self._parts += written

    async def end(self) -> Sequence[Part]:
        """Write what cannot wait for what the transaction ends with; what is to be written with that."""
        await self._arrived()
        await self._insert_parents()
        return self._take_parts()

    async def flush(self) -> None:
        """Write what is collected so far, each row after those that it refers to. Raises `Redo`."""
        await self._arrived()
        await self._write(self._tell_collected())

    async def send_ahead(self) -> None:
        """Insert the rows collected so far if they are many, but do not wait for it. What goes wrong with it is raised
        by whoever uses the connection next."""
        if len(self._new_jobs) < SENT_AHEAD:
            return
        collected = self._tell_collected()  # while the database is at work on the last ones
        await self._arrived()
        self._on_the_way = asyncio.create_task(self._write(collected), name="inserting ahead")
        await asyncio.sleep(0)  # now it is sent

    async def drop_collected(self) -> None:
        """Forget what is not written yet: the write that asked for it failed."""
        self._new_tenants.clear()
        self._new_queues.clear()
        self._new_jobs.clear()
        self._parts.clear()
        with suppress(Exception):
            await self._arrived()

    async def _arrived(self) -> None:
        if self._on_the_way is not None:
            sent, self._on_the_way = self._on_the_way, None
            await sent

    def _tell_collected(self) -> list[Told]:
        return [Told(part, self._connection) for part in self._take_parts()]

    async def _write(self, collected: Sequence[Told]) -> None:
        await self._insert_parents()
        for told in collected:
            await told.write(self.connection())

    async def _insert_parents(self) -> None:
        new_tenants, self._new_tenants = self._new_tenants, set()
        new_queues, self._new_queues = self._new_queues, set()
        if new_tenants:
            await tenants.ensure(self.connection(), sorted(new_tenants), self._clock.now())
        if new_queues:
            await queues.ensure(self.connection(), sorted(new_queues))

    def _take_parts(self) -> list[Part]:
        new_jobs, self._new_jobs = self._new_jobs, []
        collected, self._parts = self._parts, []
        return [jobs.new_rows(new_jobs), *collected] if new_jobs else collected
