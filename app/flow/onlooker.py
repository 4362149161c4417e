"""A replica that stands by, as requests see it: it reads what is in the database, and holds no memory to decide by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from app.clock import Clock
from app.errors import NotDispatching, Unavailable
from app.events import Emit
from app.flow.core import Core, Health, Phase
from app.settings import Settings
from app.spans import Spans
from app.store.answers import ANSWER_SEC
from app.store.dialect import is_unavailable
from app.store.dispatcher import Dispatcher
from app.store.engine import Engines
from app.store.session import Connection
from app.store.transaction import Transaction

T = TypeVar("T")

_MISLED: Final = "another one dispatches at this one's own address: FAIRLANE_ADVERTISE must be different on each"
_CUT_OFF: Final = "the replica that dispatches, at {}, is not reached from here"
_SOONEST_DEAD_SEC: Final = 10.0
"""So long a look at who dispatches may take; a database that is away does not make a replica dead."""


class Onlooker(Core):
    """A core without a writer. `looked_at` is when it was last known to turn; while it `is_taking_over` it reads what
    is queued, however long that takes; it `is_misled` while another one dispatches at what is our own address."""

    role = "standby"

    def __init__(
        self, settings: Settings, engines: Engines, dispatcher: Dispatcher, clock: Clock, emit: Emit, spans: Spans
    ) -> None:
        super().__init__(settings, engines, dispatcher, clock, emit, spans)
        self.phase = Phase.STANDING_BY
        self.looked_at = clock.monotonic()
        self.is_leaving = False
        self.is_taking_over = False
        self.is_misled = False

    async def write(self, run: Callable[[Transaction], Awaitable[T]], *, new_jobs: int = 0, alone: bool = False) -> T:  # noqa: ARG002 - as `Core.write`
        """Raises `NotDispatching`."""
        raise NotDispatching("this replica does not dispatch")

    async def note(self, run: Callable[[Connection], Awaitable[None]]) -> None:
        """`Core.note`, in a transaction of its own that proves nothing: it decides nothing."""
        try:
            async with self.engines.writer_answers.required(ANSWER_SEC), self.engines.writer.begin() as connection:
                await run(connection)
        except Exception as error:
            if is_unavailable(error):
                raise Unavailable("the database cannot be written right now") from error
            raise

    def health(self) -> Health:
        """For the probes of whoever runs this."""
        live = self.is_taking_over or self.clock.monotonic() - self.looked_at < _SOONEST_DEAD_SEC
        if self.is_leaving:
            return Health(live, ready=False, why=f"the service is {Phase.DRAINING}")
        if not self.can_read:
            return Health(live, ready=False, why="the database is away")
        if self.is_misled:
            return Health(live, ready=False, why=_MISLED)
        if self.cut_off_from is not None:
            return Health(live, ready=False, why=_CUT_OFF.format(self.cut_off_from))
        return Health(live, ready=live, why=str(self.phase))
