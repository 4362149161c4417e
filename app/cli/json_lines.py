"""JSON for programs: one object a line, with the fields and the times of the HTTP interface."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec import Struct

from app.clock import rfc3339


def print_json(source: Struct, **beside: Any) -> None:
    """Print a struct as a line, and `beside` after its fields."""
    click.echo(as_line(as_object(source) | beside))


def as_object(source: Struct) -> dict[str, Any]:
    """A struct as JSON has it, with the structs in it."""
    return {name: _value(getattr(source, name)) for name in source.__struct_fields__}


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case Struct():
            return as_object(value)
        case list():
            return [_value(item) for item in value]
    return value


def as_line(thing: Any) -> str:
    """Anything as JSON on one line. What does not print is escaped as JSON escapes it, so that a terminal is safe."""
    text = msgspec.json.encode(thing).decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
