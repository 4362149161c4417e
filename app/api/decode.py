"""From bytes to checked structs. Names every bad field at once, where msgspec alone stops at the first, and never
takes one type for another: neither "5" nor 5.0 nor true is a whole number. Raises nothing but `InvalidRequest`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Raw, inspect

from app.api.pieces import INVALID_JSON, decoder_of, fields_of, is_a_piece, is_light, object_in
from app.api.schemas import Asked
from app.errors import FieldError, InvalidRequest

A = TypeVar("A", bound=Asked)

_REQUIRED: Final = "is required"
_MOST_DETAILS: Final = 10_000
_MOST_PARAMETERS: Final = 100
_LONGEST_NAME: Final = 100
_LONGEST_WHOLE: Final = 18


def decode_body(body: bytes, kind: type[A], beside: Sequence[FieldError] = ()) -> A:
    """The struct that `body` holds. `beside` is what else is wrong with the request; it is told last."""
    lists = _lists_of(kind)
    if not lists and not beside and isinstance(struct := _struct_in(body, kind), kind):
        return struct
    given = fields_of(body, {field.name: field.most for field in lists}) if lists else object_in(body)
    if not isinstance(given, dict):
        raise InvalidRequest(INVALID_JSON)
    for field in lists:
        if field.item and isinstance(pieces := given.get(field.name), list):
            given[field.name] = [_struct_in(piece, field.item) for piece in pieces]
    _refuse_faults(given, kind, beside)
    return msgspec.convert(given | {field.name: field.structs(given[field.name]) for field in lists}, kind)


def _struct_in(piece: bytes | Raw, kind: type[A]) -> A | bytes | Raw:
    """The struct that a piece is; the piece itself if it is none or a faulty one, whose faults are still to be told."""
    try:
        struct = decoder_of(kind).decode(piece) if is_light(piece) else piece
    except (ValueError, RecursionError):
        return piece
    return struct if isinstance(struct, kind) and not any(_faults_beyond_types(struct, kind)) else piece


def _faults_beyond_types(struct: A, kind: type[A]) -> Iterator[object]:
    for field in _ruled_fields_of(kind):
        value = getattr(struct, field.name)
        if value is not None and value is not UNSET and field.rule.check:
            yield field.rule.check(value)
    if kind.contradictions is not Asked.contradictions:
        yield from kind.contradictions(struct.given())


def decode_query(query: bytes, kind: type[A]) -> A:
    """The struct that the query parameters are; a whole number is written in digits alone."""
    try:
        text = query.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise InvalidRequest("the query must be percent-encoded UTF-8") from None
    whole = {field.name for field in _fields_of(kind) if field.is_whole}
    given = {name: _whole(value) if name in whole else value for name, value in pairs if _is_text(name + value)}
    _refuse_faults(given, kind, list(_faults_of_parameters(pairs)))
    return msgspec.convert(given, kind)


def _faults_of_parameters(pairs: Sequence[tuple[str, str]]) -> Iterator[FieldError]:
    """Those that no struct knows of."""
    times = Counter(name for name, _ in pairs)
    for name in dict.fromkeys(name for name, value in pairs if not _is_text(name + value)):
        yield FieldError(_cut(_printable(name)), "must be percent-encoded UTF-8")
    for name in times:
        if times[name] > 1:
            yield FieldError(_cut(_printable(name)), "must be given once")


def fault_of(value: object, kind: Any) -> str | None:
    """What a `value` that is not of the `kind` (one of `fields`) must be; None if it is of it."""
    return _Rule.of(kind).fault(value)


def _refuse_faults(given: dict[str, Any], kind: type[Asked], beside: Sequence[FieldError]) -> None:
    elsewhere = (_Fault.at(error.field, error.message) for error in beside)
    if faults := list(islice(chain(_faults(given, kind), elsewhere), _MOST_DETAILS)):
        raise InvalidRequest(_gravest(faults).sentence, [fault.error for fault in faults])


class _Rank(IntEnum):
    """The sentence is about the first fault of the lowest rank."""

    MISSING = 0
    TOLD_FIRST = 1
    IN_ORDER = 2


@dataclass(frozen=True, slots=True)
class _Fault:
    error: FieldError
    sentence: str
    rank: _Rank

    @staticmethod
    def at(field: str, message: str, rank: _Rank = _Rank.IN_ORDER) -> _Fault:
        return _Fault(FieldError(field, message), f"{field} {message}", rank)


def _gravest(faults: Sequence[_Fault]) -> _Fault:
    return min(faults, key=lambda fault: fault.rank)


def _faults(given: dict[str, Any], kind: type[Asked]) -> Iterator[_Fault]:
    """All that is wrong with an object, in the order of the struct's fields."""
    fields = _fields_of(kind)
    # One call in C finds most objects to be of the type; then only the fields with a rule beyond it are looked at.
    suspects = fields if _Rule.of(kind).fault(given) else [field for field in fields if field.has_more_rules]
    for field in suspects:
        if field.name in given:
            yield from field.faults(given[field.name])
        elif field.required:
            yield field.missing()
    if suspects is fields:
        known = {field.name for field in fields}
        yield from (_Fault.at(_cut(name), "is not taken here") for name in given if name not in known)
    yield from (_Fault.at(error.field, error.message) for error in kind.contradictions(given))


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a value must be: of a type, within msgspec's ranges, and whatever `check` asks beyond."""

    type: Any
    must: str
    check: Callable[[Any], str | None] | None

    @staticmethod
    @cache
    def of(kind: Any) -> _Rule:
        info = inspect.type_info(kind)
        return _Rule(kind, _must(info), _check_in(info))

    def fault(self, value: object) -> str | None:
        try:
            converted = msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            return f"must {self.must}"
        return self.check(converted) if self.check and converted is not None else None


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a struct. If it is a list of structs, `rule` is about the list, `item` is what it holds, at `most`
    how many, and its value is a list of such structs and, where there may be a fault, of pieces that are not decoded
    yet."""

    name: str
    rule: _Rule
    required: bool
    is_whole: bool
    has_more_rules: bool
    rank: _Rank
    if_missing: str
    item: type[Asked] | None
    most: int

    def missing(self) -> _Fault:
        return _Fault(FieldError(self.name, _REQUIRED), self.if_missing, _Rank.MISSING)

    def faults(self, value: object) -> Iterator[_Fault]:
        """Null and "" count as missing where something must stand."""
        if message := self.rule.fault(value):
            is_missing = self.required and (value is None or value == "")
            yield self.missing() if is_missing else _Fault.at(self.name, message, self.rank)
        elif self.item and isinstance(value, list):
            for index, item in enumerate(value):
                if not isinstance(item, Asked):
                    yield from _item_faults(f"{self.name}[{index}]", item, self.item)

    def structs(self, items: Sequence[Any]) -> list[Any]:
        """What a list without faults holds."""
        decode = decoder_of(self.item).decode
        return [item if isinstance(item, Asked) else decode(item) for item in items]


def _item_faults(place: str, piece: Raw, kind: type[Asked]) -> Iterator[_Fault]:
    if not is_a_piece(piece):
        yield _Fault.at(place, "must be at most 1 MiB of JSON")
    elif not isinstance(item := object_in(piece), dict):
        yield _Fault.at(place, "must be an object")
    elif faults := list(islice(_faults(item, kind), _MOST_DETAILS)):
        sentence = f"{place}: {_gravest(faults).sentence}"
        for fault in faults:
            error = FieldError(f"{place}.{fault.error.field}", fault.error.message)
            yield _Fault(error, sentence, _Rank.IN_ORDER)


@cache
def _fields_of(kind: type[Asked]) -> tuple[_Field, ...]:
    return tuple(_field(kind, field) for field in msgspec.structs.fields(kind))


@cache
def _ruled_fields_of(kind: type[Asked]) -> tuple[_Field, ...]:
    return tuple(field for field in _fields_of(kind) if field.rule.check)


@cache
def _lists_of(kind: type[Asked]) -> tuple[_Field, ...]:
    return tuple(field for field in _fields_of(kind) if field.item)


def _field(kind: type[Asked], field: msgspec.structs.FieldInfo) -> _Field:
    info = inspect.type_info(field.type)
    item = _item_of(info)
    rule = _Rule.of(_without_items(info) if item else field.type)
    return _Field(
        name=field.name,
        rule=rule,
        required=field.required,
        is_whole=_is_whole(info),
        has_more_rules=bool(item or rule.check),
        rank=_Rank.TOLD_FIRST if field.name in kind.told_first else _Rank.IN_ORDER,
        if_missing=kind.if_missing or f"{field.name} {_REQUIRED}",
        item=item,
        most=getattr(info, "max_length", None) or 0,
    )


def _is_whole(info: inspect.Type) -> bool:
    inner = info.type if isinstance(info, inspect.Metadata) else info
    return isinstance(inner, inspect.IntType)


def _item_of(info: inspect.Type) -> type[Asked] | None:
    match info:
        case inspect.ListType(item_type=inspect.StructType(cls=kind)) if issubclass(kind, Asked):
            return kind
    return None


def _without_items(info: inspect.Type) -> Any:
    """A list as long as this one may be, of anything: its items are looked at one by one."""
    bounds = {bound: getattr(info, bound) for bound in ("min_length", "max_length")}
    return Annotated[list[Any], msgspec.Meta(**bounds)]


def _check_in(info: inspect.Type) -> Callable[[Any], str | None] | None:
    match info:
        case inspect.Metadata(extra={"check": check}):
            return cast("Callable[[Any], str | None]", check)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return _check_in(inner)
    return None


def _must(info: inspect.Type) -> str:
    """What a value of this type must be, in words that stand after "must"."""
    match info:
        case inspect.Metadata(extra={"must": str(must)}):
            return must
        case inspect.Metadata(type=inner):
            return _must(inner)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return f"{_must(inner)} or null"
        case inspect.IntType(ge=least, le=most):
            return f"be {least}-{most}"
        case inspect.FloatType(ge=least, le=most):
            return f"be a number from {least} to {most}"
        case inspect.ListType(min_length=least, max_length=most):
            return f"be a list of {least}-{most}"
        case inspect.LiteralType(values=values):
            return f"be {' or '.join(map(str, values))}"
        case inspect.EnumType(cls=kind):
            return f"be one of {', '.join(member.value for member in kind)}"
        case inspect.BoolType():
            return "be true or false"
    return "be a text"


def _whole(text: str) -> int | str:
    is_whole = text.isascii() and text.isdigit() and len(text) <= _LONGEST_WHOLE and (text == "0" or text[0] != "0")
    return int(text) if is_whole else text


def _is_text(escaped: str) -> bool:
    """Whether what was percent-encoded was UTF-8; bytes that were not are surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in escaped)


def _printable(escaped: str) -> str:
    return escaped.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
