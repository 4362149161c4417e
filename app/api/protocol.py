"""HTTP/1.1 as uvicorn speaks it, but that what cannot be parsed is refused in our words, that no head is read without
an end, and that whoever would rather speak another protocol is answered in this one, as RFC 9110 allows (7.8)."""

from __future__ import annotations

import sys
from typing import Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.errors import HeadersTooLarge, response_to
from app.errors import FairlaneError, InvalidRequest

_MOST_UNTOLD: Final = 64 * 1024
"""Bytes of which the parser has told nothing: of a head, or of what stands behind a body, that does not end. The front
judges whole heads, and is stricter."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    _data = b""
    _untold = 0
    _is_read_again = False

    @property
    def has_said_nothing(self) -> bool:
        """Whether no request has come on it yet."""
        return self.cycle is None

    def data_received(self, data: bytes) -> None:
        self._data = data
        self._untold += len(data)
        super().data_received(data)
        if self._untold > _MOST_UNTOLD:
            self._refuse(HeadersTooLarge())

    def on_headers_complete(self) -> None:
        self._untold = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._untold = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._untold = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self._refuse(InvalidRequest("this cannot be read as a request of HTTP/1.1"))

    def _refuse(self, error: FairlaneError) -> None:
        response = response_to(error)
        head = f"HTTP/1.1 {response.status} \r\ncontent-type: application/json\r\ncontent-length: {len(response.body)}"
        self.transport.write(head.encode() + b"\r\nconnection: close\r\n\r\n" + response.body)
        self.transport.close()

    # Java's client asks for HTTP/2 with its first request, the body behind it. The parser then takes all that follows
    # for the other protocol, and uvicorn answers as if there were no body. So that request is read again, without its
    # wish.

    def _should_upgrade(self) -> bool:
        return True  # uvicorn does nothing yet but to call what follows

    def handle_websocket_upgrade(self) -> None:
        upgrade = sys.exc_info()[1]
        head = self._head_without_its_wish()
        if self._is_read_again or head is None or not isinstance(upgrade, httptools.HttpParserUpgrade):
            self.send_400_response("")
            return
        self.parser = httptools.HttpRequestParser(self)
        self._is_read_again = True
        self.data_received(head + self._data[upgrade.args[0] :])
        self._is_read_again = False

    def _head_without_its_wish(self) -> bytes | None:
        """None if it has none: CONNECT is one by its nature."""
        kept = [b": ".join(header) for header in self.headers if header[0] != b"upgrade"]
        if len(kept) == len(self.headers):
            return None
        version = self.parser.get_http_version().encode()
        request = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)
        return b"\r\n".join([request, *kept, b"", b""])
