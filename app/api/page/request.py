"""A request of a browser's: forms instead of JSON, and none that another site has sent."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from litestar import Request

from app.api.decode import decode_query
from app.api.errors import ForeignForm
from app.api.guards import refuse_unserved
from app.api.request import CheckedRequest
from app.api.schemas import Asked
from app.errors import InvalidRequest

A = TypeVar("A", bound=Asked)


class PageRequest(CheckedRequest):
    """Reads forms and addresses as strictly as the interface reads JSON."""

    async def body(self) -> bytes:
        """The body, which is no JSON here."""
        return await self.received()

    async def filled_in(self, kind: type[A]) -> A:
        """The form that was sent."""
        return decode_query(await self.body(), kind)

    def searched(self, kind: type[A]) -> A:
        """What a form asks for by its address; fields that were left empty are not asked for."""
        try:
            pairs = parse_qsl(self.scope["query_string"].decode("ascii"), errors="strict")
        except ValueError:
            raise InvalidRequest("the address must be percent-encoded UTF-8") from None
        filled = [(name, value) for name, value in pairs if value.strip()]
        return decode_query(urlencode(filled).encode(), kind)


async def refuse_foreign(request: Request[Any, Any, Any]) -> None:
    """Only forms that stand on our own pages may change anything."""
    if request.method == "POST" and not _is_ours(request):
        raise ForeignForm
    refuse_unserved(request)


def _is_ours(request: Request[Any, Any, Any]) -> bool:
    """Browsers say which site a form stands on: with TLS and on this machine by Sec-Fetch-Site, and always by Origin.
    The schemes are not compared, since a proxy may have ended TLS."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    try:
        origin = urlsplit(request.headers.get("Origin", ""))
    except ValueError:
        return False
    return bool(origin.netloc) and origin.netloc.lower() == request.headers.get("Host", "").lower()
