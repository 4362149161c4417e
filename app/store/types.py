"""How values are kept: the same Python values in and out of both engines, each in the type that suits the
engine. On SQLite the tables are STRICT, so all of it is TEXT, INTEGER or REAL there, in one exact form each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from sqlalchemy import BigInteger, Boolean, Dialect, Double, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP, UUID
from sqlalchemy.dialects.sqlite import REAL
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.clock import rfc3339

_INFINITE: Final = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
_is_hex_id: Final = re.compile("[0-9a-f]{32}").fullmatch
_ESCAPED_NUL: Final = b"\\u0000"
_has_escaped_nul: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000").search
_may_have_exponent: Final = re.compile(rb"e\d+(?![^,\]}])").search
"""In JSON without blanks. Hashes have such an `e` as well, but a quote before what follows their text."""

# A type with `are_equals_alike` keeps equal values in one way: of 1 and 1.0 in JSON that is not so.
Real: Final[TypeEngine[float]] = Double().with_variant(REAL(), "sqlite")


def json_to_bytes(value: Any) -> bytes:
    """JSON that both engines take, and give back the same: for Postgres -0.0 is 0.0, so it is on both. Raises
    `ValueError` for NaN, infinities, NUL and lone surrogates."""
    encoded = msgspec.json.encode(value)
    if b"-0.0" in encoded:
        encoded = msgspec.json.encode(_with_floats(value, lambda number: number or 0.0))
    # msgspec writes NaN as null, so only a text that has a null in it can hide one.
    if b"null" in encoded:
        _refuse_not_finite(value)
    if _ESCAPED_NUL in encoded and _has_escaped_nul(encoded):
        raise ValueError("JSON with a NUL character cannot be stored")
    return encoded


def json_from_text(text: str | bytes) -> Any:
    """The value of JSON that a database holds. What only a database can read (SQLite takes `1e400`, Postgres any
    depth) was typed by hand; it comes out as its text, so that one such row does not hide the others."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text if isinstance(text, str) else text.decode()


def _with_exact_floats(encoded: bytes) -> bytes:
    """The same JSON, in which a whole number that was written with an exponent has its digits and `.0` instead: of
    `1e22` jsonb makes digits alone, and a number with a fraction would come back as one without."""
    if not _may_have_exponent(encoded):
        return encoded
    return msgspec.json.encode(_with_floats(msgspec.json.decode(encoded), _digits_of_whole))


def _digits_of_whole(number: float) -> float | msgspec.Raw:
    return msgspec.Raw(f"{number:.1f}".encode()) if number.is_integer() else number


def _with_floats(value: Any, told: Callable[[float], Any]) -> Any:
    match value:
        case float():
            return told(value)
        case dict():
            return {name: _with_floats(held, told) for name, held in value.items()}
        case list() | tuple():
            return [_with_floats(held, told) for held in value]
    return value


def _refuse_not_finite(value: Any) -> None:
    unseen = [value]
    while unseen:
        item = unseen.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"JSON has no {item}")
        if isinstance(item, dict):
            unseen.extend(item.values())
        elif isinstance(item, (list, tuple)):
            unseen.extend(item)


class Whole(TypeDecorator[int]):
    """A whole number of 32 or 64 bits. SQLite's driver would raise a bare OverflowError for a larger one."""

    impl = Integer
    cache_ok = True
    are_equals_alike = True

    def __init__(self, bits: Literal[32, 64] = 32) -> None:
        super().__init__()
        self.bits = bits
        self._limit = 1 << (bits - 1)

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # SQLite keeps 64 bits in any INTEGER, and refuses the word BIGINT in a STRICT table.
        is_big = self.bits == 64 and dialect.name != "sqlite"
        return dialect.type_descriptor(BigInteger() if is_big else Integer())

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        if value is not None and not -self._limit <= value < self._limit:
            raise ValueError(f"{value} does not fit into {self.bits} bits")
        return value


class PlainText(TypeDecorator[str]):
    """Text without NUL, which Postgres refuses, and without lone surrogates, which are no UTF-8."""

    impl = Text
    cache_ok = True
    are_equals_alike = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is not None:
            if "\0" in value:
                raise ValueError("text with a NUL character cannot be stored")
            if not value.isascii():
                value.encode()  # raises UnicodeEncodeError, a ValueError
        return value


class Moment(TypeDecorator[datetime]):
    """A moment: aware in any zone on the way in, UTC on the way out, microseconds kept."""

    impl = Text
    cache_ok = True
    are_equals_alike = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(TIMESTAMP(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time needs a zone, {value.isoformat()} has none")
        if value in _INFINITE:
            raise ValueError(f"{value.isoformat()} cannot be stored: asyncpg takes it for infinity")
        return rfc3339(value) if dialect.name == "sqlite" else value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], datetime | None] | None:  # noqa: ARG002
        return _moment_of if dialect.name == "sqlite" else None  # asyncpg gives aware UTC by itself


def _moment_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class HexId(TypeDecorator[str]):
    """An id of 32 lowercase hex digits; anything else is refused before it reaches a database."""

    impl = Text
    cache_ok = True
    are_equals_alike = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else UUID())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is not None and not _is_hex_id(value):
            raise ValueError(f"an id is 32 lowercase hex digits, not {value!r}")
        return value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None] | None:  # noqa: ARG002
        return None if dialect.name == "sqlite" else _digits_of


def _digits_of(uuid: Any) -> str | None:
    digits: str | None = None if uuid is None else uuid.hex
    return digits


class _NativeJson(JSONB):
    """Takes the text as it is: SQLAlchemy's own encoder would let NaN through to the server."""

    def bind_processor(self, dialect: Dialect) -> None:  # noqa: ARG002
        return None


class Json(TypeDecorator[Any]):
    """Any JSON value. Python's None is SQL NULL, never a JSON null."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else _NativeJson())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        encoded = json_to_bytes(value)
        return (encoded if dialect.name == "sqlite" else _with_exact_floats(encoded)).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value  # on Postgres the driver has called `json_from_text` already
        return json_from_text(value)


class JsonText(TypeDecorator[str]):
    """The text of JSON as it stands, on the way in, with all its digits. On the way out ask for it as text."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else _NativeJson())


class Flag(TypeDecorator[bool]):
    """True or false; 1 and 0 on SQLite, where a CHECK allows no other number."""

    impl = Integer
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else Boolean())

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> bool | int | None:  # noqa: FBT001
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"true or false is wanted, not {value!r}")
        return int(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:  # noqa: ARG002
        return None if value is None else bool(value)


_Word = TypeVar("_Word", bound=StrEnum)


class Choice(TypeDecorator[_Word], Generic[_Word]):
    """One word of an enum, kept as text so that plain SQL reads it; which words, a CHECK says."""

    impl = Text
    cache_ok = True
    are_equals_alike = True

    def __init__(self, words: type[_Word]) -> None:
        super().__init__()
        self.words = words
        self._by_text: dict[str | None, _Word | None] = {None: None} | {word.value: word for word in words}

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is not None and value not in self._by_text:
            raise ValueError(f"{value!r} is not one of {', '.join(self.words)}")
        return value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], _Word | None]:  # noqa: ARG002
        return self._by_text.__getitem__
