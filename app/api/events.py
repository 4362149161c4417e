"""The moves of jobs as they happen, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from litestar.status_codes import HTTP_200_OK
from msgspec import json

from app.api.document import documented
from app.api.request import CheckedRequest
from app.api.schemas import MissedAnswer, MoveAnswer, MovesQuery
from app.api.stream import QUIET_SEC, STILL_HERE, EventStream
from app.errors import Unavailable
from app.flow.access.sight import only_tenant
from app.flow.watch.feed import MoveFilter, StateMove, Watcher

_STREAM: Final = ResponseSpec(
    MoveAnswer,
    generate_examples=False,
    media_type="text/event-stream",
    description="Server-sent events: `move` with this as its data; `missed` with how many moves a client that reads"
    " too slowly has missed; a comment when nothing happens for 15 seconds.",
)


@get("/events", **documented(Unavailable, query=MovesQuery, also={HTTP_200_OK: _STREAM}))
async def watch_moves(request: CheckedRequest) -> EventStream:
    """Watch jobs move from state to state. The stream has no past: what moved before it began is not in it."""
    wanted = request.query(MovesQuery).to_filter()
    wanted = replace(wanted, tenant=only_tenant(request.holder, wanted.tenant))
    watcher = request.core.feed.watch()
    return EventStream(request.core, request.holder, watcher, _moves(watcher, wanted))


async def _moves(watcher: Watcher, wanted: MoveFilter) -> AsyncIterator[bytes]:
    async for batch in watcher.batches(QUIET_SEC):
        told = [_move(move) for move in batch.moves if wanted.takes(move)]
        if batch.missed:
            told.insert(0, _event(b"missed", json.encode(MissedAnswer(missed=batch.missed))))
        if told or not batch.moves:
            yield b"".join(told) or STILL_HERE


def _move(move: StateMove) -> bytes:
    if not move.written:  # once for all who watch
        move.written = _event(b"move", json.encode(MoveAnswer.of(move)))
    return move.written


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: " + name + b"\ndata: " + data + b"\n\n"


HANDLERS = (watch_moves,)
