"""Where time goes, for whoever traces it. The code opens spans by this protocol and knows no library; unless somebody
traces, they cost next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol


class Span(Protocol):
    """A stretch of work. Those opened within it, in the same task, are its children."""

    def link(self, other: Span) -> None:
        """Another span, of another trace perhaps, has to do with this one."""


class Spans(Protocol):
    """Opens spans. A payload, a token, a key or a client's text is no attribute."""

    def span(self, name: str, links: Sequence[Span] = (), **attributes: int | str) -> AbstractContextManager[Span]:
        """A span for the block; an error that leaves it is noted by its kind alone."""


class _NoSpan:
    def link(self, other: Span) -> None:
        """Nobody traces."""


class _NoSpans:
    def __init__(self) -> None:
        self._nothing = nullcontext(_NoSpan())

    def span(self, name: str, links: Sequence[Span] = (), **attributes: int | str) -> AbstractContextManager[Span]:  # noqa: ARG002 - nobody traces
        return self._nothing


NO_SPANS: Final[Spans] = _NoSpans()
"""Where nobody traces."""
