"""The worker, in virtual time: what it asks, when, and what becomes of jobs when something goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from app.client import Context, Denied, GiveUp, InvalidRequest, TryAgain, Worker
from tests.client.fake import FakeService, Trouble, held
from tests.client.virtual import run_virtually

LEASE = 30
LONG = 1e6


class Handling:
    """A handler that waits until it is told how to end, and keeps what happened to it."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.stopped: dict[Any, tuple[float, str | None]] = {}
        self._orders: dict[Any, asyncio.Future[Any]] = {}

    def _order(self, payload: Any) -> asyncio.Future[Any]:
        return self._orders.setdefault(payload, asyncio.get_running_loop().create_future())

    def end(self, *payloads: Any) -> None:
        """Let the handlers of these jobs return their payload."""
        for payload in payloads:
            self._order(payload).set_result(payload)

    async def __call__(self, context: Context) -> Any:
        payload = context.job.payload
        self.begun.append(payload)
        try:
            return await asyncio.shield(self._order(payload))
        except asyncio.CancelledError:
            self.stopped.setdefault(payload, (asyncio.get_running_loop().time(), context.stop_reason))
            raise
        finally:
            self.ended.append(payload)


@asynccontextmanager
async def running(service: FakeService, handler: Any, **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs for the while, and is stopped at the end."""
    worker = Worker(service.client(), handler, **({"lease_sec": LEASE, "grace_sec": 0} | options))
    task = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield worker
    finally:
        worker.stop()
        with suppress(asyncio.CancelledError):
            await task


async def moment(sec: float = 0.01) -> None:
    """Let so much time pass."""
    await asyncio.sleep(sec)


def virtually(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """The test, in virtual time."""

    def run() -> None:
        run_virtually(test())  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# --- claims


@virtually
async def test_it_claims_ahead_as_much_as_it_has_room_for() -> None:
    service, handling = FakeService(*range(6)), Handling()
    async with running(service, handling, concurrency=4, queues=["gpu", "default"], name="w1"):
        await moment()
        assert handling.begun == [0, 1, 2, 3]
        handling.end(1)
        await moment()
        assert handling.begun == [0, 1, 2, 3, 4]
        handling.end(0, 2)
        await moment(1)
        assert handling.begun == [0, 1, 2, 3, 4, 5]
    claims = service.calls("claim")
    assert [claim.body["limit"] for claim in claims][:3] == [4, 1, 2]
    assert claims[0].body["queues"] == ["gpu", "default"]
    assert claims[0].body["worker"] == "w1"
    assert claims[0].body["lease_sec"] == LEASE
    assert claims[0].body["start"] is False


@virtually
async def test_while_it_is_full_it_asks_for_nothing() -> None:
    service, handling = FakeService(1, 2), Handling()
    async with running(service, handling, concurrency=1):
        await moment(LEASE * 10)
        assert len(service.calls("claim")) == 1
        handling.end(1)
        await moment()
        assert handling.begun == [1, 2]


@virtually
async def test_it_waits_at_the_service_and_begins_a_job_when_it_comes() -> None:
    service, handling = FakeService(), Handling()
    async with running(service, handling):
        await moment(25)
        service.add("late")
        await moment()
        assert handling.begun == ["late"]
    waits = {claim.body["wait_sec"] for claim in service.calls("claim")}
    assert waits == {LEASE // 3}
    assert len(service.calls("claim")) <= 4


@virtually
async def test_a_service_that_lets_waiting_claims_go_is_not_hammered() -> None:
    service = FakeService()
    service.troubles["claim"].extend([Trouble(status=200, body={"jobs": []})] * 10)
    async with running(service, Handling()):
        await moment(9.5)
        assert len(service.calls("claim")) == 10


@virtually
async def test_a_service_that_is_away_is_waited_for_longer_and_longer() -> None:
    service, handling = FakeService("job"), Handling()
    service.away = True
    async with running(service, handling):
        await moment(300)
        asked = [claim.at for claim in service.calls("claim")]
        assert 30 < len(asked) < 60
        assert asked[1] - asked[0] == pytest.approx(0.25)
        assert asked[-1] - asked[-2] == pytest.approx(7.5)
        service.away = False
        await moment(16)
        assert handling.begun == ["job"]


@virtually
async def test_the_time_that_the_service_names_is_waited_for() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["claim"].append(Trouble(status=503, retry_after=7))
    async with running(service, handling):
        await moment(7.2)
        assert handling.begun == []
        await moment(0.1)
        assert handling.begun == ["job"]


@virtually
async def test_after_a_lost_answer_it_risks_one_job_until_an_answer_arrives() -> None:
    service, handling = FakeService(*range(20)), Handling()
    service.troubles["claim"].extend([Trouble(answer_lost=True), Trouble(answer_lost=True), Trouble()])
    async with running(service, handling, concurrency=8):
        await moment(5)
        assert [claim.body["limit"] for claim in service.calls("claim")] == [8, 1, 1, 7]
        assert handling.begun == list(range(9, 17))
        await moment(LEASE)  # the lost ones have lapsed, and others may have them
        assert service.job(0).state == "queued" or service.job(0).token == ""


@virtually
async def test_a_service_that_refuses_its_claims_ends_it() -> None:
    service = FakeService("job")
    for status, kind in ((400, InvalidRequest), (401, Denied)):
        service.troubles["claim"].append(Trouble(status=status))
        with pytest.raises(kind):
            await Worker(service.client(), Handling()).run(handle_signals=False)


@virtually
async def test_a_worker_whose_key_has_ended_stops_at_its_next_heartbeat() -> None:
    """Though all its places are taken, and it asks for nothing else. What nobody would hear of is not gone on with."""
    service, handling = FakeService("one", "two"), Handling()
    worker = Worker(service.client(), handling, concurrency=2, lease_sec=LEASE, grace_sec=LONG)
    task = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    began = service.now()
    for call in ("beat", "claim", "finish", "release"):
        service.troubles[call].extend([Trouble(status=401)] * 1000)
    with pytest.raises(Denied):
        await task
    assert service.now() - began < LEASE / 3 + 1
    assert handling.stopped.keys() == {"one", "two"}
    assert {reason for _, reason in handling.stopped.values()} == {"no"}
    assert not service.calls("finish")
    assert not service.calls("release")


@virtually
async def test_a_report_for_which_the_key_came_too_late_is_sent_once() -> None:
    service, handling = FakeService("done", "going on"), Handling()
    worker = Worker(service.client(), handling, concurrency=2, lease_sec=LEASE, grace_sec=LONG)
    task = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    for call in ("beat", "claim", "finish", "release"):
        service.troubles[call].extend([Trouble(status=401)] * 1000)
    handling.end("done")
    with pytest.raises(Denied):
        await task
    assert len(service.calls("finish")) == 1
    assert list(handling.stopped) == ["going on"]


# --- leases


@virtually
async def test_it_beats_for_all_it_holds_in_one_call_every_third_of_the_lease() -> None:
    service, handling = FakeService(*range(5)), Handling()
    async with running(service, handling, concurrency=5):
        await moment(LEASE * 100 + 5)
        beats = service.calls("beat")
        assert set(held(beats)) == {5}
        assert len(beats) == 300
        gaps = {round(later.at - earlier.at, 3) for earlier, later in pairwise(beats)}
        assert gaps == {LEASE / 3}
        assert service.states() == {"running": 5}
        assert handling.stopped == {}


@virtually
async def test_a_job_claimed_late_joins_the_beats() -> None:
    service, handling = FakeService(0), Handling()
    async with running(service, handling):
        await moment(4)
        service.add(1)
        await moment(LEASE)
        assert set(held(service.calls("beat"))) == {2}


@virtually
async def test_a_claim_that_was_answered_late_is_counted_from_before_it_was_sent() -> None:
    service, handling = FakeService(), Handling()
    async with running(service, handling):
        await moment(9)
        service.add("job")
        service.troubles["beat"].append(Trouble())
        await moment(1.5)
        # The claim was sent 10 seconds ago: it is time to beat, though the job came a moment ago.
        assert [round(beat.at - 1000, 1) for beat in service.calls("beat")] == [10.0]


@virtually
async def test_a_job_whose_lease_the_service_calls_lost_is_stopped_and_not_reported() -> None:
    service, handling = FakeService("mine", "theirs"), Handling()
    async with running(service, handling, concurrency=2):
        await moment()
        service.job("theirs").token, service.job("theirs").state = "", "cancelled"
        await moment(LEASE / 3)
        assert list(handling.stopped) == ["theirs"]
        assert handling.stopped["theirs"][1] == "the lease is lost"
        await moment(LEASE / 3)
        assert held(service.calls("beat"))[-1] == 1
        handling.end("mine")
        await moment()
    assert [report["id"] for asked in service.calls("finish") for report in asked.body["results"]] == [
        service.job("mine").id
    ]
    assert not service.calls("release")


@pytest.mark.parametrize("trouble", ["silence", "away", "lost answers", "errors", "babble"])
def test_a_job_is_stopped_by_the_workers_own_clock_before_its_lease_lapses(trouble: str) -> None:
    async def scenario() -> None:
        service, handling = FakeService("job"), Handling()
        service.troubles["beat"].extend([Trouble(), Trouble(answer_late_sec=3.0)])
        async with running(service, handling, concurrency=1):
            await moment(LEASE - 9)  # after two heartbeats; the answer to the second comes late
            [_, last] = service.calls("beat")
            match trouble:
                case "silence":
                    service.troubles["beat"].extend([Trouble(never_arrives=True)] * 1000)
                case "away":
                    service.away = True
                case "lost answers":
                    service.troubles["beat"].extend([Trouble(answer_lost=True)] * 1000)
                case "errors":
                    service.troubles["beat"].extend([Trouble(status=500)] * 1000)
                case "babble":
                    service.troubles["beat"].extend([Trouble(status=200, body={"results": []})] * 1000)
            ends_there = service.job("job").ends_at
            await moment(LEASE * 2)
            stopped_at, reason = handling.stopped["job"]
            assert stopped_at == pytest.approx(last.at + LEASE)
            assert stopped_at <= max(ends_there, service.job("job").ends_at)
            assert reason == "no heartbeat was answered for the lease's 30 s"
            assert len(service.calls("beat")) > 5
        assert not service.calls("finish")

    run_virtually(scenario())


@virtually
async def test_while_it_cannot_keep_what_it_holds_it_claims_no_more_and_then_carefully() -> None:
    service, handling = FakeService(1), Handling()
    async with running(service, handling, concurrency=4):
        await moment()
        service.troubles["beat"].extend([Trouble(status=500)] * 1000)
        await moment(11)
        service.add(*range(2, 10))
        await moment(15)
        assert handling.begun == [1]
        await moment(10)
        assert [claim.body["limit"] for claim in service.calls("claim")][-1] == 1
        assert service.states()["running"] == 1
        service.troubles["beat"].clear()
        await moment(3)  # the pause between two heartbeats that were missed, and no third of a lease
        assert service.states()["running"] == 4


@virtually
async def test_a_gap_shorter_than_the_lease_is_ridden_out() -> None:
    service, handling = FakeService("job"), Handling()
    async with running(service, handling, concurrency=1):
        await moment(11)
        service.away = True
        await moment(25)
        service.away = False
        await moment(LEASE * 3)
        assert handling.stopped == {}
        handling.end("job")
        await moment(1)
        assert service.job("job").state == "completed"


@virtually
async def test_a_job_that_was_cancelled_before_it_began_is_not_begun() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["start"].append(Trouble(late_sec=1.0))
    async with running(service, handling):
        await moment(0.5)
        service.job("job").token, service.job("job").state = "", "cancelled"
        await moment(5)
        assert handling.begun == []
    assert not service.calls("release")
    assert not service.calls("finish")


@virtually
async def test_a_job_that_cannot_be_started_in_time_is_not_begun() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["start"].extend([Trouble(refused=True)] * 1000)
    service.troubles["beat"].extend([Trouble(refused=True)] * 1000)
    service.troubles["release"].extend([Trouble(refused=True)] * 1000)
    async with running(service, handling, concurrency=1):
        await moment(LEASE - 1)
        assert len(service.calls("claim")) == 1
        await moment(2)
        assert handling.begun == []
        assert len(service.calls("claim")) > 1


@virtually
async def test_a_start_is_told_again_until_it_is_answered() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["start"].extend([Trouble(answer_lost=True), Trouble(status=503), Trouble(refused=True)])
    async with running(service, handling):
        await moment(5)
        assert handling.begun == ["job"]
        assert len(service.calls("start")) == 4


@virtually
async def test_a_job_that_comes_again_is_not_begun_while_its_old_handler_runs() -> None:
    service = FakeService("job")
    now, most, begun = 0, 0, 0
    may_end = asyncio.Event()

    async def stubborn(context: Context) -> str:
        nonlocal now, most, begun
        begun, now = begun + 1, now + 1
        most = max(most, now)
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
        now -= 1
        return context.job.lease.token

    async with running(service, stubborn, concurrency=2):
        await moment()
        service.job("job").token, service.job("job").state = "", "queued"  # its lease has lapsed there
        await moment(LEASE * 5)
        assert begun == 1
        assert service.job("job").state == "scheduled"  # claimed again, kept alive, not begun
        assert set(held(service.calls("beat"))[1:]) == {1}
        may_end.set()
        await moment(1)
        assert begun == 2
    assert most == 1
    assert service.job("job").result == "token 2"


@virtually
async def test_a_handler_that_does_not_end_keeps_its_place() -> None:
    service = FakeService("stubborn", "other")
    may_end = asyncio.Event()

    async def stubborn(_: Context) -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    async with running(service, stubborn, concurrency=1):
        await moment()
        service.job("stubborn").token, service.job("stubborn").state = "", "cancelled"
        await moment(LEASE * 5)
        assert service.job("other").state == "queued"
        may_end.set()
        await moment(1)
        assert service.job("other").state == "completed"


# --- ends of handlers


@virtually
async def test_each_end_of_a_handler_is_reported_for_what_it_is() -> None:
    ends: dict[str, Any] = {
        "result": {"passed": 12},
        "nothing": None,
        "error": ValueError("broken"),
        "given up": GiveUp("hopeless"),
        "again": TryAgain("exit code 1"),
        "again without a word": TryAgain(),
        "exit": SystemExit(3),
        "no JSON": object(),
        "strange text": ValueError("with \0"),
        "long text": ValueError("x" * 100_000),
        "cancelled": asyncio.CancelledError(),
    }
    service = FakeService(*ends)

    async def handler(context: Context) -> Any:
        end = ends[context.job.payload]
        if isinstance(end, BaseException):
            raise end
        return end

    async with running(service, handler, concurrency=20):
        await moment(1)
    reports = {
        next(job.payload for job in service.jobs.values() if job.id == report["id"]): report
        for asked in service.calls("finish")
        for report in asked.body["results"]
    }
    told = {payload: report.get("error", report.get("result")) for payload, report in reports.items()}
    assert told.pop("no JSON").startswith("the result is no JSON: ")
    assert len(told.pop("long text")) < 10_000
    assert told == {
        "result": {"passed": 12},
        "nothing": None,
        "error": "ValueError: broken",
        "given up": "hopeless",
        "again": "exit code 1",
        "again without a word": "failed",
        "exit": "SystemExit: 3",
        "strange text": "ValueError: with \\0",
        "cancelled": "the handler was cancelled, and not by the worker",
    }
    assert {payload for payload, report in reports.items() if not report.get("retry", True)} == {"given up"}
    assert set(service.states()) == {"completed", "failed"}


@virtually
async def test_what_ends_together_is_reported_together() -> None:
    service, handling = FakeService(*range(10)), Handling()
    service.troubles["finish"].append(Trouble(late_sec=1.0))
    async with running(service, handling, concurrency=10):
        await moment()
        handling.end(0)
        await moment(0.5)
        handling.end(*range(1, 10))
        await moment(2)
    assert [len(asked.body["results"]) for asked in service.calls("finish")] == [1, 9]
    assert service.states() == {"completed": 10}


@virtually
async def test_a_report_is_sent_until_it_is_answered_and_the_lease_is_kept_meanwhile() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["finish"].extend([Trouble(refused=True)] * 20)
    service.troubles["finish"].extend([Trouble(status=500), Trouble(status=503), Trouble(answer_lost=True)])
    async with running(service, handling, concurrency=1):
        await moment()
        handling.end("job")
        await moment(LEASE * 10)
        assert service.job("job").state == "completed"
        assert held(service.calls("beat"))
        assert len(service.calls("claim")) > 1  # its place is free again
        assert len(service.calls("finish")) == 24


@virtually
async def test_a_service_that_fails_at_reports_is_asked_less_and_less_often() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["finish"].extend([Trouble(status=500)] * 6)
    async with running(service, handling):
        await moment()
        handling.end("job")
        await moment(LEASE)
    pauses = [later.at - earlier.at for earlier, later in pairwise(service.calls("finish"))]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
    assert service.job("job").state == "completed"


@virtually
async def test_a_result_that_the_service_refuses_fails_its_job_and_no_other() -> None:
    service, handling = FakeService("good", "bad", "fine"), Handling()
    refusal = Trouble(status=400, body={"error": "results[1]: result must be at most 64 KiB", "details": []})
    service.troubles["finish"].extend([refusal, Trouble(), refusal, Trouble(), Trouble()])
    async with running(service, handling, concurrency=3):
        await moment()
        handling.end("good", "bad", "fine")
        await moment(1)
    assert [len(asked.body["results"]) for asked in service.calls("finish")] == [3, 1, 1, 1, 1]
    assert service.job("good").state == service.job("fine").state == "completed"
    assert service.job("bad").error == "the result was refused: results[1]: result must be at most 64 KiB"


@virtually
async def test_a_job_that_ended_before_its_lease_was_lost_is_reported_for_the_token_to_judge() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["finish"].append(Trouble(late_sec=5.0))
    async with running(service, handling, concurrency=1):
        await moment()
        handling.end("job")
        await moment(1)
        service.job("job").token, service.job("job").state = "", "cancelled"
        await moment(30)
        assert service.job("job").state == "cancelled"
        assert len(service.calls("finish")) == 1


@virtually
async def test_progress_is_told_at_most_once_a_second_and_the_last_value_only() -> None:
    service = FakeService("job")

    async def handler(context: Context) -> None:
        for step in range(1, 101):
            context.set_progress(step / 100)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)

    async with running(service, handler):
        await moment(14)
        told = [beat.body["progress"] for beat in service.calls("heartbeat")]
        assert 9 <= len(told) <= 12
        assert told == sorted(told)
        assert told[0] == 0.01
        assert service.job("job").progress == 1.0
        # Each of them was a heartbeat too: nothing was due in bulk before.
        assert [round(beat.at - 1000) for beat in service.calls("beat")] == []


@virtually
async def test_progress_of_a_job_that_has_ended_is_not_told() -> None:
    service = FakeService("job")

    async def handler(context: Context) -> None:
        context.set_progress(0.9)

    async with running(service, handler):
        await moment(5)
    assert service.states() == {"completed": 1}
    assert not service.calls("heartbeat")


@virtually
async def test_progress_that_nobody_wants_any_more_stops_the_job() -> None:
    service, handling = FakeService("job"), Handling()
    contexts: list[Context] = []

    async def handler(context: Context) -> None:
        contexts.append(context)
        await handling(context)

    async with running(service, handler):
        await moment()
        service.job("job").token, service.job("job").state = "", "cancelled"
        contexts[0].set_progress(0.5)
        await moment()
        assert "cancelled" in (handling.stopped["job"][1] or "")


# --- the end


@virtually
async def test_told_to_end_it_claims_no_more_and_lets_handlers_finish() -> None:
    service, handling = FakeService(*range(6)), Handling()
    worker = Worker(service.client(), handling, concurrency=4, grace_sec=20)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    worker.stop()
    await moment(15)
    handling.end(0, 1, 2, 3)
    await run
    assert asyncio.get_running_loop().time() < 1016
    assert service.states() == {"completed": 4, "queued": 2}
    assert len(service.calls("claim")) == 1
    assert len(service.calls("beat")) == 1  # the leases are kept during the grace
    assert not service.calls("release")


@virtually
async def test_after_the_grace_the_rest_is_stopped_and_released() -> None:
    service, handling = FakeService(*range(4)), Handling()
    worker = Worker(service.client(), handling, concurrency=4, grace_sec=20)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    worker.stop()
    handling.end(0)
    await run
    assert service.states() == {"completed": 1, "queued": 3}
    assert {job.attempt for job in service.jobs.values() if job.state == "queued"} == {0}
    assert {round(at - 1000) for at, _ in handling.stopped.values()} == {20}
    assert {reason for _, reason in handling.stopped.values()} == {"the worker ends"}
    assert asyncio.get_running_loop().time() < 1021


@virtually
async def test_told_twice_it_waits_for_no_handler() -> None:
    service, handling = FakeService(*range(2)), Handling()
    worker = Worker(service.client(), handling, grace_sec=3600)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    worker.stop()
    await moment(5)
    worker.stop()
    await run
    assert asyncio.get_running_loop().time() < 1006
    assert service.states() == {"queued": 2}


@virtually
async def test_told_to_end_it_hangs_up_where_it_waits_for_work() -> None:
    service = FakeService()
    worker = Worker(service.client(), Handling(), grace_sec=3600)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment(5)
    worker.stop()
    await run
    assert asyncio.get_running_loop().time() < 1005.1


@virtually
async def test_a_claim_that_is_answered_all_the_same_is_given_back() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["claim"].append(Trouble(answer_late_sec=0.5))
    worker = Worker(service.client(), handling, grace_sec=3600)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment(0.1)
    worker.stop()
    await run
    assert handling.begun == []
    assert service.job("job").state == "queued"
    assert service.job("job").attempt == 0
    assert len(service.calls("release")) == 1


@virtually
async def test_what_it_has_not_begun_is_given_back_at_once() -> None:
    service, handling = FakeService("job"), Handling()
    service.troubles["start"].append(Trouble(late_sec=5.0))
    worker = Worker(service.client(), handling, grace_sec=3600)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment(0.1)
    worker.stop()
    await run
    assert handling.begun == []
    assert service.states() == {"queued": 1}
    assert asyncio.get_running_loop().time() < 1002


@virtually
async def test_a_handler_that_will_not_end_does_not_keep_it() -> None:
    service = FakeService("job")

    async def stubborn(_: Context) -> None:
        ends_at = asyncio.get_running_loop().time() + 60
        while (left := ends_at - asyncio.get_running_loop().time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    worker = Worker(service.client(), stubborn, grace_sec=10)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    worker.stop()
    await run
    assert asyncio.get_running_loop().time() < 1020
    assert service.states() == {"queued": 1}
    await moment(60)


@virtually
async def test_an_end_without_a_service_is_an_end_too() -> None:
    service, handling = FakeService("done", "begun"), Handling()
    worker = Worker(service.client(), handling, grace_sec=10)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    service.away = True
    handling.end("done")
    worker.stop()
    await run
    assert asyncio.get_running_loop().time() < 1000 + 10 + 5 + 5 + 2


@virtually
async def test_cancelled_it_releases_what_it_holds() -> None:
    service, handling = FakeService(*range(2)), Handling()
    worker = Worker(service.client(), handling, grace_sec=3600)
    run = asyncio.create_task(worker.run(handle_signals=False))
    await moment()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert service.states() == {"queued": 2}
    assert asyncio.get_running_loop().time() < 1002


@virtually
async def test_stopped_before_it_runs_it_does_nothing() -> None:
    service = FakeService("job")
    worker = Worker(service.client(), Handling())
    worker.stop()
    await worker.run(handle_signals=False)
    assert service.asked == []
    worker.stop()
    with pytest.raises(RuntimeError, match="runs once"):
        await worker.run()


# --- how it is made


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"concurrency": 0}, "concurrency is 1-1000"),
        ({"concurrency": 1001}, "concurrency is 1-1000"),
        ({"lease_sec": 2}, "lease_sec is 3-3600"),
        ({"lease_sec": 3601}, "lease_sec is 3-3600"),
        ({"lease_sec": 4.5}, "lease_sec is 3-3600"),
    ],
)
def test_what_cannot_be_is_told_at_once(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Worker(FakeService().client(), Handling(), **options)


def test_one_queue_by_name_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="list of names"):
        Worker(FakeService().client(), Handling(), queues="gpu")


def test_workers_have_names_of_their_own() -> None:
    names = {Worker(FakeService().client(), Handling()).name for _ in range(10)}
    assert len(names) == 10
    assert all(len(name) <= 128 for name in names)
