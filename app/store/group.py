"""What waits for the writer, and how a group of it is done: a write by itself, or together with others of its kind,
whose rows are then read and changed by one statement for all of them, not by one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from app.errors import FairlaneError
from app.spans import Span
from app.store.transaction import Transaction

A = TypeVar("A")
T = TypeVar("T")

Run: TypeAlias = Callable[[Transaction], Awaitable[T]]
RunEach: TypeAlias = Callable[[Transaction, Sequence[A]], Awaitable[Sequence[T | FairlaneError]]]
"""Does all of the items, each judged by itself: the outcomes in order, a refusal in the place of what it refuses."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer of a write that raised: its neighbours in the group are not concerned."""

    error: Exception


@dataclass(slots=True, eq=False)
class Write:
    """Somebody waits for `future`. A write that has a `kind` is run with `items`, together with others of it."""

    run: Callable[..., Awaitable[Any]]
    span: Span
    new_jobs: int = 0
    alone: bool = False
    kind: Hashable = None
    items: Sequence[Any] = ()
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    outcome: Any = None

    def is_wanted(self) -> bool:
        """Whether somebody still waits; a write whose client hung up before it began is left out."""
        return not self.future.done()

    def take(self, outcome: Any) -> None:
        """What came of it in the transaction at hand, which is not durable yet."""
        self.outcome = outcome

    def take_next(self, outcome: Any) -> None:
        """What came of the next item. What the database refuses is no judgement on an item: it ends the write."""
        if isinstance(self.outcome, Refused):
            return
        if not isinstance(outcome, Refused):
            self.outcome += outcome
        elif isinstance(outcome.error, FairlaneError):
            self.outcome.append(outcome.error)
        else:
            self.outcome = outcome

    def answer(self) -> None:
        """The transaction is durable."""
        if isinstance(self.outcome, Refused):
            self.refuse(self.outcome.error)
        elif not self.future.done():
            self.future.set_result(self.outcome)

    def refuse(self, error: Exception) -> None:
        """Nothing came of it."""
        if not self.future.done():
            self.future.set_exception(error)


def calls(group: Sequence[Write], *, careful: bool) -> Iterator[tuple[Run[Any], Callable[[Any], None]]]:
    """What to call for the writes of a group, and where to leave what comes of it. In the order in which they came, but
    those of one kind all at once; with care each item of theirs has a call of its own, in the same order."""
    begun: set[Hashable] = set()
    for write in group:
        if write.kind is None:
            yield write.run, write.take
        elif write.kind not in begun:
            begun.add(write.kind)
            alike = [other for other in group if other.kind == write.kind]
            yield from _one_by_one(alike) if careful else _together(alike)


def _one_by_one(writes: Sequence[Write]) -> Iterator[tuple[Run[Any], Callable[[Any], None]]]:
    for write in writes:
        write.take([])
        for item in write.items:
            yield _with(write.run, [item]), write.take_next


def _together(writes: Sequence[Write]) -> Iterator[tuple[Run[Any], Callable[[Any], None]]]:
    items = [item for write in writes for item in write.items]
    yield _with(writes[0].run, items), partial(_share_out, writes)


def _with(run: Callable[..., Awaitable[Any]], items: Sequence[Any]) -> Run[Any]:
    return lambda tx: run(tx, items)


def _share_out(writes: Sequence[Write], outcomes: Any) -> None:
    rest = outcomes if isinstance(outcomes, Refused) else iter(outcomes)
    for write in writes:
        write.take(rest if isinstance(rest, Refused) else list(islice(rest, len(write.items))))
