"""Errors and what they become on the wire."""

from __future__ import annotations

import json

import pytest

from app.api.errors import BodyTooLarge, ClientGone, HeadersTooLarge, NoSuchPath, NotJson, WrongMethod, response_to
from app.errors import (
    Conflict,
    DispatchLost,
    FieldError,
    IllegalMove,
    InvalidRequest,
    KeyReused,
    LeaseLost,
    NotFound,
    RateLimited,
    TooManyQueued,
    Unavailable,
)


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (InvalidRequest("bad"), 400, {}),
        (NotFound("job"), 404, {}),
        (NoSuchPath(), 404, {}),
        (WrongMethod("GET, POST"), 405, {"allow": "GET, POST"}),
        (Conflict("the job is completed", "completed"), 409, {}),
        (LeaseLost("running"), 409, {}),
        (BodyTooLarge(), 413, {}),
        (NotJson(), 415, {}),
        (KeyReused("k"), 422, {}),
        (RateLimited("acme", 7), 429, {"retry-after": "7"}),
        (TooManyQueued("acme", 5), 429, {}),
        (HeadersTooLarge(), 431, {}),
        (ClientGone(), 499, {}),
        (Unavailable("away", 3), 503, {"retry-after": "3"}),
        (DispatchLost("lost"), 503, {"retry-after": "1"}),
    ],
    ids=lambda of: type(of).__name__ if isinstance(of, Exception) else None,
)
def test_each_error_has_its_status(error: Exception, status: int, headers: dict[str, str]) -> None:
    response = response_to(error)
    assert (response.status, response.headers) == (status, headers)
    assert json.loads(response.body) == {"error": str(error), "details": []}
    assert not response.is_our_fault


@pytest.mark.parametrize("error", [ValueError("secret"), IllegalMove("a", "b"), TimeoutError(), KeyError("x")])
def test_what_nobody_foresaw_is_a_fault_of_ours(error: Exception) -> None:
    response = response_to(error)
    assert response.status == 500
    assert response.is_our_fault
    assert (str(error) or "Timeout") not in response.body.decode()


def test_details_name_every_field() -> None:
    error = InvalidRequest("a is bad", [FieldError("a", "is bad"), FieldError("b", "is \u2028 worse")])
    assert json.loads(response_to(error).body) == {
        "error": "a is bad",
        "details": [{"field": "a", "message": "is bad"}, {"field": "b", "message": "is \u2028 worse"}],
    }
