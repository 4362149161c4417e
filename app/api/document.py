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
from litestar.openapi.spec import (
    Link,
    OpenAPIHeader,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    Schema,
)
from msgspec import NODEFAULT, Struct, inspect, json

from app.api import schemas
from app.api.errors import raises
from app.api.fields import IdempotencyKey, JobId, Name
from app.api.request import KEY_HEADER
from app.api.schemas import Asked

KEY_SCHEME: Final = "key"
"""What the document calls a key that is sent with a request."""

AnswerHeaders = Mapping[str, OpenAPIHeader]
Links = Mapping[str, Link]


def documented(
    *errors: type[Exception],
    query: type[Asked] | None = None,
    headers: Sequence[Parameter] = (),
    answers: Mapping[int, AnswerHeaders] | None = None,
    also: Mapping[int, ResponseSpec] | None = None,
    needs_key: bool = True,
    links: Links | None = None,
) -> dict[str, Any]:
    """The arguments by which a handler's decorator learns all this.

    `errors` are what the handler may raise, `answers` the headers of its good answers by status, `also` the good
    answers beside the usual one, `links` the calls that a good answer leads to. `needs_key`: where keys are asked for
    at all.
    """
    parameters = [*(_query_parameters(query) if query else ()), *headers]
    return {
        "responses": {**(also or {}), **raises(*errors, needs_key=needs_key)},
        "security": [{KEY_SCHEME: []}, {}] if needs_key else [{}],  # with a key or, where none is asked for, without
        "operation_class": _operation(parameters, answers or {}, links or {}),
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
    contradictions = {kind.__name__: kind.contradictions_schema for kind in kinds if issubclass(kind, Asked)}
    return {name: schema | contradictions.get(name, {}) for name, schema in described.items()}


def _operation(parameters: list[Parameter], answers: Mapping[int, AnswerHeaders], links: Links) -> type[Operation]:
    headers = {str(status): headers for status, headers in answers.items()} | _ERROR_HEADERS

    @dataclass
    class Documented(Operation):
        def __post_init__(self) -> None:
            self.summary = (self.description or "").partition(". ")[0].removesuffix(".")
            self.parameters = [*map(_with_its_range, self.parameters or ()), *parameters] or None
            for status, response in (self.responses or {}).items():
                if isinstance(response, OpenAPIResponse):
                    response.headers = {**(response.headers or {}), **headers.get(status, {})}
                    response.links = dict(links) if links and status < "300" else None

    return Documented


def _with_its_range(parameter: Parameter | Reference) -> Parameter | Reference:
    """A part of the path, which Litestar knows only to be a text."""
    if isinstance(parameter, Parameter) and (kind := _PATH_KINDS.get(parameter.name)):
        parameter.schema = _schema(inspect.type_info(kind))
    return parameter


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
            schema.examples = (more or {}).get("examples")
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


def _text(description: str, *, required: bool = False, **more: Any) -> OpenAPIHeader:
    schema = Schema(type=OpenAPIType.STRING, **more)
    return OpenAPIHeader(schema=schema, description=description, required=required)


def leads_to(*operations: str, body: Mapping[str, str] | None = None, **path: str) -> Links:
    """The links of an answer by which these operations can be called: where in it the parts of their `path` and of
    their `body` are found, as JSON pointers."""
    found = {name: f"$response.body#{pointer}" for name, pointer in path.items()}
    sent = {name: f"$response.body#{pointer}" for name, pointer in (body or {}).items()} or None
    return {each: Link(operation_id=each, parameters=dict(found), request_body=sent) for each in operations}


LOCATION: Final = {"Location": _text("The job's path.", required=True)}
REPLAYED: Final = {"Idempotency-Replayed": _text("An earlier request had stored it.", required=True, const="true")}
NEXT_PAGE: Final = {"Link": _text('`<path>; rel="next"`, the next page; not on the last one.')}
PREFERENCE_APPLIED: Final = {"Preference-Applied": _text("The wish that was met.")}
_SECONDS: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
_ERROR_HEADERS: Final = {
    "429": {
        "Retry-After": OpenAPIHeader(
            schema=_SECONDS, description="Whole seconds until it is worth a try; not where nobody can know."
        )
    },
    "503": {
        "Retry-After": OpenAPIHeader(
            schema=_SECONDS, description="Whole seconds until it is worth a try.", required=True
        )
    },
}
_PATH_KINDS: Final = {"job_id": JobId, "key_id": JobId, "name": Name}

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
