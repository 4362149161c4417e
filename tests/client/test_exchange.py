"""How one call is carried out: what its answers mean, when it is tried again, and when it is given up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import json

from app.client.errors import (
    Conflict,
    DeadlineExceeded,
    Denied,
    FairlaneError,
    FieldError,
    InvalidRequest,
    KeyReused,
    LeaseLost,
    NotFound,
    RateLimited,
    Refused,
    Unavailable,
    UnexpectedAnswer,
)
from app.client.exchange import Call, Request, Response, refusal, retry_after
from tests.client.by_hand import LOST, NOT_SENT, Hand, Late, answer, error

CALL: Call[Any] = Call(Request("GET", "/stats"), lambda response: json.decode(response.body, type=int))
ONCE = replace(CALL, is_repeatable=False)
DONE = answer(200, 7)
MANY = 1000


@pytest.mark.parametrize(
    ("status", "sentence", "kind"),
    [
        (400, "invalid JSON", InvalidRequest),
        (401, "no valid key", Denied),
        (403, "not for you", Denied),
        (404, "job not found", NotFound),
        (405, "this path takes GET", InvalidRequest),
        (408, "the body has not arrived", Unavailable),
        (409, "the job is completed already", Conflict),
        (409, "the lease is lost: the job is queued", LeaseLost),
        (413, "the body is too large", InvalidRequest),
        (415, "must be JSON", InvalidRequest),
        (422, "used before", KeyReused),
        (429, "too fast", RateLimited),
        (431, "headers too long", InvalidRequest),
        (500, "the service failed", UnexpectedAnswer),
        (502, "bad gateway", Unavailable),
        (503, "draining", Unavailable),
        (504, "gateway timeout", Unavailable),
        (418, "a teapot", UnexpectedAnswer),
        (302, "elsewhere", UnexpectedAnswer),
    ],
)
def test_each_status_is_an_error_of_its_own_with_the_sentence_of_the_service(
    status: int, sentence: str, kind: type[FairlaneError]
) -> None:
    failure = refusal(error(status, sentence))
    assert type(failure) is kind
    assert str(failure) == sentence
    assert not isinstance(failure, Refused) or failure.status == status


def test_the_details_name_every_bad_field() -> None:
    details = [{"field": "priority", "message": "must be 0-10"}, {"field": "cost", "message": "must be 1-1000"}]
    failure = refusal(answer(400, {"error": "priority must be 0-10", "details": details, "more": 1}))
    assert isinstance(failure, InvalidRequest)
    assert failure.details == (FieldError("priority", "must be 0-10"), FieldError("cost", "must be 1-1000"))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": 5}', b"\xff\xfe", b'{"detail": "no"}', b"[" * 5000]
)
@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_an_error_in_other_words_is_not_taken_for_one_of_fairlane(status: int, body: bytes) -> None:
    failure = refusal(Response(status, {}, body))
    assert isinstance(failure, UnexpectedAnswer)
    assert failure.status == status
    assert str(status) in str(failure)


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_proxy_that_asks_for_patience_is_heard_whatever_its_words(status: int) -> None:
    failure = refusal(Response(status, {"retry-after": "3"}, b"<html>"))
    assert isinstance(failure, RateLimited | Unavailable)
    assert failure.retry_after == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("Wed, 21 Oct 2037 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_whole_seconds_or_nothing(text: str, seconds: int | None) -> None:
    assert retry_after(Response(503, {"retry-after": text}, b"")) == seconds


def test_an_answer_is_the_result() -> None:
    hand = Hand([DONE])
    assert hand.carry_out(CALL) == 7
    assert hand.pauses == []


@pytest.mark.parametrize("body", [b"", b"<html>", b'"seven"', b"7 8", b"\xff", b"[" * 100_000])
def test_a_garbled_answer_is_told_and_not_tried_again(body: bytes) -> None:
    hand = Hand([answer(200, body)])
    with pytest.raises(UnexpectedAnswer, match="GET /stats"):
        hand.carry_out(CALL)
    assert len(hand.sent) == 1


def test_what_fails_in_passing_is_tried_again_until_it_is_answered() -> None:
    hand = Hand([NOT_SENT, LOST, error(503), error(429), answer(502, b""), Late(LOST, 99), DONE])
    assert hand.carry_out(CALL) == 7
    assert len(set(map(id, hand.sent))) == 1
    assert hand.pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_the_time_that_the_service_names_is_kept_and_the_jitter_comes_on_top() -> None:
    hand = Hand([error(429, retry_after="3"), error(503, retry_after="2"), DONE])
    assert hand.carry_out(CALL) == 7
    assert hand.pauses == [3.5, 3.0]


@pytest.mark.parametrize("came", [LOST, error(503), answer(504, b""), Late(LOST, 99)])
def test_a_call_that_must_not_be_sent_twice_is_not_when_it_may_have_been_done(came: Any) -> None:
    hand = Hand([came, DONE])
    with pytest.raises(Unavailable) as caught:
        hand.carry_out(ONCE)
    assert caught.value.in_doubt
    assert len(hand.sent) == 1


def test_but_it_is_when_nothing_can_have_been_done() -> None:
    hand = Hand([NOT_SENT, error(429, retry_after="1"), DONE])
    assert hand.carry_out(ONCE) == 7


def test_with_one_try_the_first_failure_is_the_last() -> None:
    hand = Hand([NOT_SENT, DONE])
    with pytest.raises(Unavailable):
        hand.carry_out(CALL, most_tries=1)


def test_a_time_beyond_the_deadline_is_not_waited_for() -> None:
    hand = Hand([error(429, "acme submits too fast", retry_after="61")])
    with pytest.raises(RateLimited, match="acme") as caught:
        hand.carry_out(CALL)
    assert caught.value.retry_after == 61
    assert hand.pauses == []


def test_at_the_deadline_the_last_failure_is_told_and_how_often_it_was_tried() -> None:
    hand = Hand([NOT_SENT] * MANY)
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        hand.carry_out(CALL)
    assert hand.now <= 1060
    assert caught.value.__notes__[-1] == f"given up after {len(hand.sent)} tries"


def test_no_try_outlasts_the_deadline() -> None:
    hand = Hand([Late(LOST, 99)] * MANY)
    with pytest.raises(DeadlineExceeded) as caught:
        hand.carry_out(CALL, deadline_sec=25.0)
    assert hand.timeouts == [10.0, 10.0, pytest.approx(3.5)]
    assert hand.now == pytest.approx(1025.0)
    assert caught.value.in_doubt
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, Unavailable)


def test_a_pause_that_takes_longer_than_it_should_may_use_up_the_time() -> None:
    hand = Hand([NOT_SENT, LOST, DONE], oversleeps=12.4)
    with pytest.raises(Unavailable, match="the connection was lost") as caught:
        hand.carry_out(CALL, deadline_sec=25.0)
    assert caught.value.in_doubt
    assert caught.value.__notes__ == ["given up after 2 tries"]
    assert len(hand.sent) == 2


@pytest.mark.parametrize("deadline_sec", [0.0, -1.0, 1e-9])
def test_even_without_time_there_is_one_try_with_some(deadline_sec: float) -> None:
    hand = Hand([DONE])
    assert hand.carry_out(CALL, deadline_sec=deadline_sec) == 7
    assert hand.timeouts[0] > 0


def test_without_a_deadline_it_is_tried_for_ever() -> None:
    hand = Hand([LOST] * MANY + [DONE])
    assert hand.carry_out(CALL, deadline_sec=None) == 7


def test_what_the_service_is_asked_to_wait_lengthens_the_try_and_the_deadline() -> None:
    hand = Hand([Late(DONE, 25.0)])
    assert hand.carry_out(replace(CALL, wait_sec=20.0), deadline_sec=15.0) == 7
    assert hand.timeouts == [30.0]


def test_once_in_doubt_always_in_doubt() -> None:
    hand = Hand([LOST] + [NOT_SENT] * MANY)
    with pytest.raises(Unavailable) as caught:
        hand.carry_out(CALL)
    assert caught.value.in_doubt


def test_a_refusal_is_final() -> None:
    hand = Hand([error(503), error(404, "job not found")])
    with pytest.raises(NotFound, match="job not found"):
        hand.carry_out(CALL)
