"""Whether the wall clock can be believed when it says that something is long ago. What is deleted for its age does not
come back, and a clock that was set wrong is set right within the hour, mostly."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from app.clock import Clock

LARGEST_STEP_SEC: Final = 3600.0
"""A clock that gained more than that on the monotonic one has jumped: somebody set it, or the machine slept."""

REST_SEC: Final = 3600.0
"""How long it is not believed after that."""


class Steadiness:
    """Compares the wall clock with the monotonic one, from look to look; and at a start with the newest time that was
    written `before`, for a host may come up with its clock set wrong, and a long rest looks the same."""

    def __init__(self, clock: Clock, before: datetime | None) -> None:
        self._clock = clock
        self._lead = self._lead_now()
        has_jumped = before is not None and (clock.shown() - before).total_seconds() > LARGEST_STEP_SEC
        self._jumped_at = clock.monotonic() if has_jumped else -math.inf

    def is_steady(self) -> bool:
        """Whether the wall clock has not jumped ahead of late."""
        lead, now = self._lead_now(), self._clock.monotonic()
        if lead - self._lead > LARGEST_STEP_SEC:
            self._jumped_at = now
        self._lead = lead
        return now - self._jumped_at >= REST_SEC

    def _lead_now(self) -> float:
        return self._clock.shown().timestamp() - self._clock.monotonic()
