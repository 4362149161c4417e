"""A worker's leases by its own clock: numbers in, a decision out."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from app.client.leases import Leases
from app.client.wire import Hold

A, B = Hold("a", "1"), Hold("b", "2")


def test_a_lease_counts_from_before_the_claim_was_sent() -> None:
    leases = Leases(30)
    leases.take(A, sent_at=100)
    assert leases.beat_due_at() == 110
    assert leases.first_ends_at() == 130
    assert leases.lapsed(129.9) == []
    assert leases.lapsed(130) == [A]


def test_a_heartbeat_counts_from_before_it_was_sent_and_for_those_still_held() -> None:
    leases = Leases(30)
    leases.take(A, 100)
    leases.renew([A, B], sent_at=110)
    assert leases.ends_at(A) == 140
    assert B not in leases
    leases.drop(A)
    leases.renew([A], sent_at=120)
    assert len(leases) == 0


def test_an_answer_that_comes_late_shortens_nothing() -> None:
    leases = Leases(30)
    leases.take(A, 100)
    leases.renew([A], 120)
    leases.renew([A], 110)
    assert leases.ends_at(A) == 150


def test_the_oldest_decides_when_to_beat_for_all() -> None:
    leases = Leases(30)
    leases.take(A, 100)
    leases.take(B, 105)
    assert leases.all() == [A, B]
    assert leases.beat_due_at() == 110
    leases.drop(A)
    leases.drop(A)
    assert leases.beat_due_at() == 115
    assert leases.ends_at(A) == -inf


def test_without_leases_nothing_is_due() -> None:
    leases = Leases(30)
    assert leases.beat_due_at() == leases.first_ends_at() == inf
    assert leases.lapsed(1e12) == []


DELAY = st.floats(0, 60)


@given(
    lease_sec=st.integers(3, 3600),
    claim=st.tuples(DELAY, DELAY),
    beats=st.lists(st.tuples(DELAY, DELAY, DELAY)),
)
def test_a_lease_never_outlasts_that_of_the_service(
    lease_sec: int, claim: tuple[float, float], beats: list[tuple[float, float, float]]
) -> None:
    """However long a request was under way, was held back by the service, and its answer took."""
    leases = Leases(lease_sec)
    sent_at = 0.0
    to_service, back = claim
    service_ends_at = sent_at + to_service + lease_sec
    leases.take(A, sent_at)
    now = sent_at + to_service + back
    for pause, to_service, back in beats:
        assert leases.ends_at(A) <= service_ends_at
        sent_at = now + pause
        if sent_at + to_service >= service_ends_at:
            return  # it comes too late; the answer is a refusal
        service_ends_at = sent_at + to_service + lease_sec
        now = sent_at + to_service + back
        leases.renew([A], sent_at)
    assert leases.ends_at(A) <= service_ends_at
