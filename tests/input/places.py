"""Every place in a request where a value may stand, read off the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Where = Literal["body", "query", "path"]


@dataclass(frozen=True)
class Place:
    """A field of a body, a query parameter, or a part of a path. `steps` lead to it: names, and 0 into a list."""

    operation: str
    method: str
    path: str
    takes_body: bool
    where: Where
    steps: tuple[str | int, ...]

    @property
    def told(self) -> str:
        """What an answer calls it."""
        told = ""
        for step in self.steps:
            told += f"[{step}]" if isinstance(step, int) else f".{step}" if told else step
        return told

    def __str__(self) -> str:
        return f"{self.operation} {self.told}"


def places(document: Mapping[str, Any]) -> Iterator[Place]:
    """All of them, and beside them, for each body, a field that no body has."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            at = (operation["operationId"], method.upper(), path, "requestBody" in operation)
            for parameter in operation.get("parameters", ()):
                if parameter["in"] in ("query", "path"):
                    yield Place(*at, parameter["in"], (parameter["name"],))
            if body := operation.get("requestBody"):
                schema = body["content"]["application/json"]["schema"]
                yield from (Place(*at, "body", steps) for steps in _fields(document, schema))


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str | int, ...]]:
    schema = _resolved(document, schema)
    for name, field in schema.get("properties", {}).items():
        yield (name,)
        yield from ((name, *steps) for steps in _items(document, field))
    if "properties" in schema:
        yield ("no such field",)


def _items(document: Mapping[str, Any], field: Mapping[str, Any]) -> Iterator[tuple[str | int, ...]]:
    for kind in field.get("anyOf", [field]):
        if items := kind.get("items"):
            yield (0,)
            yield from ((0, *steps) for steps in _fields(document, items))


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if reference := schema.get("$ref"):
        found: Mapping[str, Any] = document["components"]["schemas"][reference.rpartition("/")[2]]
        return found
    return schema
