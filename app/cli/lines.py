"""Jobs in a file of JSON lines: one job a line, with the fields of the HTTP interface, each with an idempotency key of
its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, json
from msgspec.structs import replace

from app.client import NewJob

_DIGEST_BYTES: Final = 16
_canonical = json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Line:
    """A job, the number of its line from 1 on, and how many bytes it is."""

    number: int
    job: NewJob
    size: int


class BadLine(Exception):
    """A line that is no job; the message says why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class Keys:
    """Gives each job the idempotency key that follows from a prefix, the job itself, and how many jobs like it came
    before. So the key of a line does not depend on the lines around it: after a line is mended, or others are put in,
    the rest is still known to be stored."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._times: Counter[bytes] = Counter()

    def next_for(self, asked: Mapping[str, Raw]) -> str:
        """The key of the job that comes next."""
        digest = sha256(_canonical(asked)).digest()[:_DIGEST_BYTES]
        self._times[digest] += 1
        nth = self._times[digest]
        return f"{self._prefix}:{digest.hex()}" + (f":{nth}" if nth > 1 else "")


def prefix_of_file(path: str) -> str:
    """What makes the jobs of one file other than the same jobs of another."""
    return sha256(os.fsencode(Path(path).resolve())).hexdigest()[:16]


def read_lines(file: Iterable[bytes], defaults: Mapping[str, Any], keys: Keys) -> Iterator[Line]:
    """The jobs of a file. `defaults` are the fields of jobs that do not say otherwise. Empty lines are no jobs.

    Raises `BadLine`.
    """
    for number, raw in _filled(file):
        asked = _checked(number, raw, defaults)
        job = json.decode(json.encode({"idempotency_key": keys.next_for(asked)} | asked), type=NewJob)
        # Not decoded and encoded again: a whole number of any length stays what it is.
        yield Line(number, replace(job, payload=asked.get("payload")), len(raw))


def faults_of(file: Iterable[bytes], defaults: Mapping[str, Any]) -> Iterator[BadLine | None]:
    """For each line that is not empty: what is wrong with it, None if nothing is."""
    for number, raw in _filled(file):
        try:
            _checked(number, raw, defaults)
        except BadLine as bad:
            yield bad
        else:
            yield None


def _filled(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, raw) for number, raw in enumerate(file, start=1) if raw.strip())


def _checked(number: int, raw: bytes, defaults: Mapping[str, Any]) -> dict[str, Raw]:
    """The fields of a job that is right by the rules of the service."""
    # Here, so that the rules of the service are loaded only where a file is checked by them.
    from app.api.decode import decode_body
    from app.api.schemas import BatchItem
    from app.errors import InvalidRequest

    try:
        asked = dict(defaults) | json.decode(raw, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(number, f"not a JSON object: {error}") from None
    try:
        decode_body(json.encode(asked), BatchItem)
    except InvalidRequest as error:
        told = "; ".join(f"{fault.field} {fault.message}" for fault in error.details)
        raise BadLine(number, told or str(error)) from None
    return asked
