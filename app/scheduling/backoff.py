"""How long a failed job waits before its next attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

LONGEST_SEC: Final = 3600
_LONGEST_EXPONENT = LONGEST_SEC.bit_length()


def backoff(attempt: int, jitter: float) -> timedelta:
    """The wait after attempt number `attempt` (from 1): doubling from 2 s to an hour, and up to 10 % more.

    `jitter` in [0, 1) says how much of the 10 %, so that jobs that failed together come back apart.
    """
    # Clamped before raising to it: the power of a large attempt would fill the memory first.
    seconds = min(LONGEST_SEC, 2 ** min(attempt, _LONGEST_EXPONENT))
    return timedelta(seconds=seconds) + timedelta(seconds=seconds) * jitter / 10
