"""A request whose body, query and headers are read our way: each is checked as a whole, and every fault is named."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, NoReturn, TypeVar, cast

from litestar import Request
from litestar.types import HTTPReceiveMessage, Receive

from app.api.decode import decode_body, decode_query, fault_of
from app.api.errors import BodyTooLarge, ClientGone, NotJson
from app.api.fields import IdempotencyKey
from app.api.pieces import INVALID_JSON
from app.api.schemas import Asked
from app.errors import FieldError, InvalidRequest
from app.flow.core import Core
from app.keys import Holder

T = TypeVar("T")
A = TypeVar("A", bound=Asked)

BODY: Final = "body"
"""Where the scope has the body, once it was received: what was received cannot be received again."""

KEY_HEADER: Final = "Idempotency-Key"
_JSON_TYPE: Final = re.compile(r'application/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?', re.IGNORECASE)
_PREFERS_MINIMAL: Final = re.compile(r'return\s*=\s*("minimal"|minimal)\s*(;.*)?', re.IGNORECASE)
_LONG_BODY: Final = 256 * 1024


class CheckedRequest(Request[Any, Any, Any]):
    """Litestar asks `json` for the handler's `data`."""

    _received: bytes | None = None

    async def body(self) -> bytes:
        """The body; a body that does not say it is JSON is refused, and so is none where one is taken."""
        body = await self.received()
        if body and not self._is_json:
            raise NotJson
        if not body and self.body_kind:
            raise InvalidRequest(INVALID_JSON)
        return body

    async def received(self) -> bytes:
        """The body, whatever it is; asked again, the same. Raises `BodyTooLarge`, as soon as that is clear, and
        `ClientGone`."""
        if self._received is None:
            self._received = await self._receive_all()
            cast("dict[str, Any]", self.scope)[BODY] = self._received
        return self._received

    async def _receive_all(self) -> bytes:
        most = self.route_handler.resolve_request_max_body_size() or math.inf
        if any(int(length) > most for length in self._header("Content-Length")):
            raise BodyTooLarge
        chunks, size, is_complete = list[bytes](), 0, False
        while not is_complete:
            message = cast("HTTPReceiveMessage", await self.receive())
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunks.append(message["body"])
            size += len(message["body"])
            if size > most:
                raise BodyTooLarge
            is_complete = not message["more_body"]
        return b"".join(chunks)

    async def json(self) -> Any:
        """The struct that the handler takes as `data`."""
        kind, body = self.body_kind, await self.body()
        if kind is None:
            return None
        faults = list(self._key_faults(kind))
        if len(body) > _LONG_BODY:  # a batch may take a tenth of a second to check: others are served meanwhile
            async with self.app.state.long_bodies:
                return await asyncio.to_thread(decode_body, body, kind, faults)
        return decode_body(body, kind, faults)

    @property
    def core(self) -> Core:
        """What the service works on. (Litestar would inject it, for a tenth of what it does for a request.)"""
        core: Core = self.app.state.core
        return core

    @property
    def holder(self) -> Holder:
        """Who sends it, as the gate has found out."""
        holder: Holder = self.auth
        return holder

    @property
    def body_kind(self) -> type[Asked] | None:
        """What the handler takes as its body; None if it takes none."""
        field = self.route_handler.parsed_data_field
        return field.annotation if field else None

    @property
    def query_kind(self) -> type[Asked] | None:
        """What the handler takes as its query parameters; None if it takes none."""
        return self.route_handler.opt.get("query_kind")

    def query(self, kind: type[A]) -> A:
        """The struct that the query parameters are."""
        return decode_query(self.scope["query_string"], kind)

    @property
    def idempotency_key(self) -> str | None:
        """The header, already checked."""
        return next(iter(self._header(KEY_HEADER)), None)

    @property
    def prefers_minimal(self) -> bool:
        """Whether the client asks for as little as it needs (RFC 7240)."""
        wishes = ",".join(self._header("Prefer")).split(",")
        return any(_PREFERS_MINIMAL.fullmatch(wish.strip()) for wish in wishes)

    async def unless_gone(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Awaitable[None]] | None = None,
        until: Coroutine[Any, Any, NoReturn] | None = None,
    ) -> T:
        """What `work` gives. If the client hangs up first, or `until` raises, `work` is cancelled, and undone if it
        came to its end."""
        working = asyncio.create_task(work)
        ends = [asyncio.create_task(end) for end in (self._leaving(), until) if end is not None]
        try:
            await asyncio.wait({working, *ends}, return_when=asyncio.FIRST_COMPLETED)
            reasons = [reason for end in ends if end.done() and (reason := end.exception())]
            if not reasons:
                return working.result()
        finally:
            for task in (working, *ends):
                task.cancel()
        await asyncio.wait({working})
        if not working.cancelled() and not working.exception() and undo is not None:
            await undo(working.result())
        raise reasons[0]

    async def _leaving(self) -> NoReturn:
        await hung_up(self.receive)
        raise ClientGone

    @property
    def _is_json(self) -> bool:
        types = self._header("Content-Type")
        return len(types) == 1 and _JSON_TYPE.fullmatch(types[0].strip()) is not None

    def _header(self, name: str) -> list[str]:
        """What was given under the name, in order. (Litestar's own headers are a dictionary made for each request, and
        looking at four of them is a twentieth of a submit.)"""
        wanted = name.lower().encode()
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == wanted]

    def _key_faults(self, kind: type[Asked]) -> Iterator[FieldError]:
        keys = self._header(KEY_HEADER)
        if kind.key_header == "refused" and keys:
            yield FieldError(KEY_HEADER, "is not taken here: each job has an idempotency_key of its own")
        elif kind.key_header == "taken" and len(keys) > 1:
            yield FieldError(KEY_HEADER, "must be given once")
        elif kind.key_header == "taken" and keys and (message := fault_of(keys[0], IdempotencyKey)):
            yield FieldError(KEY_HEADER, message)


async def hung_up(receive: Receive) -> None:
    """Wait until the client does."""
    while (await receive())["type"] != "http.disconnect":
        pass
