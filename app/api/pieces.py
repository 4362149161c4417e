"""JSON taken apart piece by piece. Nothing else runs while a decoder is at work, so none is given more than a piece,
however long the body is. Raises nothing but `InvalidRequest`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.errors import InvalidRequest

INVALID_JSON: Final = "invalid JSON"
_PIECE_BYTES: Final = 1024 * 1024
_LIGHT_BYTES: Final = 128 * 1024
_MOST_MARKS: Final = 64 * 1024
"""Of a kind in one value: no field takes more than 64 KiB of JSON."""

# Python makes no whole number of more digits. Any that takes its place is beyond a double as well, and so refused.
_LONG_NUMBER: Final = re.compile(rb"[1-9][0-9]{4300,}")
_BEYOND_A_DOUBLE: Final = b"1e999"


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Decodes pieces of a kind. A number too large for a double becomes infinite, and the field it stands in is to
    refuse it."""
    return msgspec.json.Decoder(kind, float_hook=float)


def decoded(text: bytes | Raw) -> Any:
    """What a piece is, whatever it is."""
    try:
        return _by(_ANYTHING, text)
    except msgspec.ValidationError:
        return _by(_ANYTHING, _LONG_NUMBER.sub(_BEYOND_A_DOUBLE, text))


def is_a_piece(text: bytes | Raw) -> bool:
    """Whether it is short enough to be decoded."""
    return memoryview(text).nbytes <= _PIECE_BYTES


def is_light(text: bytes | Raw) -> bool:
    """Whether it is decoded in a moment, whatever it is."""
    return memoryview(text).nbytes <= _LIGHT_BYTES


def object_in(text: bytes | Raw) -> Any:
    """The fields of a piece that is an object. What is too heavy stays as it came, and so does a long piece that is no
    object."""
    if is_light(text):
        return decoded(text)
    try:
        fields = _by(_FIELDS, text)
    except msgspec.ValidationError:
        return text
    return {name: _value_in(held) for name, held in fields.items()}


def fields_of(text: bytes, lists: Mapping[str, int]) -> dict[str, Any]:
    """The fields of an object. Those of `lists`, which says how many items each may have, are lists of pieces: an
    item may be as long as a body without lists, and so may all that is beside them. What is no list, or too long a
    one, stays as it came, but for null and texts."""
    try:
        _refuse_long_rest(text, frozenset(lists))
        fields = _by(_FIELDS, text)
    except msgspec.ValidationError:
        raise InvalidRequest(INVALID_JSON) from None
    return {name: _items_in(held, lists[name]) if name in lists else _value_in(held) for name, held in fields.items()}


def _by(decoder: msgspec.json.Decoder[Any], text: bytes | Raw) -> Any:
    """Raises `ValidationError` for JSON of another kind."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (ValueError, RecursionError):
        raise InvalidRequest(INVALID_JSON) from None


def _value_in(text: Raw) -> Any:
    """What is too heavy for any field would take a tenth of a second to decode, and stays as it came."""
    given = bytes(text)
    is_light = len(given) <= _LIGHT_BYTES or all(given.count(mark) <= _MOST_MARKS for mark in b",[{")
    return decoded(text) if is_light else text


def _refuse_long_rest(text: bytes, lists: frozenset[str]) -> None:
    held = _by(_finder(lists), text)
    rest = len(text) - sum(memoryview(each).nbytes for each in msgspec.structs.astuple(held) if each is not UNSET)
    if rest > _PIECE_BYTES:
        raise InvalidRequest(f"the body must be at most 1 MiB beside {' and '.join(sorted(lists))}")


_ANYTHING: Final = decoder_of(Any)
_FIELDS: Final = decoder_of(dict[str, Raw])


@cache
def _finder(lists: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Finds the lists; what else there is it passes over, and makes nothing of it."""
    return msgspec.json.Decoder(msgspec.defstruct("Lists", [(name, Raw | UnsetType, UNSET) for name in lists]))


def _items_in(text: Raw, most: int) -> Any:
    try:
        found = _by(_items_decoder(most), text)
    except msgspec.ValidationError:
        return text
    if not isinstance(found, msgspec.Struct):
        return found
    return list(takewhile(lambda item: item is not UNSET, msgspec.structs.astuple(found)))


@cache
def _items_decoder(most: int) -> msgspec.json.Decoder[Any]:
    """Of a list, null or a text. The length of what is called a list is looked at when all of it is decoded, which of
    16 MiB of `[]` takes most of a second; what is called a struct is given up at the first item too many."""
    slots = [(f"item_{n}", Raw | UnsetType, UNSET) for n in range(most)]
    items = msgspec.defstruct("Items", slots, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(items | str | None)
