"""The one writer. Writes that wait together share a transaction, so that under load one commit (an fsync)
serves many requests and an idle service makes nobody wait. It knows nothing of jobs: what a write does to
the database is the write's own affair, and what memory must undo with it is behind `Memory`."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, Protocol

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.clock import Clock
from app.errors import DispatchLost, FairlaneError, NotDispatching, Unavailable
from app.events import Emit, GroupCommitted, LoopFailed, WriterFailed
from app.spans import NO_SPANS, Spans
from app.store import dialect, parts
from app.store.answers import ANSWER_SEC, SEVER_SEC, STILL_AWAY_SEC, Answers
from app.store.conclusion import Conclusion
from app.store.dispatcher import Dispatcher
from app.store.group import A, Refused, Run, RunEach, T, Write, calls
from app.store.numbers import Numbers
from app.store.parts import Part, Redo
from app.store.transaction import Transaction

GROUP_WRITES: Final = 256
"""Most writes in one transaction: it bounds how long the first of them waits for the last."""

GROUP_ITEMS: Final = 1000
"""A group that has so many items of shared writes, or new jobs, takes no further write: while the database is at work
on it, the next is read and checked."""

PLANS_LAST: Final = 1000
PLANS_LAST_LONGEST: Final = 64_000
"""After so many new jobs the database plans its statements anew, and then each time after twice as many: what it does
with a small table is no good with a large one."""

REDO_LIMIT: Final = 64
"""How often a group is tried; each time but the first the database had refused a row that memory proposed."""


class Memory(Protocol):
    """What lives in memory and must agree with the database after every transaction."""

    def begin(self) -> None:
        """A transaction starts; remember how to go back."""

    def mark(self) -> Any:
        """Where memory stands now within the transaction."""

    def rollback_to(self, mark: Any) -> None:
        """Back to where memory stood at `mark`."""

    async def follow_up(self, tx: Transaction) -> None:
        """Do what the group's writes have made possible and what may share their commit."""

    def flush(self, tx: Transaction) -> None:
        """Write what changed in memory since `begin` and is not yet in the transaction."""

    def commit(self) -> None:
        """The transaction is durable; what changed stays."""

    def rollback(self) -> None:
        """The transaction is undone; back to `begin`."""

    async def reload(self) -> None:
        """Read everything again: nobody knows whether the last transaction was committed."""


