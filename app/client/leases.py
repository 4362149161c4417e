"""The leases that a worker holds, by its own clock: pure, handed the time. A lease is counted from before the request
that got or renewed it was sent. The service counts from when that request arrived, so a lease ends here before it ends
there, however long the answer took and whatever the wall clocks say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from app.client.wire import Hold

BEATS_A_LEASE: Final = 3


@dataclass(slots=True)
class Leases:
    """All of one length, in seconds."""

    lease_sec: float
    _begun_at: dict[Hold, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._begun_at)

    def __contains__(self, hold: Hold) -> bool:
        return hold in self._begun_at

    def take(self, hold: Hold, sent_at: float) -> None:
        """Hold a job by a claim that was sent at that time."""
        self._begun_at[hold] = sent_at

    def renew(self, holds: Iterable[Hold], sent_at: float) -> None:
        """Count those that are still held from a heartbeat that was sent at that time. An answer that comes late,
        after that of a later heartbeat, shortens nothing."""
        for hold in holds:
            if hold in self._begun_at:
                self._begun_at[hold] = max(self._begun_at[hold], sent_at)

    def drop(self, hold: Hold) -> None:
        """Hold it no longer; no matter if it was not held."""
        self._begun_at.pop(hold, None)

    def all(self) -> list[Hold]:
        """Those that are held, oldest claim first."""
        return list(self._begun_at)

    def ends_at(self, hold: Hold) -> float:
        """When it must be given up unless it is renewed; at once if it is not held."""
        return self._begun_at.get(hold, -inf) + self.lease_sec

    def beat_due_at(self) -> float:
        """When to beat for all next: a third into the oldest lease. Never if none is held."""
        return min(self._begun_at.values(), default=inf) + self.lease_sec / BEATS_A_LEASE

    def first_ends_at(self) -> float:
        """When the first of them ends. Never if none is held."""
        return min(self._begun_at.values(), default=inf) + self.lease_sec

    def lapsed(self, now: float) -> list[Hold]:
        """Those that have ended."""
        return [hold for hold in self._begun_at if self.ends_at(hold) <= now]
