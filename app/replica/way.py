"""The way from here to the replica that dispatches, as far as the database, calls and probes have told of it."""

from __future__ import annotations

import math
from typing import Final

from app.clock import Clock
from app.store.dispatcher import Holder

LOOK_EVERY_SEC: Final = 0.1


class Way:
    """`holder` is who dispatches, as far as was seen; None once it is we."""

    def __init__(self, clock: Clock, own_address: str, patience_sec: float) -> None:
        """`patience_sec` after it was first missed, this replica is cut off from one that dispatches."""
        self.holder: Holder | None = None
        self._clock = clock
        self._own_address = own_address
        self._patience_sec = patience_sec
        self._forget()

    def _forget(self) -> None:
        self._has_renewed = self._is_missed = self._refuses = False
        self._try_again_at = self._reached_at = -math.inf
        self._missed_since = math.inf

    def see(self, seen: Holder | None) -> bool:
        """That is who dispatches now; whether it is another one than before."""
        known, self.holder = self.holder, seen
        if seen is None or known is None or seen.epoch != known.epoch:
            self._forget()
            return True
        self._has_renewed = self._has_renewed or seen.expires_at != known.expires_at
        return False

    def place_to_try(self, *, again: bool = False) -> Holder | None:
        """Where the one that dispatches is to be found, be it that it is late with its renewal; None if there is none,
        if it was a process at our own address, or while it is not reached: then one call at a time tries it again. So
        do those that ask `again`, since it has refused them."""
        place, now = self._place(), self._clock.monotonic()
        if self._is_missed or (again and self._refuses):
            if now < self._try_again_at:
                return None
            self._try_again_at = now + LOOK_EVERY_SEC
        return place

    def place_to_probe(self, every_sec: float) -> Holder | None:
        """Where it is, if it was not reached for so long."""
        is_known = self._clock.monotonic() < self._reached_at + every_sec
        return None if is_known else self._place()

    def _place(self) -> Holder | None:
        seen = self.holder
        is_elsewhere = seen is not None and seen.expires_at is not None and seen.address != self._own_address
        return seen if is_elsewhere else None

    def reached(self, place: Holder) -> None:
        """Somebody has answered there."""
        if self._is_at(place):
            self._is_missed, self._missed_since = False, math.inf
            self._reached_at = self._clock.monotonic()

    def refused(self, place: Holder) -> None:
        """Somebody has answered there that he does not dispatch. One that was at work a moment ago drains: new work it
        takes no more, but results it does."""
        if self._is_at(place):
            self._refuses, self._try_again_at = True, self._clock.monotonic() + LOOK_EVERY_SEC
            if self._has_renewed:
                self.reached(place)
            else:
                self.not_reached(place)

    def not_reached(self, place: Holder) -> None:
        """Nobody answers there. Who has followed it by now is not to blame. Nor is,
        for long, one that has not renewed its claim yet: it may read what is queued before it listens."""
        if self._is_at(place):
            now = self._clock.monotonic()
            self._is_missed, self._try_again_at = True, now + LOOK_EVERY_SEC
            if self._has_renewed:
                self._missed_since = min(self._missed_since, now)

    def cut_off_from(self) -> str | None:
        """The address of one that dispatches, and was not reached for longer than anybody waits."""
        is_cut = self._clock.monotonic() >= self._missed_since + self._patience_sec
        return self.holder.address if is_cut and self.holder is not None and not self.holder.is_free else None

    def _is_at(self, place: Holder) -> bool:
        return self.holder is not None and place.epoch == self.holder.epoch
