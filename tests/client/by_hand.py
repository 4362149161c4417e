"""Flows carried out by hand: a script of what comes back, a clock that only moves when a flow pauses or a try takes
its time, and dice that always fall the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from app.client.errors import Unavailable
from app.client.exchange import Operation, Pause, Request, Response, Send
from app.client.retry import Backoff, Terms

T = TypeVar("T")

LOST = Unavailable("the connection was lost", in_doubt=True)
NOT_SENT = Unavailable("cannot be reached", in_doubt=False)


def answer(status: int, body: object = None, **headers: str) -> Response:
    """A response with that JSON, or those bytes."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, encoded)


def error(status: int, sentence: str = "no", **headers: str) -> Response:
    """An error in Fairlane's words."""
    return answer(status, {"error": sentence, "details": []}, **headers)


@dataclass
class Late:
    """What comes back only after so many seconds, or never."""

    what: Response | Unavailable
    sec: float


@dataclass
class Hand:
    """Carries out a flow. `sent` is what was to be sent, `timeouts` and `pauses` are in seconds; each pause takes
    `oversleeps` seconds more than it should."""

    script: Iterable[Response | Unavailable | Late]
    dice: float = 0.5
    oversleeps: float = 0.0
    now: float = 1000.0
    sent: list[Request] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def terms(self, **terms: Any) -> Terms:
        """Terms whose time is the one here."""
        usual: dict[str, Any] = {"deadline_sec": 60.0, "try_sec": 10.0, "backoff": Backoff(1.0, 8.0)}
        return Terms(now=lambda: self.now, dice=lambda: self.dice, **(usual | terms))

    def carry_out(self, operation: Operation[T], **terms: Any) -> T:
        """Its result; raises what it raises."""
        flow, script = operation.flow(self.terms(**terms)), iter(self.script)
        try:
            step: Send | Pause = next(flow)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.sec)
                    self.now += step.sec + self.oversleeps
                    step = flow.send(None)
                    continue
                self.sent.append(step.request)
                self.timeouts.append(step.timeout_sec)
                came = next(script)
                if isinstance(came, Late):
                    self.now += min(came.sec, step.timeout_sec)
                    came = came.what if came.sec < step.timeout_sec else Unavailable("no answer", in_doubt=True)
                if isinstance(came, Unavailable):  # a new one each time, for a flow adds to what it knows of it
                    step = flow.throw(Unavailable(str(came), in_doubt=came.in_doubt))
                else:
                    step = flow.send(came)
        except StopIteration as end:
            result: T = end.value
            return result
