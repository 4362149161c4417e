"""The door of the page: a key is shown once, and the browser keeps a login of its own that no script can read."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.response import Redirect

from app.api.access import SESSION, address_of
from app.api.errors import response_to
from app.api.page.forms import Login, Wish
from app.api.page.render import page, see
from app.api.page.request import PageRequest
from app.api.schemas import Nothing
from app.errors import FairlaneError, NoKey, NotAllowed, TooManyTries
from app.flow.access.admit import holder_of
from app.flow.access.issue import log_in as make_login
from app.flow.access.issue import log_out as end_login
from app.flow.core import Core
from app.keys import ANYONE, Holder, Key, Role

_LOGIN: Final = "/page/login"
_HOME: Final = "/"
_LONGEST: Final = 1000
_OURS: Final = re.compile(r"/(page/[!-\[\]-~]*)?")
"""A path of the page: never `//host` nor `/\\host`, which a browser takes for another site."""


@get(_LOGIN, include_in_schema=False)
async def ask_for_key(request: PageRequest) -> Response[str]:
    """A form for the key."""
    return _form(request.query(Wish).to, None)


@post(_LOGIN, tried_first=True, include_in_schema=False)
async def log_in(request: PageRequest) -> Response[Any]:
    """The browser is let in, if the key is good."""
    shown = await request.filled_in(Login)
    try:
        holder = await holder_of(request.core, shown.key.strip(), address_of(request))
        _refuse_who_has_no_page(holder)
    except (NoKey, NotAllowed, TooManyTries) as refusal:
        return _form(shown.to, refusal)
    key, ends = await make_login(request.core, holder)
    answer = see(_ours(shown.to))
    answer.set_cookie(
        Cookie(
            key=SESSION,
            value=key.text,
            max_age=max(1, int((ends - request.core.clock.shown()).total_seconds())),
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="lax",
        )
    )
    return answer


@post("/page/logout", tried_first=True, include_in_schema=False)
async def log_out(request: PageRequest) -> Redirect:
    """The login ends, here and on the service."""
    await request.filled_in(Nothing)
    key = Key.read(request.cookies.get(SESSION, ""))
    if key is not None:
        await _end(request.core, key, address_of(request))
    answer = see(_LOGIN)
    answer.delete_cookie(SESSION)
    return answer


def to_login(request: Request[Any, Any, Any]) -> Redirect:
    """Where those go who are not let in; from there they come to what they wanted to see, or to the form they sent."""
    wanted = _path(request.url.path, request.url.query) if request.method == "GET" else _came_from(request)
    return see(Wish(to=wanted if len(wanted) <= _LONGEST else _HOME).url(_LOGIN))


def _came_from(request: Request[Any, Any, Any]) -> str:
    """The page of ours on which the form stood: what cannot be done now can be asked for again there."""
    try:
        referrer = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return _HOME
    is_ours = referrer.netloc == request.headers.get("Host")
    return _ours(_path(referrer.path, referrer.query)) if is_ours else _HOME


def _path(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


async def _end(core: Core, key: Key, address: str) -> None:
    try:
        holder = await holder_of(core, key.text, address)
    except (NoKey, TooManyTries):  # it has ended already
        return
    await end_login(core, holder)


def _refuse_who_has_no_page(holder: Holder) -> None:
    if holder.grant.role not in (Role.READER, Role.ADMIN):
        raise NotAllowed(f"the page is for keys of readers and admins, and this one is a {holder.grant.role}'s")


def _form(to: str, refusal: FairlaneError | None) -> Response[str]:
    if refusal is None:
        return page("login.html", ANYONE, to=_ours(to), refusal="")
    sentence = "This key is not valid" if isinstance(refusal, NoKey) else str(refusal)
    told = response_to(refusal)
    answer = page("login.html", ANYONE, status=told.status, to=_ours(to), refusal=sentence)
    answer.headers = {**answer.headers, **told.headers}
    return answer


def _ours(to: str) -> str:
    return to if _OURS.fullmatch(to) else _HOME
