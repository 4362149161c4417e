"""What each call sends and how its answer is read; walks, waits and batches, carried out by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from app.client import calls
from app.client.calls import MOST_BYTES, next_cursor, packed, poll_pause
from app.client.errors import DeadlineExceeded, InvalidRequest, NotFound, Unavailable, UnexpectedAnswer
from app.client.exchange import Call
from app.client.wire import Attempt, ClaimedJob, Completed, Failed, Hold, Job, JobPage, Lease, NewJob, State
from tests.client.by_hand import LOST, NOT_SENT, Hand, Late, answer, error

ID = "0" * 32
HOLD = Hold(ID, "secret")
NOW = "2030-01-31T09:30:00.000001Z"
JOB: dict[str, Any] = {
    "id": ID,
    "tenant": "acme",
    "test_suite": "suite",
    "queue": "default",
    "priority": 0,
    "effective_priority": 0,
    "cost": 1,
    "state": "queued",
    "delay_sec": 0,
    "payload": None,
    "attempt": 0,
    "max_attempts": 3,
    "timeout_sec": None,
    "submitted_at": NOW,
    "run_at": NOW,
    "queued_at": NOW,
    "scheduled_at": None,
    "started_at": None,
    "completed_at": None,
    "worker": None,
    "lease_expires_at": None,
    "progress": None,
    "result": None,
    "error": None,
    "retry_of": None,
}


def sent_by(call: Call[Any]) -> tuple[str, str, Any]:
    """Method, path and JSON."""
    request = call.request
    if request.body is not None:
        assert request.headers["content-type"] == "application/json"
    return request.method, request.path, request.body and json.decode(request.body)


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        (calls.submit("acme", "suite"), "POST", "/jobs", {"tenant": "acme", "test_suite": "suite"}),
        (calls.get_job(ID), "GET", f"/jobs/{ID}", None),
        (calls.list_jobs(), "GET", "/jobs", None),
        (calls.list_attempts(ID), "GET", f"/jobs/{ID}/attempts", None),
        (calls.cancel_job(ID), "POST", f"/jobs/{ID}/cancel", None),
        (calls.cancel_jobs("acme"), "POST", "/jobs/cancel", {"tenant": "acme"}),
        (
            calls.cancel_jobs("acme", queue="q", test_suite="s", state=State.QUEUED),
            "POST",
            "/jobs/cancel",
            {"tenant": "acme", "queue": "q", "test_suite": "s", "state": "queued"},
        ),
        (calls.patch_job(ID, priority=3), "PATCH", f"/jobs/{ID}", {"priority": 3}),
        (calls.retry_job(ID), "POST", f"/jobs/{ID}/retry", None),
        (calls.stats(), "GET", "/stats", None),
        (
            calls.claim("w"),
            "POST",
            "/jobs/claim",
            {"worker": "w", "queues": ["default"], "limit": 1, "lease_sec": 30, "wait_sec": 0, "start": False},
        ),
        (calls.start(HOLD), "POST", f"/jobs/{ID}/start", {"token": "secret"}),
        (calls.heartbeat(HOLD), "POST", f"/jobs/{ID}/heartbeat", {"token": "secret"}),
        (
            calls.heartbeat(HOLD, lease_sec=9, progress=0.0),
            "POST",
            f"/jobs/{ID}/heartbeat",
            {"token": "secret", "lease_sec": 9, "progress": 0.0},
        ),
        (calls.heartbeat_all([HOLD]), "POST", "/jobs/heartbeat", {"leases": [{"id": ID, "token": "secret"}]}),
        (calls.complete(HOLD, [1]), "POST", f"/jobs/{ID}/complete", {"token": "secret", "result": [1]}),
        (calls.fail(HOLD, "no"), "POST", f"/jobs/{ID}/fail", {"token": "secret", "error": "no", "retry": True}),
        (calls.release(HOLD), "POST", f"/jobs/{ID}/release", {"token": "secret"}),
        (
            calls.finish([Completed(ID, "a", result=1), Failed(ID, "b", error="no", retry=False)]),
            "POST",
            "/jobs/finish",
            {
                "results": [
                    {"id": ID, "token": "a", "outcome": "completed", "result": 1},
                    {"id": ID, "token": "b", "outcome": "failed", "error": "no", "retry": False},
                ]
            },
        ),
        (calls.list_tenants(), "GET", "/tenants", None),
        (calls.get_tenant("acme"), "GET", "/tenants/acme", None),
        (
            calls.put_tenant("acme", weight=2, rate_per_sec=None),
            "PUT",
            "/tenants/acme",
            {"weight": 2, "rate_per_sec": None, "max_running": None, "max_queued": None, "paused": False},
        ),
        (calls.patch_tenant("acme", max_running=None), "PATCH", "/tenants/acme", {"max_running": None}),
        (calls.erase_tenant("acme", dry_run=True), "POST", "/tenants/acme/erase", {"dry_run": True}),
        (calls.list_queues(), "GET", "/queues", None),
        (calls.list_replicas(), "GET", "/replicas", None),
        (calls.put_queue("q", paused=True), "PUT", "/queues/q", {"paused": True}),
    ],
)
def test_each_call_is_one_request(call: Call[Any], method: str, path: str, body: Any) -> None:
    assert sent_by(call) == (method, path, body)


def test_only_calls_that_make_something_new_each_time_are_not_repeatable() -> None:
    once: list[Call[Any]] = [calls.claim("w"), calls.retry_job(ID), calls.cancel_jobs("acme")]
    assert not any(call.is_repeatable for call in once)


def test_a_claim_waits_as_long_as_it_asks_the_service_to() -> None:
    assert calls.claim("w", wait_sec=20).wait_sec == 20


@given(st.text(min_size=1, max_size=20, alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_name_is_one_segment_of_the_path_whatever_it_is(name: str) -> None:
    path = calls.get_tenant(name).request.path
    segment = path.removeprefix("/tenants/")
    assert unquote(segment) == name
    assert not set(segment) & set("/?#.")


def test_a_job_is_submitted_with_all_that_was_asked_and_nothing_else() -> None:
    due = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    asked: dict[str, Any] = {
        "priority": 3,
        "run_at": due,
        "queue": "gpu",
        "payload": {"a": [1]},
        "cost": 2,
        "max_attempts": 1,
        "timeout_sec": 60,
    }
    _, _, body = sent_by(calls.submit("acme", "suite", **asked))
    assert body == asked | {"tenant": "acme", "test_suite": "suite", "run_at": "2030-01-01T12:00:00+05:00"}


def test_each_submit_has_a_key_of_its_own_and_keeps_it() -> None:
    one, other = calls.submit("acme", "suite"), calls.submit("acme", "suite")
    keys = [call.request.headers["idempotency-key"] for call in (one, other)]
    assert len(set(keys)) == 2
    assert all(len(key) == 32 for key in keys)
    hand = Hand([LOST, error(503), NOT_SENT, Late(LOST, 99), answer(200, JOB)])
    hand.carry_out(one)
    assert {request.headers["idempotency-key"] for request in hand.sent} == {keys[0]}


def test_a_key_of_the_callers_is_used() -> None:
    assert calls.submit("acme", "suite", idempotency_key="build-7").request.headers["idempotency-key"] == "build-7"


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "a\n", "a" * 256])
def test_a_key_that_no_header_can_carry_is_refused_here(key: str) -> None:
    with pytest.raises(InvalidRequest, match="Idempotency-Key must be") as caught:
        calls.submit("acme", "suite", idempotency_key=key)
    assert caught.value.details[0].field == "Idempotency-Key"


def test_an_answer_becomes_a_typed_job_and_what_a_newer_service_adds_is_ignored() -> None:
    job = Hand([answer(200, JOB | {"colour": "red", "labels": {"a": 1}})]).carry_out(calls.get_job(ID))
    assert job.state is State.QUEUED
    assert job.submitted_at == datetime(2030, 1, 31, 9, 30, 0, 1, tzinfo=UTC)
    assert not job.is_final


def test_a_field_that_is_missing_is_told() -> None:
    body = {name: value for name, value in JOB.items() if name != "state"}
    with pytest.raises(UnexpectedAnswer, match="state"):
        Hand([answer(200, body)]).carry_out(calls.get_job(ID))


def test_a_claim_gives_jobs_with_their_leases() -> None:
    lease = {"token": "secret", "expires_at": NOW, "heartbeat_sec": 10.0}
    [job] = Hand([answer(200, {"jobs": [JOB | {"lease": lease}]})]).carry_out(calls.claim("w"))
    assert isinstance(job, ClaimedJob)
    assert job.hold == HOLD


def test_no_token_is_shown() -> None:
    lease = Lease(token=HOLD.token, expires_at=datetime.now(UTC), heartbeat_sec=10.0)
    shown = [HOLD, lease, Completed(ID, "secret", result=1), Failed(ID, "secret", error="no")]
    assert not [each for each in shown if "secret" in repr(each) or "secret" in str(each)]


@pytest.mark.parametrize("make", [calls.heartbeat_all, calls.finish])
def test_bulk_answers_are_as_many_as_were_asked_for(make: Callable[[Any], Call[Any]]) -> None:
    item = {"id": ID, "ok": True, "state": "completed", "expires_at": NOW, "error": None}
    call = make([Completed(ID, "a"), Completed(ID, "b")])
    assert [each.ok for each in Hand([answer(200, {"results": [item, item]})]).carry_out(call)] == [True, True]
    with pytest.raises(UnexpectedAnswer, match="2 were asked"):
        Hand([answer(200, {"results": [item]})]).carry_out(call)


def test_attempts_are_read() -> None:
    attempt = {"number": 1, "worker": "w", "queued_at": NOW, "scheduled_at": NOW, "started_at": None, "ended_at": NOW}
    told = attempt | {"outcome": "timed out", "error": "timed out", "weight": 1, "cost": 1}
    [read] = Hand([answer(200, [told])]).carry_out(calls.list_attempts(ID))
    assert isinstance(read, Attempt)
    assert read.outcome == "timed out"


# --- pages


@pytest.mark.parametrize(
    ("link", "cursor"),
    [
        ('</jobs?limit=2&cursor=AQ-_x>; rel="next"', "AQ-_x"),
        ("<https://elsewhere.example/p/jobs?cursor=a%2Bb>; rel=next", "a+b"),
        ('</jobs?cursor=a>; rel="prev", </jobs?cursor=b>; rel="next"', "b"),
        ('</jobs?limit=2>; rel="next"', None),
        ('</jobs?cursor=a>; rel="prev"', None),
        ("", None),
        ("nonsense", None),
    ],
)
def test_only_the_cursor_is_taken_from_the_link_to_the_next_page(link: str, cursor: str | None) -> None:
    assert next_cursor({"link": link}) == cursor


def test_the_next_page_asks_for_the_same_with_another_cursor() -> None:
    call = calls.list_jobs(tenant="acme", state=State.FAILED, limit=2, order="asc")
    page = Hand([answer(200, [JOB], link='</jobs?cursor=xyz>; rel="next"')]).carry_out(call)
    following = calls.following(call, page)
    assert following is not None
    assert following.request.query == dict(call.request.query) | {"cursor": "xyz"}
    assert calls.following(call, JobPage(jobs=[], next_cursor=None)) is None


# --- waiting


def in_state(state: State) -> Any:
    return answer(200, JOB | {"state": state})


def test_a_wait_ends_with_the_job_whatever_its_end() -> None:
    for end in (State.COMPLETED, State.FAILED, State.CANCELLED):
        hand = Hand([in_state(State.QUEUED), in_state(State.RUNNING), in_state(State.PENDING), in_state(end)])
        job: Job = hand.carry_out(calls.wait_for(ID))
        assert job.state is end


@given(waited=st.floats(0, 1e9), dice=st.floats(0, 1, exclude_max=True))
def test_a_wait_looks_soon_after_a_short_time_and_seldom_after_a_long_one(waited: float, dice: float) -> None:
    assert 0.08 <= poll_pause(waited, dice) <= 5.0
    assert poll_pause(waited, dice) <= max(0.1, waited / 4)


def test_a_job_of_an_hour_costs_no_more_looks_than_one_every_few_seconds() -> None:
    hand = Hand([in_state(State.RUNNING)] * 1000)
    with pytest.raises(DeadlineExceeded, match="still running after 3600 s"):
        hand.carry_out(calls.wait_for(ID, 3600))
    assert 700 < len(hand.sent) < 850
    assert hand.now == pytest.approx(1000 + 3600)


def test_a_wait_has_a_last_look_when_its_time_is_up() -> None:
    hand = Hand([in_state(State.RUNNING), in_state(State.COMPLETED)], dice=0.0)
    assert hand.carry_out(calls.wait_for(ID, 0.01)).is_final


def test_a_wait_of_no_time_looks_once() -> None:
    hand = Hand([in_state(State.COMPLETED)])
    assert hand.carry_out(calls.wait_for(ID, 0)).is_final
    assert hand.timeouts == [10.0]
    with pytest.raises(DeadlineExceeded):
        Hand([in_state(State.QUEUED)]).carry_out(calls.wait_for(ID, 0))


def test_a_wait_rides_out_a_restart_and_no_more_than_the_deadline() -> None:
    hand = Hand([in_state(State.QUEUED), NOT_SENT, error(503), LOST, in_state(State.COMPLETED)])
    assert hand.carry_out(calls.wait_for(ID)).is_final
    with pytest.raises(Unavailable):
        Hand([in_state(State.QUEUED)] + [NOT_SENT] * 1000).carry_out(calls.wait_for(ID))


def test_a_wait_for_no_job_ends() -> None:
    with pytest.raises(NotFound):
        Hand([error(404, "job not found")]).carry_out(calls.wait_for(ID))


# --- batches


def new_jobs(many: int, **fields: Any) -> list[NewJob]:
    return [NewJob(tenant="acme", test_suite=f"suite{number}", **fields) for number in range(many)]


def test_a_new_job_has_its_key_from_the_beginning() -> None:
    jobs = new_jobs(2)
    first, again = (json.decode(calls.submit_batch(jobs).request.body or b"")["jobs"] for _ in range(2))
    assert first == again
    assert first[0]["idempotency_key"] != first[1]["idempotency_key"]
    assert "idempotency-key" not in calls.submit_batch(jobs).request.headers


def test_a_batch_that_is_too_large_is_not_split() -> None:
    with pytest.raises(InvalidRequest, match="submit_all splits"):
        calls.submit_batch(new_jobs(300, payload="x" * 60_000))


def test_any_number_of_jobs_goes_in_batches_one_after_the_other() -> None:
    hand = Hand([answer(201, {"ids": ["a", "b"]}), LOST, answer(200, {"ids": ["c", "d"]}), answer(201, {"ids": ["e"]})])
    assert hand.carry_out(calls.submit_all(iter(new_jobs(5)), at_once=2)) == ["a", "b", "c", "d", "e"]
    bodies = [json.decode(request.body or b"") for request in hand.sent]
    assert [[job["test_suite"] for job in body["jobs"]] for body in bodies] == [
        ["suite0", "suite1"],
        ["suite2", "suite3"],
        ["suite2", "suite3"],
        ["suite4"],
    ]
    assert {request.headers["prefer"] for request in hand.sent} == {"return=minimal"}


def test_the_deadline_is_that_of_each_batch() -> None:
    script: list[Any] = []
    for number in range(20):
        script += [NOT_SENT] * 4 + [answer(201, {"ids": [str(number)]})]
    hand = Hand(script)
    assert len(hand.carry_out(calls.submit_all(new_jobs(20), at_once=1), deadline_sec=10.0)) == 20
    assert hand.now > 1100


def test_an_error_says_which_batch_it_was() -> None:
    hand = Hand([answer(201, {"ids": ["a", "b"]}), error(400, "jobs[1]: priority must be 0-10")])
    with pytest.raises(InvalidRequest) as caught:
        hand.carry_out(calls.submit_all(new_jobs(5), at_once=2))
    assert "begins with job 2" in caught.value.__notes__[0]


def test_no_jobs_are_no_request() -> None:
    assert Hand([]).carry_out(calls.submit_all([])) == []


@pytest.mark.parametrize("at_once", [0, -1, 10_001])
def test_a_batch_cannot_be_of_any_size(at_once: int) -> None:
    with pytest.raises(ValueError, match="1-10000"):
        Hand([]).carry_out(calls.submit_all(new_jobs(1), at_once=at_once))


@given(sizes=st.lists(st.integers(1, 50)), most=st.integers(1, 10), most_bytes=st.integers(80, 200))
def test_packs_hold_all_in_order_and_no_more_than_they_may(sizes: list[int], most: int, most_bytes: int) -> None:
    items = [b"x" * size for size in sizes]
    packs = list(packed(items, len, most, most_bytes))
    assert [item for pack in packs for item in pack] == items
    for pack in packs:
        assert 1 <= len(pack) <= most
        assert len(pack) == 1 or len(b'{"results":[' + b",".join(pack) + b"]}") <= most_bytes


def test_a_full_pack_fits_into_what_the_service_takes() -> None:
    jobs = (json.encode(job) for job in new_jobs(600, payload="x" * 60_000))
    for pack in packed(jobs, len, 10_000):
        assert len(b'{"jobs":[' + b",".join(pack) + b"]}") <= MOST_BYTES
