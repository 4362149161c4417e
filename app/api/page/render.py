"""From templates to answers. Everything is escaped, and what a page may load or run is its own files alone."""

from __future__ import annotations

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Response
from litestar.response import Redirect
from litestar.status_codes import HTTP_200_OK, HTTP_303_SEE_OTHER

from app.api.page import links, words
from app.api.page.assets import asset_url
from app.keys import Holder, Role

_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    # Not no-referrer: forms would then come without their origin, by which ours are told from others.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("app.api.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"asset_url": asset_url, "links": links, "between": words.between}
    made.filters |= {
        "moment": words.moment,
        "time_of_day": words.time_of_day,
        "duration": words.duration,
        "percent": words.percent,
        "number": words.number,
        "pretty": words.pretty,
        "sentence": words.sentence,
    }
    return made


_ENVIRONMENT: Final = _environment()


def render(template: str, **shown: Any) -> str:
    """The template as HTML."""
    return _ENVIRONMENT.get_template(template).render(shown)


def page(template: str, holder: Holder, *, status: int = HTTP_200_OK, **shown: Any) -> Response[str]:
    """The template as an answer to `holder`, who is offered only what it may do."""
    may = {"may_log_out": holder.key_id is not None, "may_change": holder.grant.role is Role.ADMIN}
    return html(render(template, **may, **shown), status=status)


def html(text: str, *, status: int = HTTP_200_OK) -> Response[str]:
    """HTML as an answer."""
    return Response(text, status_code=status, media_type=MediaType.HTML, headers=HEADERS)


def see(url: str) -> Redirect:
    """Something was done; the page that shows it is elsewhere, so that loading it again does nothing twice."""
    return Redirect(url, status_code=HTTP_303_SEE_OTHER, headers=HEADERS)
