"""When a row of one database is the same as a row of another: as texts that are alike for both, and digests of them.
Pure; it knows values, and no database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from app.clock import rfc3339

_BITS: Final = 256


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows, and what they are, in whatever order: the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def plus(self, rows: Iterable[bytes]) -> Digest:
        """The digest of these rows too, given by `row_text`."""
        hashes = [int.from_bytes(sha256(row).digest()) for row in rows]
        return Digest(self.rows + len(hashes), (self.total + sum(hashes)) % (1 << _BITS))

    def __str__(self) -> str:
        """The first digits, enough for people to compare."""
        return f"{self.total:064x}"[:16]


def row_text(values: Sequence[Any], are_json: Sequence[bool]) -> bytes:
    """A row as text. `are_json` says which of the values are texts of JSON.

    Raises `ValueError` for JSON that nests too deeply to be compared.
    """
    return msgspec.json.encode(
        [
            json_text(value) if is_json and value is not None else _cell(value)
            for value, is_json in zip(values, are_json, strict=True)
        ]
    )


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, float):
        return value + 0.0  # SQLite keeps -0.0 as 0.0
    return value


def json_text(text: str) -> str:
    """A text of JSON in the form in which all are alike that mean the same.

    Members have no order, and of a name given twice the last counts. Numbers are the same if their values are, to
    the last digit, however they are written: jsonb makes 100 of 1e2, and keeps the 0 of 1.0.
    """
    try:
        value = json.loads(text, parse_int=_number, parse_float=_number)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise ValueError("JSON that nests so deeply cannot be compared") from None


def _number(text: str) -> str:
    """A number as sign, digits and exponent. No text in JSON that both databases take begins with a NUL, so it is not
    mistaken for one."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "\0" + "0"
    sign = "-" if text.startswith("-") else ""
    return f"\0{sign}{kept}e{int(exponent or 0) - len(fraction) + len(digits) - len(kept)}"
