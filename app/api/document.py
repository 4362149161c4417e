"""The OpenAPI document. Litestar describes the operations as far as it reads them off the handlers; what we read
ourselves is added here: query and header parameters, answers that are errors, headers of answers. The structs are
described by msgspec, which also checks by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from litestar import MediaType, Request
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import OpenAPIHeader, OpenAPIResponse, OpenAPIType, Operation, Parameter, Schema
from msgspec import NODEFAULT, Struct, inspect, json

from app.api import schemas
from app.api.errors import raises
from app.api.fields import IdempotencyKey
from app.api.request import KEY_HEADER
from app.api.schemas import Asked

KEY_SCHEME: Final = "key"
"""What the document calls a key that is sent with a request."""

AnswerHeaders = Mapping[str, OpenAPIHeader]


def documented(
    *errors: type[Exception],
    query: type[Asked] | None = None,
    headers: Sequence[Parameter] = (),
    answers: Mapping[int, AnswerHeaders] | None = None,
    also: Mapping[int, ResponseSpec] | None = None,
    needs_key: bool = True,
) -> dict[str, Any]:
    """The arguments by which a handler's decorator learns all this.

    `errors` are what the handler may raise, `answers` the headers of its good answers by status, `also` the good
    answers beside the usual one. `needs_key`: where keys are asked for at all.
    """
    parameters = [*(_query_parameters(query) if query else ()), *headers]
    return {
        "responses": {**(also or {}), **raises(*errors, needs_key=needs_key)},
        "security": [{KEY_SCHEME: []}, {}] if needs_key else [{}],  # with a key or, where none is asked for, without
        "operation_class": _operation(parameters, answers or {}),
        "opt": {"query_kind": query},
    }


class Document(JsonRenderPlugin):
    """Serves the document as JSON."""

    def __init__(self) -> None:
        super().__init__(path="/", media_type=MediaType.JSON)

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        components = openapi_schema["components"]
        described = _described_structs()
        drawn = {name: described.get(name, schema) for name, schema in components["schemas"].items()}
        return super().render(request, openapi_schema | {"components": components | {"schemas": drawn}})


@cache
def _described_structs() -> dict[str, Any]:
    kinds = [kind for kind in vars(schemas).values() if isinstance(kind, type) and issubclass(kind, Struct)]
    _, described = json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return described


def _operation(parameters: list[Parameter], answers: Mapping[int, AnswerHeaders]) -> type[Operation]:
    headers = {str(status): headers for status, headers in answers.items()} | _ERROR_HEADERS

    @dataclass
    class Documented(Operation):
        def __post_init__(self) -> None:
            self.summary = (self.description or "").partition(". ")[0].removesuffix(".")
            self.parameters = [*(self.parameters or ()), *parameters] or None
            for status, response in (self.responses or {}).items():
                if isinstance(response, OpenAPIResponse):
                    response.headers = {**(response.headers or {}), **headers.get(status, {})}

    return Documented


def _query_parameters(kind: type[Asked]) -> Iterator[Parameter]:
    info = inspect.type_info(kind)
    for field in info.fields if isinstance(info, inspect.StructType) else ():
        schema = _schema(field.type)
        schema.default = None if field.default is NODEFAULT else field.default
        yield Parameter(field.name, "query", schema=schema, required=field.required)


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=more):
            schema = _schema(inner)
            schema.description = (more or {}).get("description")
            return schema
        case inspect.IntType(ge=least, le=most):
            return Schema(type=OpenAPIType.INTEGER, minimum=least, maximum=most)
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return Schema(type=OpenAPIType.STRING, min_length=least, max_length=most, pattern=pattern)
        case inspect.EnumType(cls=members):
            return Schema(type=OpenAPIType.STRING, enum=[member.value for member in members])
        case inspect.LiteralType(values=values):
            return Schema(type=OpenAPIType.STRING, enum=list(values))
    raise TypeError(f"no query parameter can be a {info}")


def _text(description: str, **more: Any) -> OpenAPIHeader:
    return OpenAPIHeader(schema=Schema(type=OpenAPIType.STRING, **more), description=description)


LOCATION: Final = {"Location": _text("The job's path.")}
REPLAYED: Final = {"Idempotency-Replayed": _text("An earlier request had stored it.", const="true")}
NEXT_PAGE: Final = {"Link": _text('`<path>; rel="next"`, the next page; not on the last one.')}
PREFERENCE_APPLIED: Final = {"Preference-Applied": _text("The wish that was met.")}
_RETRY_AFTER: Final = {
    "Retry-After": OpenAPIHeader(
        schema=Schema(type=OpenAPIType.INTEGER, minimum=0), description="Whole seconds until it is worth a try."
    )
}
_ERROR_HEADERS: Final = {"429": _RETRY_AFTER, "503": _RETRY_AFTER}

METRICS: Final = ResponseSpec(
    str,
    generate_examples=False,
    description="All metrics; as `application/openmetrics-text` if `Accept` says so.",
    media_type="text/plain",
)

KEY: Final = Parameter(KEY_HEADER, "header", schema=_schema(inspect.type_info(IdempotencyKey)))
PREFER: Final = Parameter(
    "Prefer", "header", schema=Schema(type=OpenAPIType.STRING), description="`return=minimal`: the ids alone."
)
