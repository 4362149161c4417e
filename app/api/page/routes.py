"""Puts the page together."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from http import HTTPStatus
from typing import Any, Final

from litestar import Request, Response, Router
from litestar.di import Provide
from litestar.response import Redirect

from app.api.access import BY_COOKIE
from app.api.errors import response_to
from app.api.page import assets, bell, doing, login, looking
from app.api.page.explanations import Explanations
from app.api.page.login import to_login
from app.api.page.overview import front_page
from app.api.page.render import page
from app.api.page.request import PageRequest, refuse_foreign
from app.api.page.shared import Shared
from app.api.trace import request_failed
from app.errors import NoKey
from app.events import Emit
from app.flow.core import Core
from app.keys import ANYONE

_FORM_BYTES: Final = 16 * 1024
_HANDLERS: Final = (
    assets.get_asset,
    bell.ring_on_changes,
    looking.show_overview,
    looking.find_jobs,
    looking.show_job,
    looking.show_tenant,
    looking.show_queue,
    doing.ask_to_cancel,
    doing.cancel_job,
    doing.ask_to_retry,
    doing.retry_job,
    doing.ask_to_switch_tenant,
    doing.switch_tenant,
    doing.ask_to_weigh,
    doing.weigh,
    doing.ask_to_switch_queue,
    doing.switch_queue,
    login.ask_for_key,
    login.log_in,
    login.log_out,
)


def page_routes(core: Core, emit: Emit) -> Router:
    """The page of this service."""
    shared, explanations = Shared(lambda: front_page(core), core.clock), Explanations(core)
    return Router(
        "/",
        route_handlers=[*map(copy, _HANDLERS)],  # each would keep the last router that it was given to, and its core
        before_request=refuse_foreign,
        dependencies={
            "front_page": Provide(lambda: shared, sync_to_thread=False),
            "explanations": Provide(lambda: explanations, sync_to_thread=False),
        },
        opt={BY_COOKIE: True},
        exception_handlers={Exception: _error_page(emit)},
        request_class=PageRequest,
        request_max_body_size=_FORM_BYTES,
    )


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.capitalize()
    except ValueError:  # 499: nobody reads it
        return "Error"


def _error_page(emit: Emit) -> Callable[[Request[Any, Any, Any], Exception], Response[str] | Redirect]:
    """The same errors as those of the interface, for people."""

    def handle(request: Request[Any, Any, Any], error: Exception) -> Response[str] | Redirect:
        if isinstance(error, NoKey):
            return to_login(request)
        response = response_to(error)
        if response.is_our_fault:
            emit(request_failed(request.scope, error))
        title = _title(response.status)
        answer = page(
            "error.html",
            request.scope.get("auth") or ANYONE,
            status=response.status,
            title=title,
            sentence=response.sentence,
        )
        answer.headers = {**answer.headers, **response.headers}
        return answer

    return handle
