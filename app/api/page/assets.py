"""The page's own files: a style sheet, a script, an icon. Each is served under a name that changes with its content,
so that browsers may keep it for ever."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Final

from litestar import Response, get
from litestar.params import FromPath

from app.api.errors import NoSuchPath

_TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    content: bytes
    media_type: str
    url: str


def _read(name: str) -> _Asset:
    content = files("app.api.page").joinpath("static", name).read_bytes()
    return _Asset(content, _TYPES[name], f"/page/static/{sha256(content).hexdigest()[:16]}/{name}")


_ASSETS: Final = {name: _read(name) for name in _TYPES}
_BY_URL: Final = {asset.url: asset for asset in _ASSETS.values()}


def asset_url(name: str) -> str:
    """Where a page finds it."""
    return _ASSETS[name].url


@get("/page/static/{version:str}/{name:str}", answered_anywhere=True, include_in_schema=False)
async def get_asset(version: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """One of the page's files."""
    asset = _BY_URL.get(f"/page/static/{version}/{name}")
    if asset is None:
        raise NoSuchPath
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(asset.content, media_type=asset.media_type, headers=headers)
