"""The keys that were shown lately, so that not every request asks the database; and who shows wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.clock import Clock
from app.flow.access.tries import Tries
from app.store.keys import KeyRow

FRESH_SEC: Final = 1.0
"""What plain SQL or another process has done to a key is in force after so long."""

NOTED_SEC: Final = 60.0
"""How exactly is kept when a key was used last."""

_MOST: Final = 10_000


@dataclass(slots=True)
class Known:
    """A key that was good when it was looked at last."""

    row: KeyRow
    stale_at: float
    to_note_at: float


class Keyring:
    """Good keys by id, each looked at again once a second while it is used."""

    def __init__(self, clock: Clock) -> None:
        self.tries = Tries(clock)
        self._clock = clock
        self._known: dict[str, Known] = {}

    def find(self, key_id: str) -> Known | None:
        """What is known of it, be it old."""
        return self._known.get(key_id)

    def is_due(self, known: Known) -> bool:
        """Whether it is to be looked at again; who asks does so, and others go by what is known meanwhile."""
        now = self._clock.monotonic()
        if now < known.stale_at:
            return False
        known.stale_at = now + FRESH_SEC
        return True

    def is_to_be_noted(self, known: Known) -> bool:
        """Whether its use is to be written down; who asks does so."""
        now = self._clock.monotonic()
        if now < known.to_note_at:
            return False
        known.to_note_at = now + NOTED_SEC
        return True

    def keep(self, row: KeyRow) -> Known:
        """It was looked at, and is good."""
        now = self._clock.monotonic()
        before = self._known.get(row.id)
        if before is None and len(self._known) >= _MOST:
            self._known.clear()
        known = Known(row, now + FRESH_SEC, before.to_note_at if before else now)
        self._known[row.id] = known
        return known

    def forget(self, key_id: str) -> None:
        """It is good no more, nor are the logins with it."""
        self._forget(lambda row: key_id in (row.id, row.session_of))

    def forget_tenant(self, tenant: str) -> None:
        """Its keys are good no more."""
        self._forget(lambda row: row.grant.tenant == tenant)

    def _forget(self, is_meant: Callable[[KeyRow], bool]) -> None:
        self._known = {key_id: known for key_id, known in self._known.items() if not is_meant(known.row)}
