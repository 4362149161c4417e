"""Who may call what: one table, which names every route there is, and the gate before all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.api.guards import is_job_id
from app.errors import NoKey, NotAllowed, NotFound
from app.flow.access.admit import holder_of
from app.flow.access.sight import require_job
from app.flow.core import Core
from app.keys import ANYONE, Holder, Role

SESSION: Final = "fairlane_session"
"""The cookie of a browser that has logged in. It is heeded on the page alone: a site that makes a browser call the
interface calls it without a key."""

BY_COOKIE: Final = "by_cookie"
"""Marks the routes of the page."""

ONLY_WHILE_SERVING: Final = "only_while_serving"
"""Marks, given to the route as a keyword, what brings new work: not while the service starts or drains."""

_EVERYBODY: Final = None
_ADMINS: Final = frozenset({Role.ADMIN})
_READERS: Final = frozenset({Role.READER, Role.ADMIN})
_TENANTS: Final = frozenset({Role.TENANT, Role.ADMIN})
_CURIOUS: Final = frozenset({Role.TENANT, Role.READER, Role.ADMIN})
_WORKERS: Final = frozenset({Role.WORKER, Role.ADMIN})

MAY_CALL: Final[Mapping[str, frozenset[Role] | None]] = {
    "GET /health/live": _EVERYBODY,
    "GET /health/ready": _EVERYBODY,
    "GET /schema": _EVERYBODY,
    "GET /schema/openapi.json": _EVERYBODY,  # Litestar's own; nothing is served there
    "GET /schema/{path}": _EVERYBODY,
    "POST /jobs": _TENANTS,
    "POST /jobs/batch": _TENANTS,
    "GET /jobs": _CURIOUS,
    "GET /jobs/{job_id}": _CURIOUS,
    "GET /jobs/{job_id}/attempts": _CURIOUS,
    "GET /jobs/{job_id}/explain": _CURIOUS,
    "PATCH /jobs/{job_id}": _TENANTS,
    "POST /jobs/{job_id}/cancel": _TENANTS,
    "POST /jobs/{job_id}/retry": _TENANTS,
    "POST /jobs/cancel": _TENANTS,
    "POST /jobs/claim": _WORKERS,
    "POST /jobs/{job_id}/start": _WORKERS,
    "POST /jobs/{job_id}/heartbeat": _WORKERS,
    "POST /jobs/{job_id}/complete": _WORKERS,
    "POST /jobs/{job_id}/fail": _WORKERS,
    "POST /jobs/{job_id}/release": _WORKERS,
    "POST /jobs/finish": _WORKERS,
    "POST /jobs/heartbeat": _WORKERS,
    "GET /tenants": _CURIOUS,
    "GET /tenants/{name}": _CURIOUS,
    "PUT /tenants/{name}": _ADMINS,
    "PATCH /tenants/{name}": _ADMINS,
    "POST /tenants/{name}/erase": _ADMINS,
    "GET /queues": _READERS,
    "PUT /queues/{name}": _ADMINS,
    "GET /stats": _READERS,
    "GET /events": _CURIOUS,
    "GET /metrics": _READERS,
    "GET /replicas": _READERS,
    "POST /keys": _ADMINS,
    "GET /keys": _ADMINS,
    "DELETE /keys/{key_id}": _ADMINS,
    "GET /page/static/{version}/{name}": _EVERYBODY,
    "GET /page/login": _EVERYBODY,
    "POST /page/login": _EVERYBODY,
    "POST /page/logout": _EVERYBODY,
    "GET /": _READERS,
    "GET /page/changes": _READERS,
    "GET /page/jobs": _READERS,
    "GET /page/jobs/{job_id}": _READERS,
    "GET /page/tenant": _READERS,
    "GET /page/queue": _READERS,
    "GET /page/jobs/{job_id}/cancel": _ADMINS,
    "POST /page/jobs/{job_id}/cancel": _ADMINS,
    "GET /page/jobs/{job_id}/retry": _ADMINS,
    "POST /page/jobs/{job_id}/retry": _ADMINS,
    "GET /page/tenant/switch": _ADMINS,
    "POST /page/tenant/switch": _ADMINS,
    "GET /page/tenant/weight": _ADMINS,
    "POST /page/tenant/weight": _ADMINS,
    "GET /page/queue/switch": _ADMINS,
    "POST /page/queue/switch": _ADMINS,
}


class Gate:
    """The middleware before every route. (A guard would do, but Litestar copies the handler for each guard of each
    request, which is a tenth of a submit.)"""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `NoKey`, `TooManyTries`, `NotAllowed`, `NotFound` for what the holder must not see, and
        `Unavailable`; notes who it is as the request's `auth`."""
        core: Core = scope["litestar_app"].state.core
        http = cast("HTTPScope", scope)  # nothing else is served
        scope["auth"] = await _admitted(core, http) if core.settings.keys == "required" else ANYONE
        if scope["route_handler"].opt.get(ONLY_WHILE_SERVING):
            core.refuse_while_closed()
        await self._app(scope, receive, send)


async def _admitted(core: Core, scope: HTTPScope) -> Holder:
    if scope["method"] == "OPTIONS":
        return ANYONE
    roles = MAY_CALL[f"{scope['method']} {scope['path_template']}"]
    if roles is _EVERYBODY:
        return ANYONE
    connection = ASGIConnection[Any, Any, Any, Any](scope)
    holder = await holder_of(core, shown_key(connection, connection.route_handler), address_of(connection))
    if holder.grant.role not in roles:
        raise NotAllowed(f"a key of the role {holder.grant.role} may not do this")
    await _refuse_what_is_hidden(core, holder, connection.path_params)
    return holder


def shown_key(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> str | None:
    """The key that came with the request, if one did."""
    if handler.opt.get(BY_COOKIE) and (session := connection.cookies.get(SESSION)):
        return session
    given = connection.headers.getall("authorization", [])
    if len(given) > 1:
        raise NoKey
    scheme, _, key = "".join(given).partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def address_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Where the request came from, as far as the server can say."""
    return connection.client.host if connection.client else ""


def require_every_route(app: Litestar) -> None:
    """Raises `LookupError` if the table and the routes differ: a route that nobody has thought about is not served."""
    served = set(_routes(app))
    if served != MAY_CALL.keys():
        raise LookupError(f"routes without roles, or roles without routes: {sorted(served ^ MAY_CALL.keys())}")


def _routes(app: Litestar) -> Iterator[str]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            yield from (f"{method} {route.path_format}" for method in route.methods if method != "OPTIONS")


async def _refuse_what_is_hidden(core: Core, holder: Holder, named: Mapping[str, Any]) -> None:
    job_id = named.get("job_id")
    if job_id is not None and is_job_id(job_id):  # what can be no id is refused in a moment, by the same words
        await require_job(core, holder, job_id)
    if holder.tenant not in (None, named.get("name", holder.tenant)):
        raise NotFound("tenant")
