"""What a check needs to know of the service beside its tables."""

from __future__ import annotations

from dataclasses import dataclass

from app.scheduling.policies import SHARE
from app.scheduling.scheduler import Policy


@dataclass(frozen=True)
class Terms:
    """How the service was run. Where somebody moved its wall clock, the client's tells nothing of it."""

    policy: Policy = Policy.VIRTUAL_TIME
    step_units: int = SHARE
    tick_sec: float = 0.5
    is_clock_moved: bool = False
    late_sec: float = 10.0
    """What a loaded test machine may add to two ticks."""
