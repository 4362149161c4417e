"""The kinds of value that requests carry, each with its range: the only place where one is written down.
`decode` checks by it and the OpenAPI document shows it. What a range cannot say is a `check` beside it; where the
generated sentence would be a bad one, `must` says it: "<field> must <must>"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, json

from app.api.cursor import CURSOR_PATTERN
from app.scheduling.job import HIGHEST_PRIORITY, LOWEST_PRIORITY

_JSON_BYTES: Final = 64 * 1024
_JSON_DEPTH: Final = 32
_YEARS: Final = range(1970, 9999)
_MANY: Final = 1_000_000_000

# These hold in Python and in JSON Schema alike. None ends in `$`, which Python also finds before a last line feed.
_NOT_BLANK: Final = r"(?=[\s\S]*\S)"
_NO_CONTROL: Final = r"(?![\s\S]*[\x00-\x1f\x7f-\x9f])"
_NO_SLASH: Final = r"(?![\s\S]*/)"
_NO_NUL: Final = r"(?![\s\S]*\x00)"
_ALL_VISIBLE: Final = r"[\x21-\x7e]+(?![\s\S])"


def _json_fault(value: Any) -> str | None:
    too_deep = f"must be at most {_JSON_DEPTH} levels deep"
    try:
        encoded = json.encode(value)
    except RecursionError:
        return too_deep
    if len(encoded) > _JSON_BYTES:
        return f"must be at most {_JSON_BYTES // 1024} KiB of JSON"
    if not _is_suspect(encoded):
        return None
    layer, depth = [value], 0
    while layer:
        if "\0" in "".join([item for item in layer if isinstance(item, str)]):
            return "must not hold NUL"
        if math.inf in layer or -math.inf in layer:
            return "must not hold a number too large for a double"
        containers = [item for item in layer if isinstance(item, dict | list)]
        depth += bool(containers)
        if depth > _JSON_DEPTH:
            return too_deep
        layer = [held for container in containers for held in _held_by(container)]
    return None


def _is_suspect(encoded: bytes) -> bool:
    """Whether a look at the values could find a fault. Seldom: each leaves a trace in the text, where NUL is escaped
    and a number too large is null."""
    return b"\\u0000" in encoded or b"null" in encoded or encoded.count(b"{") + encoded.count(b"[") > _JSON_DEPTH


def _held_by(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return chain(container, container.values()) if isinstance(container, dict) else container


def _moment_fault(moment: datetime) -> str | None:
    try:
        in_range = moment.astimezone(UTC).year in _YEARS
    except OverflowError:
        in_range = False
    return None if in_range else f"must lie in the years {_YEARS[0]}-{_YEARS[-1]} of UTC"


def _line(most: int, example: str | None = None, description: str | None = None) -> Meta:
    return Meta(
        min_length=1,
        max_length=most,
        pattern="^" + _NO_CONTROL + _NOT_BLANK,
        description=description,
        examples=[example] if example else None,
        extra={"must": f"be 1-{most} characters, not blank, without control characters"},
    )


Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern="^" + _NO_CONTROL + _NO_SLASH + _NOT_BLANK,
        examples=["acme"],
        extra={"must": "be 1-128 characters, not blank, without control characters and without /"},
    ),
]
Worker = Annotated[str, _line(128, "runner-7")]
Label = Annotated[str, _line(128, description="What it is called, for those who read the list.")]
TestSuite = Annotated[str, _line(512, "tests/login", "What to run.")]
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern="^" + _ALL_VISIBLE,
        description="Names this request within its tenant: sent again, it answers with the first one's job.",
        extra={"must": "be 1-255 visible characters"},
    ),
]
JobId = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{32}(?![\s\S])", extra={"must": "be a job's id: 32 lowercase hex digits"})
]
Token = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern="^" + _NO_NUL,
        description="The lease's token, as the claim gave it.",
        extra={"must": "be the token of a claim"},
    ),
]
ErrorText = Annotated[
    str,
    Meta(
        pattern="^" + _NO_NUL,
        description="What went wrong. Past 4 KiB it is cut, and marked so.",
        examples=["3 of 12 failed"],
        extra={"must": "be a text without NUL"},
    ),
]
Json = Annotated[
    Any, Meta(description="Any JSON of at most 64 KiB, 32 levels deep, no NUL.", extra={"check": _json_fault})
]
_MOMENT: Final = {"must": "be a time with its offset from UTC, such as 2030-01-31T09:30:00Z", "check": _moment_fault}
_IN_RANGE: Final = f"in the years {_YEARS[0]}-{_YEARS[-1]} of UTC"
RunAt = Annotated[
    datetime,
    Meta(
        tz=True,
        description=f"When it is due, instead of `delay_sec`; {_IN_RANGE}.",
        examples=["2030-01-31T09:30:00Z"],
        extra=_MOMENT,
    ),
]
ExpiresAt = Annotated[
    datetime, Meta(tz=True, description=f"From when on it lets nobody in; {_IN_RANGE}.", extra=_MOMENT)
]
Cursor = Annotated[
    str,
    Meta(
        pattern=CURSOR_PATTERN,
        description="As the page before gave it.",
        extra={"must": "be a cursor that this service gave out"},
    ),
]

Priority = Annotated[
    int, Meta(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY, description="0 is the most urgent.", examples=[2])
]
DelaySec = Annotated[int, Meta(ge=0, le=31_536_000, description="0 if neither it nor `run_at` is given.")]
Cost = Annotated[int, Meta(ge=1, le=1000)]
MaxAttempts = Annotated[int, Meta(ge=1, le=100)]
TimeoutSec = Annotated[int, Meta(ge=1, le=604_800)]

UnfinishedState = Literal["pending", "queued", "scheduled", "running"]

Limit = Annotated[int, Meta(ge=1, le=1000)]
LeaseSec = Annotated[int, Meta(ge=1, le=3600)]
WaitSec = Annotated[int, Meta(ge=0, le=30)]
Progress = Annotated[float, Meta(ge=0, le=1)]

Weight = Annotated[int, Meta(ge=1, le=1000, description="The tenant's share.", examples=[3])]
# The least rate is one job in eleven days: far below it, `1 / rate` seconds is no time any more.
RatePerSec = Annotated[
    float,
    Meta(
        ge=0.000_001,
        le=_MANY,
        description="Jobs a second; null: no limit; left out: the default.",
        extra={"must": f"be a number over 0, from 0.000001 to {_MANY}"},
    ),
]
Burst = Annotated[int, Meta(ge=1, le=_MANY, description="Left out: the rate, rounded up.")]
Cap = Annotated[int, Meta(ge=1, le=_MANY)]
