"""A waiting job as one piece of bytes: a million may wait, and as objects of Python each would take several times as
much memory. What is packed compares, byte by byte, as the jobs go in their lane."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from app.scheduling.heap import Key

BYTE: Final = "B"
WHOLE: Final = "Q"

_BIAS: Final = 1 << 63  # added to times: there are some before 1970, and bytes know no sign


class Packed(NamedTuple):
    """What is packed. The first three are what the job goes by; `lane` is a number that says tenant and queue."""

    first: int
    time: int
    seq: int
    other: int
    other_time: int
    id: str
    cost: int
    lane: int


class Form:
    """How a policy packs its jobs; it says how wide the number is that they go by before all, and how wide the one is
    that it does not look at."""

    __slots__ = ("_all", "_cost", "_key", "_lane")

    def __init__(self, first: str, other: str) -> None:
        # The highest byte comes first, and nothing lies between the numbers: so the bytes compare as they do.
        key, rest = f">{first}QQ", f"{other}Q16s"
        self._key = Struct(key)
        self._cost = Struct(f">{Struct(key + rest).size}xH")
        self._lane = Struct(f">{self._cost.size}xQ")
        self._all = Struct(f"{key}{rest}HQ")

    def pack(
        self, first: int, time: int, seq: int, other: int, other_time: int, job_id: str, cost: int, lane: int
    ) -> bytes:
        """See `Packed`."""
        raw_id = bytes.fromhex(job_id)
        return self._all.pack(first, time + _BIAS, seq, other, other_time + _BIAS, raw_id, cost, lane)

    def unpack(self, packed: bytes) -> Packed:
        """The opposite of `pack`."""
        first, time, seq, other, other_time, job_id, cost, lane = self._all.unpack(packed)
        return Packed(first, time - _BIAS, seq, other, other_time - _BIAS, job_id.hex(), cost, lane)

    def key(self, packed: bytes) -> Key:
        """(first, time, seq) alone."""
        first, time, seq = self._key.unpack_from(packed)
        return first, time - _BIAS, seq

    def cost(self, packed: bytes) -> int:
        """The cost alone."""
        cost: int = self._cost.unpack_from(packed)[0]
        return cost

    def lane(self, packed: bytes) -> int:
        """The lane's number alone."""
        lane: int = self._lane.unpack_from(packed)[0]
        return lane
