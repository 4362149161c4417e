"""The order and the moves as the writer sees them: changed inside its transactions, undone with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.flow.moves import Moves
from app.scheduling.scheduler import Savepoint, Scheduler
from app.store import queues
from app.store.transaction import Transaction

Mark = tuple[Savepoint, int]


class OrderAndMoves:
    """Keeps memory in step with the database, transaction by transaction."""

    def __init__(
        self,
        order: Scheduler,
        moves: Moves,
        *,
        reload: Callable[[], Awaitable[None]],
        untold: Callable[[int], None],
        follow_up: Callable[[Transaction], Awaitable[None]],
        committed: Callable[[], None],
    ) -> None:
        """`reload` reads everything from the database, `untold` is told how many moves may have happened of which
        nobody heard, since memory had undone them, `follow_up` joins each transaction at its end, `committed`
        is told of every commit."""
        self._order = order
        self._moves = moves
        self._reload = reload
        self._untold = untold
        self._undone = 0
        self._follow_up = follow_up
        self._committed = committed

    def begin(self) -> None:
        """A transaction starts."""
        self._undone = 0
        self._order.begin()

    def mark(self) -> Mark:
        """Where memory stands now."""
        return self._order.savepoint(), self._moves.mark()

    def rollback_to(self, mark: Mark) -> None:
        """Undo what happened since `mark`."""
        savepoint, noted = mark
        self._order.rollback_to(savepoint)
        self._moves.forget_from(noted)

    async def follow_up(self, tx: Transaction) -> None:
        """Serve claims that wait for what the group has queued."""
        await self._follow_up(tx)

    def flush(self, tx: Transaction) -> None:
        """Write the lanes and clocks that have moved, each once however often it moved."""
        tx.after_commit(self._committed)  # behind the steps of all writes of the group
        moved_lanes, moved_queues = self._order.take_dirty()
        tx.write(*queues.moved(moved_queues, moved_lanes))

    def commit(self) -> None:
        """Everything since `begin` is durable."""
        self._order.commit()
        self._moves.commit()

    def rollback(self) -> None:
        """Nothing since `begin` happened."""
        self._undone = self._moves.mark()
        self._order.rollback()
        self._moves.forget_from(0)

    async def reload(self) -> None:
        """Read everything from the database."""
        await self._reload()
        self._untold(self._undone)
        self._undone = 0
