"""A token bucket: how many jobs a tenant may submit at once, and how many a second after that. Time is
handed in as monotonic nanoseconds; every sum is on whole numbers, so no drift breaks a promised wait."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

_NANOSECONDS = 1_000_000_000


class TokenBucket:
    """Holds up to `burst` tokens, starts full and gains `rate_per_sec` tokens a second.

    A rate is taken as its decimal text says, 0.1 as one tenth, and None is no limit. Without a `burst`,
    it is the rate rounded up. `ValueError` for a rate that is not finite and positive or a burst below 1.
    """

    # Tokens are counted in parts so small that a nanosecond brings a whole number of them:
    # at n/d tokens a second, a token is d * 10**9 parts and a nanosecond brings n of them.
    __slots__ = ("_at", "_capacity", "_level", "_parts_per_ns", "_parts_per_token", "_settings", "burst")

    burst: int | None
    """The most that one `take` can ever admit; None without a limit."""

    def __init__(self, rate_per_sec: float | None, burst: int | None, now: int) -> None:
        self._configure(rate_per_sec, burst)
        self._level = self._capacity
        self._at = now

    def take(self, n: int, now: int) -> int:
        """Take `n` tokens: 0 if they were there, else the whole seconds to wait, and nothing is taken.

        The same call made exactly that many seconds after `now` is admitted, if no other is meanwhile,
        and one a second sooner would not have been. `ValueError` for more than `burst`, which no wait
        can bring.
        """
        if self.burst is None:
            return 0
        self._refill(now)
        missing = n * self._parts_per_token - self._level
        if missing <= 0:
            self._level = -missing
            return 0
        if n > self.burst:
            raise ValueError(f"{n} tokens never fit into a burst of {self.burst}")
        # Should the clock have gone back, nothing comes in until it is where it was.
        missing += (self._at - now) * self._parts_per_ns
        return -(-missing // (self._parts_per_ns * _NANOSECONDS))

    def give_back(self, n: int) -> None:
        """Put back `n` tokens that were taken for nothing; what does not fit is lost."""
        self._level = min(self._capacity, self._level + n * self._parts_per_token)

    def is_full(self, now: int) -> bool:
        """Whether nothing is missing, so that a new bucket would be the same."""
        self._refill(now)
        return self._level == self._capacity

    def reconfigure(self, rate_per_sec: float | None, burst: int | None, now: int) -> None:
        """Go on with other settings and the tokens there are, as far as they fit. See `TokenBucket`.

        From no limit to one, the bucket starts full.
        """
        if (rate_per_sec, burst) == self._settings:
            return
        self._refill(now)
        was_limited, level, old_parts = self.burst is not None, self._level, self._parts_per_token
        self._configure(rate_per_sec, burst)
        carried = level * self._parts_per_token // old_parts
        self._level = min(self._capacity, carried) if was_limited else self._capacity

    def _configure(self, rate_per_sec: float | None, burst: int | None) -> None:
        rate = _exact(rate_per_sec) if rate_per_sec is not None else Fraction(0)
        if burst is not None and burst < 1:
            raise ValueError(f"a burst is at least 1: {burst}")
        self._settings = (rate_per_sec, burst)
        self.burst = (burst or ceil(rate)) if rate else None
        self._parts_per_ns = rate.numerator
        self._parts_per_token = rate.denominator * _NANOSECONDS
        self._capacity = (self.burst or 0) * self._parts_per_token

    def _refill(self, now: int) -> None:
        if now > self._at:
            self._level = min(self._capacity, self._level + (now - self._at) * self._parts_per_ns)
            self._at = now


def _exact(rate: float) -> Fraction:
    if not 0 < rate < float("inf"):
        raise ValueError(f"a rate is a finite number above zero: {rate}")
    return Fraction(str(rate))
