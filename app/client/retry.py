"""When a call is sent again, and when it is not: pure decisions, handed the time and the dice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import random
from time import monotonic
from typing import Final

from app.client.errors import FairlaneError, RateLimited, Unavailable

_MOST_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: a pause of anything up to a ceiling that doubles with every try, so that clients that failed
    together do not come back together (Brooker, "Exponential Backoff and Jitter", AWS 2015). In seconds."""

    first_sec: float = 0.2
    most_sec: float = 10.0

    def pause(self, tries: int, dice: float, retry_after: int | None = None) -> float:
        """How long to wait after the `tries`th failure; `dice` is in [0, 1). If the service named a time, the
        jitter comes on top of it: it is never asked earlier."""
        ceiling = min(self.most_sec, self.first_sec * 2.0 ** min(tries - 1, _MOST_DOUBLINGS))
        return (retry_after or 0) + dice * ceiling


@dataclass(frozen=True, slots=True)
class Terms:
    """How long and how patiently a client tries. `deadline_sec` is the time for a call with all its tries, None for
    no limit; `try_sec` is the time in which one try must be answered; `most_tries` may end it before the deadline."""

    deadline_sec: float | None = 60.0
    try_sec: float = 10.0
    most_tries: int | None = None
    backoff: Backoff = Backoff()
    now: Callable[[], float] = monotonic
    dice: Callable[[], float] = random

    def ends_at(self, also_sec: float = 0.0) -> float:
        """When a call that begins now is given up; `also_sec` is what it may wait for at the service's end."""
        return inf if self.deadline_sec is None else self.now() + self.deadline_sec + also_sec

    def may_try_again(self, tries: int) -> bool:
        """Whether there may be a try after the `tries`th."""
        return self.most_tries is None or tries < self.most_tries


def may_repeat(failure: FairlaneError, *, is_repeatable: bool) -> bool:
    """Whether another try can do no harm: nothing was done, or the call does no more when it is sent twice."""
    match failure:
        case RateLimited():
            return True
        case Unavailable(in_doubt=in_doubt):
            return is_repeatable or not in_doubt
    return False
