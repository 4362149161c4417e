"""Keys: made, listed, taken back."""

from __future__ import annotations

from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from litestar.status_codes import HTTP_200_OK

from app.api.decode import fault_of
from app.api.document import documented, leads_to
from app.api.fields import JobId
from app.api.request import CheckedRequest
from app.api.schemas import KeyAnswer, KeyBody, NewKeyAnswer
from app.errors import FieldError, InvalidRequest, NotFound, Unavailable
from app.flow.access import issue

_FOR_ONE = {"Cache-Control": "no-store"}


@post("/keys", **documented(Unavailable, links=leads_to("revoke_key", key_id="/id")))
async def create_key(request: CheckedRequest, data: JSONBody[KeyBody]) -> Response[NewKeyAnswer]:
    """Make a key. What its holder sends is in this answer and never again."""
    if data.expires_at is not None and data.expires_at <= request.core.clock.shown():
        message = "must lie in the future"
        raise InvalidRequest(f"expires_at {message}", [FieldError("expires_at", message)])
    row, key = await issue.make_key(request.core, data.name, data.to_grant(), data.expires_at, by=request.holder)
    return Response(NewKeyAnswer.row(row, key=key.text), headers=_FOR_ONE)


@get("/keys", **documented(Unavailable))
async def list_keys(request: CheckedRequest) -> list[KeyAnswer]:
    """List all keys, the oldest first, those that have ended too."""
    return [KeyAnswer.row(row) for row in await issue.list_keys(request.core)]


@delete("/keys/{key_id:str}", status_code=HTTP_200_OK, **documented(NotFound, Unavailable))
async def revoke_key(request: CheckedRequest, key_id: FromPath[str]) -> KeyAnswer:
    """Take a key back, and the logins that were made with it. Sent again, the answer is the same."""
    if fault_of(key_id, JobId):
        raise NotFound("key")
    return KeyAnswer.row(await issue.revoke_key(request.core, key_id, by=request.holder))


HANDLERS = (create_key, list_keys, revoke_key)
