"""How often somebody may show a wrong key."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

from app.clock import Clock
from app.errors import TooManyTries
from app.scheduling.bucket import TokenBucket

_PER_SEC: Final = 0.2
_AT_ONCE: Final = 20
_ADDRESSES: Final = 10_000
_OF_ONE_CUSTOMER: Final = 64
"""Bits of an IPv6 address that its holder cannot choose."""


class Tries:
    """Wrong keys of the last minutes, by the address they came from: 20 at once, and one every 5 seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def refuse_too_many(self, address: str) -> None:
        """Raises `TooManyTries` if there were too many already."""
        bucket = self._buckets.get(_place(address))
        if bucket is not None and (wait_sec := bucket.take(1, self._clock.monotonic_ns())):
            raise TooManyTries(wait_sec)
        if bucket is not None:
            bucket.give_back(1)

    def failed(self, address: str) -> None:
        """One more."""
        now = self._clock.monotonic_ns()
        if len(self._buckets) >= _ADDRESSES:
            self._forget(now)
        bucket = self._buckets.setdefault(_place(address), TokenBucket(_PER_SEC, _AT_ONCE, now))
        bucket.take(1, now)

    def _forget(self, now: int) -> None:
        """Those who did nothing wrong lately; should an army be at it, all of them."""
        self._buckets = {place: bucket for place, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(self._buckets) >= _ADDRESSES:
            self._buckets.clear()


def _place(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:  # a socket of the machine has none
        return address
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - _OF_ONE_CUSTOMER):x}"
    return str(parsed)
