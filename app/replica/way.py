"""The way from here to the replica that dispatches, as far as the database and calls have told of it."""

from __future__ import annotations

from typing import Final

from app.clock import Clock
from app.store.dispatcher import Holder

LOOK_EVERY_SEC: Final = 0.1


class Way:
    """`holder` is who dispatches, as far as was seen; None once it is we."""

    def __init__(self, clock: Clock, own_address: str) -> None:
        self.holder: Holder | None = None
        self._clock = clock
        self._own_address = own_address
        self._unreached: int | None = None
        self._try_again_at = 0.0

    def place_to_try(self) -> Holder | None:
        """Where the one that dispatches is to be found, be it that it is late with its renewal; None if there is none,
        if it was a process at our own address, or while it is not reached: then one call at a time tries it again."""
        seen, now = self.holder, self._clock.monotonic()
        if seen is None or seen.expires_at is None or seen.address == self._own_address:
            return None
        if seen.epoch == self._unreached:
            if now < self._try_again_at:
                return None
            self._try_again_at = now + LOOK_EVERY_SEC
        return seen

    def reached(self, place: Holder) -> None:
        """A call was answered there."""
        if place.epoch == self._unreached:
            self._unreached = None

    def not_reached(self, place: Holder) -> None:
        """Nobody answers there, or somebody who does not dispatch. Who has followed it by now is not to blame."""
        if self.holder is not None and place.epoch == self.holder.epoch:
            self._unreached = place.epoch
            self._try_again_at = self._clock.monotonic() + LOOK_EVERY_SEC
