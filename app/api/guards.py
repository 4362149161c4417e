"""What is asked of every request before its handler runs."""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import Request
from litestar.exceptions import MethodNotAllowedException

from app.api.decode import decode_body
from app.api.request import CheckedRequest
from app.api.schemas import Nothing
from app.errors import NotFound

LARGE_BODY_BYTES: Final = 16 * 1024 * 1024
"""Of calls that carry many jobs at once."""

_JOB_ID: Final = re.compile(r"[0-9a-f]{32}")


def is_job_id(text: str) -> bool:
    """Whether any job could have this id."""
    return _JOB_ID.fullmatch(text) is not None


async def refuse_unread(request: Request[Any, Any, Any]) -> None:
    """Refuse what the handler would not look at: an id that cannot be one, a query or a body it does not take."""
    if not isinstance(request, CheckedRequest):
        raise TypeError("the application reads its requests by CheckedRequest")
    refuse_unserved(request)
    if request.query_kind is None and request.scope["query_string"]:
        request.query(Nothing)
    if request.body_kind is None and (body := await request.body()):
        decode_body(body, Nothing)


def refuse_unserved(request: Request[Any, Any, Any]) -> None:
    """Refuse a method that nobody serves, and an id that cannot be one."""
    if request.method == "OPTIONS":  # Litestar would answer it by itself
        path = request.scope["path_template"]
        allowed = next(route.methods for route in request.app.routes if route.path_format == path)
        raise MethodNotAllowedException(headers={"allow": ", ".join(allowed)})
    if not is_job_id(request.path_params.get("job_id", "0" * 32)):
        raise NotFound("job")
