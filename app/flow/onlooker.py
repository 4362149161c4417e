"""A replica that stands by, as requests see it: it reads what is in the database, and holds no memory to decide by."""

from __future__ import annotations

from typing import Final

from app.clock import Clock
from app.events import Emit
from app.flow.core import Core, Health, Phase
from app.settings import Settings
from app.spans import Spans
from app.store.dispatcher import Dispatcher
from app.store.engine import Engines

_SOONEST_DEAD_SEC: Final = 10.0
"""So long a look at who dispatches may take; a database that is away does not make a replica dead."""


class Onlooker(Core):
    """A core without a writer. `looked_at` is when it was last known to turn."""

    role = "standby"

    def __init__(
        self, settings: Settings, engines: Engines, dispatcher: Dispatcher, clock: Clock, emit: Emit, spans: Spans
    ) -> None:
        super().__init__(settings, engines, dispatcher, clock, emit, spans)
        self.phase = Phase.STANDING_BY
        self.looked_at = clock.monotonic()
        self.is_leaving = False

    def health(self) -> Health:
        """For the probes of whoever runs this."""
        live = self.clock.monotonic() - self.looked_at < _SOONEST_DEAD_SEC
        if self.is_leaving:
            return Health(live, ready=False, why=f"the service is {Phase.DRAINING}")
        if not self.can_read:
            return Health(live, ready=False, why="the database is away")
        return Health(live, ready=live, why=str(self.phase))