class Writer:
    """Runs writes one group at a time. `write` may be called from any task of the loop."""

    def __init__(
        self,
        engine: AsyncEngine,
        answers: Answers,
        memory: Memory,
        dispatcher: Dispatcher,
        clock: Clock,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._engine = engine
        self._answers = answers
        self._memory = memory
        self._dispatcher = dispatcher
        self._clock = clock
        self._emit = emit
        self._spans = spans
        self._waiting: deque[Write] = deque()
        self._group: Sequence[Write] = ()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._connection: AsyncConnection | None = None
        self._in_doubt = False
        self._is_silent = False
        self._lost: DispatchLost | None = None
        self._busy_since: float | None = None
        self._commit_sec = 0.0
        self._numbers = Numbers()
        self._new_since_planned, self._plans_last = 0, PLANS_LAST
        self.lost_event = asyncio.Event()
        self.commits = 0

    def start(self) -> None:
        """Begin to serve writes."""
        self._task = asyncio.create_task(self._serve(), name="writer")

    async def close(self) -> None:
        """Serve what waits, then end. Later writes are refused."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await self._hang_up()

    @property
    def is_in_doubt(self) -> bool:
        """Whether the outcome of the last commit is unknown and memory is still to be read again."""
        return self._in_doubt

    @property
    def backlog(self) -> int:
        """How many writes wait for the next group."""
        return len(self._waiting)

    @property
    def busy_sec(self) -> float:
        """How long the group at hand has been at work; 0 if there is none."""
        return 0.0 if self._busy_since is None else self._clock.monotonic() - self._busy_since

    @property
    def lost(self) -> DispatchLost | None:
        """Set once another process has taken over this database."""
        return self._lost

    async def write(self, run: Run[T], *, new_jobs: int = 0, alone: bool = False) -> T:
        """Run `run` inside a transaction and answer once it is durable.

        `new_jobs` is how many jobs it will insert at most. `run` may be called again after a rollback, so
        whatever it does to memory beyond `Memory` belongs into `Transaction.after_commit`. A
        `FairlaneError` that it raises is its answer and hurts no other write. `alone` shares the transaction
        with no other write: as `run` begins, memory and the database are at one and the same commit.

        Raises what `run` raises, and `Unavailable` if the database cannot be written or does not answer.
        """
        with self._spans.span("write") as span:
            answer: T = await self._queue(Write(run, span, new_jobs, alone))
            return answer

    async def write_until(self, done: asyncio.Future[None], run: Run[None]) -> None:
        """As `write`. Once somebody else says that it is `done`, nobody needs it any more."""
        with self._spans.span("write") as span:
            await self._queue(Write(run, span, future=done))

    async def write_each(self, kind: Hashable, run: RunEach[A, T], items: Sequence[A]) -> Sequence[T | FairlaneError]:
        """As `write`, for `items` of which each is judged by itself: what came of them, in order. Writes of the same
        `kind` that share a transaction are one call of `run` with the items of all.

        Raises `Unavailable`, and what `run` raises for one of these items alone.
        """
        with self._spans.span("write") as span:
            outcomes: Sequence[T | FairlaneError] = await self._queue(Write(run, span, kind=kind, items=items))
            return outcomes

    async def write_shared(self, kind: Hashable, run: RunEach[A, T], item: A) -> T:
        """`write_each` for one item. Raises what it is refused with."""
        with self._spans.span("write") as span:
            [outcome] = await self._queue(Write(run, span, kind=kind, items=[item]))
            if isinstance(outcome, FairlaneError):
                raise outcome
            answer: T = outcome
            return answer

    def _queue(self, write: Write) -> asyncio.Future[Any]:
        if self._closing:
            raise NotDispatching("the service is shutting down")
        if self._lost is not None:
            raise NotDispatching(str(self._lost))
        self._waiting.append(write)
        self._wake.set()
        return write.future

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if group := self._take_group():
                    with self._spans.span("group", [item.span for item in group], writes=len(group)) as span:
                        for item in group:
                            item.span.link(span)
                        await self._serve_group(group)
            if self._closing:
                return

    def _take_group(self) -> list[Write]:
        group: list[Write] = []
        items = 0
        while self._waiting and len(group) < GROUP_WRITES and items < GROUP_ITEMS:
            if self._waiting[0].alone and group:
                break
            item = self._waiting.popleft()
            if item.is_wanted():
                group.append(item)
                items += max(len(item.items), item.new_jobs)
                if item.alone:
                    break
        return group

    async def _serve_group(self, group: Sequence[Write]) -> None:
        began = self._busy_since = self._clock.monotonic()
        self._group = group
        try:
            with self._answers.missed(STILL_AWAY_SEC if self._is_silent else ANSWER_SEC, self._turn_away):
                if self._in_doubt:
                    await self._hang_up()  # memory is read over the same engine, which has one connection
                    await self._memory.reload()
                    self._in_doubt = False
                async with self._alive():
                    steps = await self._run_until_settled(group)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, each waiting request gets its answer
            self._fail_group(group, error)
            return
        finally:
            self._busy_since, self._group = None, ()
        self.commits += 1
        self._is_silent = False
        self._take(steps)
        for item in group:
            item.answer()
        took_sec = self._clock.monotonic() - began
        self._emit(GroupCommitted(len(group), took_sec * 1000, self._commit_sec * 1000))

    def _turn_away(self) -> None:
        """The database does not answer, and nobody waits for it any longer. What was begun may yet be done."""
        self._is_silent = True
        for item in (*self._group, *self._waiting):
            item.refuse(Unavailable("the database does not answer right now"))

    def _alive(self) -> AbstractAsyncContextManager[None]:
        """Gives up a connection that is silent for too long. A file has nobody at its other end who might be gone."""
        on_file = self._engine.dialect.name == dialect.SQLITE
        return nullcontext() if on_file else self._answers.required(SEVER_SEC)

    def _take(self, steps: Sequence[Callable[[], None]]) -> None:
        """What follows a commit cannot fail any more: a step that raises leaves memory to be read again."""
        try:
            for step in steps:
                step()
        except Exception:  # noqa: BLE001 - a fault of ours must not end the one writer
            self._in_doubt = True
            self._emit(LoopFailed("writer", traceback.format_exc(), retry_sec=0))

    async def _run_until_settled(self, group: Sequence[Write]) -> list[Callable[[], None]]:
        """Try the group as one; if anything in it fails, run it again with a savepoint for each write. If the
        connection has died, perhaps long ago, all that was not committed died with it: once more on another."""
        careful, has_died = False, False
        for _ in range(REDO_LIMIT):
            try:
                return await self._run_group(group, careful=careful)
            except DBAPIError as error:
                if has_died or self._in_doubt or not error.connection_invalidated:
                    raise
                has_died = True
            except Redo as redo:
                if redo.repair is not None:
                    redo.repair()
                careful = True
        raise Unavailable("the jobs at hand keep changing in the database; try again")

    async def _run_group(self, group: Sequence[Write], *, careful: bool) -> list[Callable[[], None]]:
        self._memory.begin()
        try:
            new_jobs = sum(item.new_jobs for item in group)
            async with self._open(careful=careful) as (tx, conclusion):
                await self._numbers.begin(tx.connection, new_jobs)
                for run, take in calls(group, careful=careful):
                    take(await self._run_one(tx, run, careful=careful))
                if not careful:
                    await self._follow_up(tx)
                await self._end(tx, conclusion, new_jobs)
        except BaseException:
            self._numbers.drop()
            self._memory.rollback()
            raise
        self._memory.commit()
        return tx.steps_after_commit

    async def _plan_anew_if_much_is_new(self, tx: Transaction, new_jobs: int) -> None:
        self._new_since_planned += new_jobs
        if self._new_since_planned >= self._plans_last:
            self._new_since_planned, self._plans_last = 0, min(2 * self._plans_last, PLANS_LAST_LONGEST)
            await dialect.plan_anew(tx.connection())

    @asynccontextmanager
    async def _open(self, *, careful: bool) -> AsyncIterator[tuple[Transaction, Conclusion]]:
        """A transaction, and what will end it. If that fails it may leave a doubt."""
        connection, has_begun = await self._begun()
        conclusion = Conclusion(connection)
        opened = Transaction.open(connection, self._clock, self._numbers, has_begun=has_begun, is_careful=careful)
        try:
            async with opened as tx:
                yield tx, conclusion
            self._dispatcher.renewed()
        except BaseException:
            self._in_doubt = conclusion.may_be_durable
            await self._give_up(connection, keep=not self._in_doubt)
            raise

    async def _begun(self) -> tuple[AsyncConnection, bool]:
        """The connection, kept from group to group, for a new transaction; whether the database knows of that."""
        is_another = self._connection is None
        if self._connection is None:
            self._connection = await self._engine.connect()
        connection = self._connection
        try:
            await connection.begin()  # says nothing to the database yet
            if is_another:
                await self._dispatcher.prove_alone(connection, self._clock.now())
        except BaseException:
            await self._give_up(connection, keep=False)
            raise
        return connection, is_another

    async def _hang_up(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _give_up(self, connection: AsyncConnection, *, keep: bool) -> None:
        """Roll back. Unless that leaves a connection to `keep`, the next transaction gets another one."""
        try:
            if keep and not connection.invalidated:
                await connection.rollback()
                return
        except Exception as error:  # noqa: BLE001 - what made us give up is what matters
            self._emit(WriterFailed(f"rolling back: {type(error).__name__}: {error}", 0))
        self._connection = None
        await connection.invalidate()
        await connection.close()

    async def _run_one(self, tx: Transaction, run: Run[Any], *, careful: bool) -> Any:
        mark, steps, touched = self._memory.mark(), len(tx.steps_after_commit), tx.touched
        savepoint = await tx.connection().begin_nested() if careful else None
        try:
            answer = await run(tx)
            if savepoint is not None:
                await tx.flush()
                await savepoint.commit()
        except Redo:
            raise
        except Exception as error:
            if dialect.is_unavailable(error):
                raise  # SQLite may have ended the whole transaction by itself, the savepoint with it
            if savepoint is None and (tx.touched > touched or not isinstance(error, FairlaneError)):
                raise Redo from error
            if savepoint is not None:  # otherwise what is collected is the neighbours'
                await tx.drop_collected()
                await savepoint.rollback()
            self._memory.rollback_to(mark)
            del tx.steps_after_commit[steps:]
            return Refused(error)
        return answer

    async def _follow_up(self, tx: Transaction) -> None:
        try:
            await self._memory.follow_up(tx)
        except Redo:
            raise
        except Exception as error:
            if dialect.is_unavailable(error):
                raise
            raise Redo from error

    async def _end(self, tx: Transaction, conclusion: Conclusion, new_jobs: int) -> None:
        """Write what is still to be written, prove that this process dispatches here, and commit. The proof is last of
        all, so that no time that the transaction has given out is newer than the one written with it."""
        try:
            self._memory.flush(tx)
            at_last = await tx.end()  # from here on nothing else is under way on the connection
            await self._plan_anew_if_much_is_new(tx, new_jobs)
            await self._numbers.restock(tx.connection)
            began = self._clock.monotonic()
            with self._spans.span("commit"):
                if tx.is_careful:
                    await self._conclude_with_care(tx, conclusion, at_last)
                else:
                    proof = self._dispatcher.proof(self._clock.now())
                    await conclusion.commit(at_last, *proof, has_begun=tx.has_begun)
            self._commit_sec = self._clock.monotonic() - began
        except Exception as error:
            surely = tx.is_careful or conclusion.may_be_durable or isinstance(error, DispatchLost)
            if surely or dialect.is_unavailable(error):
                raise
            raise Redo from error

    async def _conclude_with_care(self, tx: Transaction, conclusion: Conclusion, at_last: Sequence[Part]) -> None:
        """One statement after the other, so that it shows what is wrong."""
        for part in at_last:
            await parts.write(tx.connection(), part)
        await self._dispatcher.prove(tx.connection(), self._clock.now())
        await conclusion.commit_plainly()

    def _fail_group(self, group: Sequence[Write], error: Exception) -> None:
        kind = Unavailable
        if isinstance(error, DispatchLost):
            self._lost, kind = error, NotDispatching
            self.lost_event.set()
        self._emit(WriterFailed(f"{type(error).__name__}: {error}", len(group)))
        why = str(error) if isinstance(error, FairlaneError) else "the database cannot be written right now"
        for item in group:
            item.refuse(kind(why))
