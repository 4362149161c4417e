"""Builds the HTTP application: Litestar with the handlers of this folder, and the front before it."""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from litestar import Litestar, Request
from litestar.datastructures import State
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.router import Router

from app.api import events, jobs, keys, replicas, service, tenants, workers
from app.api.access import Gate, require_every_route
from app.api.document import KEY_SCHEME, Document
from app.api.elsewhere import ANYWHERE, Elsewhere, HandOn
from app.api.errors import NoSuchPath, error_handler
from app.api.front import Front
from app.api.guards import refuse_unread
from app.api.page.routes import page_routes
from app.api.request import CheckedRequest
from app.events import Emit
from app.flow.core import Core

_BODY_BYTES: Final = 1024 * 1024
_DOCUMENT_PATH: Final = "/schema"
_HANDLERS: Final = (
    *jobs.HANDLERS,
    *workers.HANDLERS,
    *tenants.HANDLERS,
    *events.HANDLERS,
    *service.HANDLERS,
    *keys.HANDLERS,
    *replicas.HANDLERS,
)


def create_app(core: Core, emit: Emit, scrape: service.Scrape = service.nothing_measured) -> Front:
    """A whole application. It takes no part in the lifespan: `core` is started and stopped by who built it.
    `scrape` is asked for the metrics."""
    return Front(create_litestar(core, emit, scrape), emit, core.clock, core.settings.hosts)


def create_litestar(
    core: Core, emit: Emit, scrape: service.Scrape = service.nothing_measured, hand_on: HandOn | None = None
) -> Litestar:
    """The application behind the front. `hand_on` takes what only who dispatches can answer, where `core` does not."""
    app = Litestar(
        [*map(copy, _HANDLERS), page_routes(core, emit)],  # each would keep the last application that it was given to
        before_request=refuse_unread,
        debug=False,
        dependencies={
            "scrape": Provide(lambda: scrape, sync_to_thread=False),
        },
        exception_handlers={Exception: error_handler(emit)},
        logging_config=None,
        middleware=[Gate] if hand_on is None else [Gate, partial(Elsewhere, hand_on=hand_on)],
        openapi_config=_document(),
        pdb_on_exception=False,
        request_class=CheckedRequest,
        request_max_body_size=_BODY_BYTES,
        state=State({"core": core, "long_bodies": asyncio.Lock()}),  # one at a time: 16 MiB may decode to half a GiB
    )
    require_every_route(app)
    return app


def _document() -> OpenAPIConfig:
    return OpenAPIConfig(
        components=Components(security_schemes={KEY_SCHEME: SecurityScheme(type="http", scheme="bearer")}),
        title="Fairlane",
        version=version("fairlane"),
        openapi_router=Router(
            _DOCUMENT_PATH,
            route_handlers=[],
            include_in_schema=False,
            before_request=_only_the_document,
            opt={ANYWHERE: True},
        ),
        operation_id_creator=lambda handler, _, __: handler.handler_name,
        render_plugins=[Document()],
        use_handler_docstrings=True,
    )


async def _only_the_document(request: Request[Any, Any, Any]) -> None:
    if request.scope["path"] != _DOCUMENT_PATH:  # Litestar would answer in HTML
        raise NoSuchPath
    await refuse_unread(request)
