"""The checker is held against a history in which all is well, where it must find nothing, and against the same with one
thing spoiled at a time, where it must find that and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.scheduling.job import Outcome, State
from app.scheduling.scheduler import Policy
from tests.history.lives import changed_between
from tests.history.record import Fault, Watched
from tests.history.story import Spoil, Story, all_is_well, at
from tests.history.terms import Terms


def test_nothing_is_found_where_all_is_well() -> None:
    assert all_is_well().tell() == []


# -- one thing is spoiled


def a_row_is_gone(story: Story) -> None:
    del story.jobs["dan"]


def a_row_that_only_a_claim_has_seen_is_gone(story: Story) -> None:
    story.claim(40, "eve", 2, start=True, lease_sec=30)
    answer = story.history.calls[-1].answer
    answer["jobs"][0] |= {"id": "f" * 32}


def a_row_is_not_what_was_asked_for(story: Story) -> None:
    story.change("bob", payload={"n": 1})


def a_row_is_under_another_key(story: Story) -> None:
    story.call("submit", "bob").key = "bob"


def there_is_a_job_that_nobody_asked_for(story: Story) -> None:
    story.job("zoe", 55, state=State.PENDING, delay_sec=100, queued_at=None)


def there_is_a_job_that_was_refused(story: Story) -> None:
    story.job("zoe", 55, state=State.PENDING, delay_sec=100, queued_at=None, idempotency_key="zoe")
    story.say(55, "submit", status=429, key="zoe", tenant="acme", test_suite="zoe", delay_sec=100)


def there_are_more_jobs_than_were_retried(story: Story) -> None:
    story.job("zoe", 55, state=State.PENDING, delay_sec=100, queued_at=None, retry_of=story.id_of("dan"))


def a_key_has_two_jobs(story: Story) -> None:
    story.job("zoe", 55, state=State.PENDING, delay_sec=100, queued_at=None, idempotency_key="ada")


def a_key_was_answered_as_new_twice(story: Story) -> None:
    story.submit(1.2, "ada")


def a_key_was_answered_with_two_jobs(story: Story) -> None:
    story.job("zoe", 55, test_suite="ada", state=State.PENDING, delay_sec=100, queued_at=None, idempotency_key="ada")
    story.submit(54.95, "zoe", delay_sec=100, test_suite="ada")
    story.history.calls[-1].status = 200


def a_completion_was_acknowledged_and_is_not_there(story: Story) -> None:
    story.say(40, "complete", "eve", token="eve-1")


def a_start_was_acknowledged_and_is_not_there(story: Story) -> None:
    story.say(5.5, "start", "bob", token="bob-1")


def another_result_is_there(story: Story) -> None:
    story.call("complete", "ada").body["result"] = 8


def a_late_result_was_taken(story: Story) -> None:
    story.say(6.8, "complete", "bob", token="bob-1")


def what_was_taken_is_refused_when_said_again(story: Story) -> None:
    story.say(9, "complete", "ada", token="ada-1", status=409, answer={})


def a_client_got_a_500(story: Story) -> None:
    story.say(40, "look", status=500, answer={})


def a_client_was_told_that_its_job_is_not_there(story: Story) -> None:
    story.say(40, "look at a job", "ada", status=404, answer={})


def a_job_was_completed_and_nobody_said_so(story: Story) -> None:
    story.forget(story.call("complete", "ada"))


def a_job_was_cancelled_and_nobody_said_so(story: Story) -> None:
    story.forget(story.call("cancel", "dan"))


def a_lease_that_was_told_was_released_and_nobody_said_so(story: Story) -> None:
    story.forget(story.call("release", "bob"))


def a_setting_is_not_in_force(story: Story) -> None:
    story.tenants["acme"] = replace(story.tenants["acme"], weight=2)


def a_lease_was_given_twice(story: Story) -> None:
    story.claim(34, "eve", 1, client="v", start=True, lease_sec=30)


def a_job_was_given_away_while_its_lease_held(story: Story) -> None:
    """Sooner than a lapse may come; the lapse itself is told as early."""
    story.attempt("eve", 32, 33.05, 33.06, 34, Outcome.TIMED_OUT)
    story.change("eve", token="eve-2", attempt=2, queued_at=at(36.2), scheduled_at=at(37.05), started_at=at(37.06))
    story.claim(37, "eve", 2, start=True, lease_sec=30)


def an_attempt_begins_before_the_last_ends(story: Story) -> None:
    story.change_attempt("bob", 2, scheduled_at=at(6.1))


def a_lease_is_nowhere(story: Story) -> None:
    story.change_attempt("bob", 1, token="other")


def a_lease_lapsed_too_early(story: Story) -> None:
    story.change_attempt("bob", 1, ended_at=at(5.5))
    story.change_attempt("bob", 2, queued_at=at(5.5))


def a_lease_lapsed_in_spite_of_a_beat(story: Story) -> None:
    story.say(5.9, "heartbeat", "bob", token="bob-1", answer={})


def a_job_was_completed_that_never_ran(story: Story) -> None:
    story.change_attempt("ada", 1, started_at=None)


def a_stream_told_an_illegal_move(story: Story) -> None:
    story.history.watched.append(Watched("stream", story.id_of("ada"), "completed", "queued"))


def a_stream_told_moves_that_do_not_meet(story: Story) -> None:
    story.watch("bob", "queued", "scheduled")
    story.history.watched.append(Watched("stream", story.id_of("bob"), "queued", "cancelled"))


def an_attempt_is_counted_twice(story: Story) -> None:
    story.change("bob", attempt=2)


def an_attempt_has_no_number(story: Story) -> None:
    story.change_attempt("bob", 2, number=3)


def a_job_failed_with_attempts_left(story: Story) -> None:
    del story.call("fail", "cyd", 2).body["retry"]


def a_final_row_has_changed(story: Story) -> None:
    story.change("ada", worker="v")


def a_final_job_was_seen_at_work_again(story: Story) -> None:
    story.say(30, "look at a job", "ada", answer=story.call("submit", "ada").answer)


def a_job_was_queued_before_it_was_due(story: Story) -> None:
    story.change_attempt("cyd", 1, queued_at=at(11.9))


def a_job_was_due_before_its_delay(story: Story) -> None:
    story.change("cyd", due_at=at(11))


def a_job_came_back_before_its_backoff(story: Story) -> None:
    story.change_attempt("cyd", 2, queued_at=at(15.9))
    story.change("cyd", queued_at=at(15.9))
    story.show_again(story.call("fail", "cyd", 2), "cyd")


def an_attempt_timed_out_before_its_time(story: Story) -> None:
    story.change("cyd", timeout_sec=3)
    story.change_attempt("cyd", 1, outcome=Outcome.TIMED_OUT)
    story.call("submit", "cyd").body["timeout_sec"] = 3
    story.call("claim", "cyd").answer["jobs"][0]["timeout_sec"] = 3
    story.show_again(story.call("fail", "cyd", 2), "cyd")
    story.forget(story.call("fail", "cyd"))


def a_job_was_claimed_before_it_was_due(story: Story) -> None:
    story.call("claim", "cyd").returned_at = 11.8


def a_due_job_still_waits(story: Story) -> None:
    story.job("zoe", 30, state=State.PENDING, delay_sec=5, queued_at=None)
    story.submit(29.95, "zoe", delay_sec=5)


def a_due_job_was_queued_late(story: Story) -> None:
    story.job("zoe", 30, queue="late", delay_sec=5, queued_at=at(55))
    story.submit(29.95, "zoe", queue="late", delay_sec=5)


def a_job_came_out_before_a_more_urgent_one(story: Story) -> None:
    story.change("ada", priority=5)
    story.call("submit", "ada").body["priority"] = 5
    story.show_again(story.call("complete", "ada"), "ada")


def a_paused_tenant_was_served(story: Story) -> None:
    story.set_tenant(12.5, "acme", paused=True)
    story.set_tenant(12.9, "acme", paused=False)
    story.set_tenant(32.5, "acme", paused=True)
    story.set_tenant(34, "acme")


def a_cap_was_passed(story: Story) -> None:
    story.set_tenant(32.5, "acme", max_running=1)
    story.job("zoe", 34, queue="eves", state=State.RUNNING, attempt=1, token="zoe-1", scheduled_at=at(35.05))
    story.change("zoe", started_at=at(35.06), worker="w", lease_sec=30, charge=1_000_000, dispatch_weight=1)
    story.submit(33.95, "zoe", queue="eves")
    story.claim(35, "zoe", 1, start=True, lease_sec=30)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (a_row_is_gone, ["lost"]),
        (a_row_that_only_a_claim_has_seen_is_gone, ["lost"]),
        (a_row_is_not_what_was_asked_for, ["altered"]),
        (a_row_is_under_another_key, ["altered"]),
        (there_is_a_job_that_nobody_asked_for, ["unasked"]),
        (there_is_a_job_that_was_refused, ["unasked"]),
        (there_are_more_jobs_than_were_retried, ["unasked"]),
        (a_key_has_two_jobs, ["doubled"]),
        (a_key_was_answered_as_new_twice, ["doubled"]),
        (a_key_was_answered_with_two_jobs, ["doubled"]),
        (a_completion_was_acknowledged_and_is_not_there, ["undone"]),
        (a_start_was_acknowledged_and_is_not_there, ["undone"]),
        (another_result_is_there, ["undone"]),
        (a_late_result_was_taken, ["taken too late"]),
        (what_was_taken_is_refused_when_said_again, ["refused"]),
        (a_client_got_a_500, ["refused"]),
        (a_client_was_told_that_its_job_is_not_there, ["refused"]),
        (a_job_was_completed_and_nobody_said_so, ["unsaid"]),
        (a_job_was_cancelled_and_nobody_said_so, ["unsaid"]),
        (a_lease_that_was_told_was_released_and_nobody_said_so, ["unsaid"]),
        (a_setting_is_not_in_force, ["lost"]),
        (a_lease_was_given_twice, ["overlap"]),
        (a_job_was_given_away_while_its_lease_held, ["overlap"]),
        (an_attempt_begins_before_the_last_ends, ["overlap", "early", "order"]),
        (a_lease_is_nowhere, ["vanished"]),
        (a_lease_lapsed_too_early, ["early"]),
        (a_lease_lapsed_in_spite_of_a_beat, ["early"]),
        (a_job_was_completed_that_never_ran, ["illegal"]),
        (a_stream_told_an_illegal_move, ["illegal"]),
        (a_stream_told_moves_that_do_not_meet, ["illegal"]),
        (an_attempt_is_counted_twice, ["miscounted"]),
        (an_attempt_has_no_number, ["miscounted"]),
        (a_job_failed_with_attempts_left, ["given up"]),
        (a_final_row_has_changed, ["changed"]),
        (a_final_job_was_seen_at_work_again, ["changed"]),
        (a_job_was_queued_before_it_was_due, ["early"]),
        (a_job_was_due_before_its_delay, ["early"]),
        (a_job_came_back_before_its_backoff, ["early"]),
        (an_attempt_timed_out_before_its_time, ["early"]),
        (a_job_was_claimed_before_it_was_due, ["early"]),
        (a_due_job_still_waits, ["late"]),
        (a_due_job_was_queued_late, ["late"]),
        (a_job_came_out_before_a_more_urgent_one, ["order"]),
        (a_paused_tenant_was_served, ["order", "limit"]),
        (a_cap_was_passed, ["order", "limit"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_spoiled_is_found_and_nothing_else(spoil: Spoil, found: list[str]) -> None:
    story = all_is_well()
    spoil(story)
    assert _kinds(story.tell()) == found, story.tell()


def _kinds(wrong: list[str]) -> list[str]:
    return [sentence.split(":")[0] for sentence in wrong]


# -- what is no violation


def test_who_was_not_answered_may_have_been_served_or_not() -> None:
    story = all_is_well()
    for kind, name in (
        ("submit", "ada"),
        ("complete", "ada"),
        ("submit", "dan"),
        ("cancel", "dan"),
        ("release", "bob"),
    ):
        call = story.call(kind, name)
        call.status, call.answer = None, None
    assert story.tell() == []


def test_a_job_that_came_back_in_a_pause_and_was_put_last_comes_out_last() -> None:
    """Also where the service died as the pause was to end, and who looked then saw the pause."""
    story = Story()
    story.set_tenant(0, "acme")
    story.job("first", 1, priority=5, effective_priority=5, queued_at=at(5))
    story.submit(0.95, "first", priority=0)
    story.job("second", 2, priority=1, effective_priority=1, state=State.RUNNING, attempt=1, token="second-1")
    story.submit(1.95, "second")
    story.claim(3, "first", 1, start=False, lease_sec=30)
    story.attempt("first", 1, 3.05, None, 5, Outcome.RELEASED)
    story.set_tenant(4, "acme", paused=True)
    story.say(4.95, "release", "first", token="first-1")
    story.say(6, "prioritize", "first", priority=5)
    story.say(7, "set a tenant", status=503, paused=False)
    story.history.calls.append(replace(story.call("set a tenant", nth=2), kind="look at a tenant"))
    story.set_tenant(9, "acme")
    story.claim(10, "second", 1, start=True, lease_sec=30)
    story.change("second", scheduled_at=at(10.05), started_at=at(10.06), worker="w", lease_sec=30)
    story.change("second", charge=1_000_000, dispatch_weight=1, lease_expires_at=at(70))
    assert story.tell() == []


def test_a_fault_excuses_what_is_late_and_not_what_is_late_long_after_it() -> None:
    story = all_is_well()
    a_due_job_was_queued_late(story)
    story.history.faults.append(Fault("away", at(40), 40, at(50), 50))
    assert story.tell() == []
    story.history.faults.append(Fault("away", at(20), 20, at(30), 30))
    story.history.faults.pop(0)
    assert _kinds(story.tell()) == ["late"]


def test_a_clock_that_was_moved_tells_nothing_of_what_is_early_or_late() -> None:
    story = all_is_well()
    a_lease_lapsed_too_early(story)
    a_due_job_still_waits(story)
    a_job_was_claimed_before_it_was_due(story)
    assert story.tell(Terms(is_clock_moved=True)) == []


# -- what takes more than one look or more than a few jobs


def test_what_had_ended_must_be_the_same_later() -> None:
    before, after = all_is_well(), all_is_well()
    assert list(changed_between(before.tables(), after.tables())) == []
    after.change("bob", payload=1)
    after.attempt("bob", 8, 9, 9, 10, Outcome.FAILED)
    assert list(changed_between(before.tables(), after.tables())) == []
    after.change("ada", result=8)
    after.change_attempt("bob", 1, worker="v")
    assert len(list(changed_between(before.tables(), after.tables()))) == 2
    del after.jobs["dan"]
    assert len(list(changed_between(before.tables(), after.tables()))) == 3


def test_a_tenant_that_gets_all_is_found() -> None:
    terms = Terms(step_units=0)
    fair, unfair = _two_tenants(lambda nth: nth % 2), _two_tenants(lambda nth: int(nth >= 10))
    assert fair.tell(terms) == []
    assert _kinds(unfair.tell(terms)) == ["order", "unfair"]
    assert _kinds(unfair.tell(replace(terms, policy=Policy.PENALTY))) == ["order"]


def _two_tenants(turn: Callable[[int], int]) -> Story:
    """Two of the same weight, each with ten jobs that wait from the beginning on; whose turn it is says `turn`."""
    story = Story()
    names: list[list[str]] = [[], []]
    for nth in range(20):
        tenant = ("acme", "globex")[nth % 2]
        if nth < 2:
            story.set_tenant(0, tenant)
        names[nth % 2].append(f"job {nth}")
        story.job(f"job {nth}", 1 + nth / 100, tenant=tenant)
        story.submit(1 + nth / 100 - 0.05, f"job {nth}")
    for nth in range(20):
        name, second = names[turn(nth)].pop(0), 10 + nth
        times = {"scheduled_at": at(second + 0.05), "started_at": at(second + 0.06), "completed_at": at(second + 0.5)}
        story.change(name, state=State.COMPLETED, attempt=1, worker="w", **times)
        queued = (story.jobs[name].submitted_at - at(0)).total_seconds()
        story.attempt(name, queued, second + 0.05, second + 0.06, second + 0.5, Outcome.COMPLETED)
        story.claim(second, name, 1, start=True, lease_sec=30)
        story.say(second + 0.45, "complete", name, token=f"{name}-1")
    return story
