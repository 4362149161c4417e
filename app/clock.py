"""The only clock. Wall time is given out in UTC, in whole microseconds and each later than the one before, so
that the times in the database put all events into one order; intervals, leases and buckets go by the monotonic
clock, so a wall clock that jumps lapses nothing. Servers that take turns at one database go by that one's time."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock:
    """Gives out times. One instance serves a process, so that no two parts of it disagree."""

    def __init__(self) -> None:
        self._floor = _EPOCH

    def now(self) -> datetime:
        """The wall clock's time, aware UTC; later than every time given out before."""
        self._floor = max(self._floor + _MICROSECOND, self._wall())
        return self._floor

    def series(self, count: int) -> list[datetime]:
        """So many times at once, each later than the one before."""
        first = self.now()
        self._floor = first + (count - 1) * _MICROSECOND
        return [first + n * _MICROSECOND for n in range(count)]

    def shown(self) -> datetime:
        """What the wall clock shows, though it may be earlier than times given out: it was set back since."""
        return self._wall()

    def not_before(self, floor: datetime | None) -> None:
        """Give out only times later than `floor`: the newest one of the process before this one."""
        if floor is not None:
            self._floor = max(self._floor, floor)

    def heard(self, shown: datetime, asked_at: float) -> None:
        """A database's clock has shown this, at some moment since `asked_at` of our monotonic one. Of no interest where
        the time is the machine's own."""

    def monotonic(self) -> float:
        """Seconds of an uninterrupted clock; only differences mean something."""
        return time.monotonic()

    def monotonic_ns(self) -> int:
        """The same clock in whole nanoseconds."""
        return time.monotonic_ns()

    def _wall(self) -> datetime:
        """What the wall clock shows, which may be anything."""
        return datetime.now(UTC)


class DatabaseClock(Clock):
    """Shows what a database's clock does, as far as it was heard, so that all who take turns at that database agree,
    however their machines' clocks are set. In between it goes as the monotonic clock goes."""

    def __init__(self, shown: datetime, asked_at: float) -> None:
        """As `heard`."""
        super().__init__()
        self._ahead = -sys.maxsize  # of the monotonic clock, in microseconds; whatever is heard first is later
        self.heard(shown, asked_at)

    def heard(self, shown: datetime, asked_at: float) -> None:
        """What cannot be any more is set right; an answer that came late says less than one that was known before
        (after Cristian, 1989)."""
        least, most = (to_micros(shown) - _micros(moment) for moment in (self.monotonic(), asked_at))
        self._ahead = min(max(self._ahead, least), most)

    def _wall(self) -> datetime:
        return from_micros(_micros(self.monotonic()) + self._ahead)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The opposite of `to_micros`."""
    return _EPOCH + micros * _MICROSECOND


@lru_cache(maxsize=4096)
def rfc3339(moment: datetime) -> str:
    """The one text of a time: 27 characters as in `2026-01-31T12:00:00.000000Z`, which sort by time. Remembered, since
    a time that is told is most often told again: in a row, in an answer, of all jobs of a batch."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def parse_rfc3339(text: str) -> datetime:
    """The time that `rfc3339` wrote. Raises ValueError for any other text."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
