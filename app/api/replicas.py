"""The servers on this database."""

from __future__ import annotations

from litestar import get

from app.api.document import documented
from app.api.request import CheckedRequest
from app.api.schemas import ReplicaAnswer
from app.errors import Unavailable
from app.flow import replicas


@get("/replicas", answered_anywhere=True, **documented(Unavailable))
async def list_replicas(request: CheckedRequest) -> list[ReplicaAnswer]:
    """List the replicas that were heard of lately, the oldest first. One dispatches, unless that is changing hands."""
    return [ReplicaAnswer.of(each) for each in await replicas.list_replicas(request.core)]


HANDLERS = (list_replicas,)
