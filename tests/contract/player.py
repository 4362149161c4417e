"""Plays the events of one job's life to the service and to the model at once, and holds the two to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from copy import copy
from datetime import datetime
from typing import Any, Final, Literal

from app.errors import Conflict, LeaseLost
from app.flow import cancel, finish, lease, reprioritize
from app.flow.core import Core
from app.scheduling.job import Attempt, Job
from app.store import attempts, jobs
from app.store.session import Connection
from tests.contract import model
from tests.contract.model import CALLS, Answer, Call
from tests.flow.harness import Running, in_one_group

Time = Literal["a moment", "a while", "a lease"]
Event = Call | Time | Literal["claim", "claim and start", "cancel", "prioritize", "restart", "look"]

SECONDS: Final[dict[Time, float]] = {"a moment": 1.5, "a while": 11.0, "a lease": 31.0}
"""None of these, nor a sum of a few, ends a lease of 30 s or a backoff of 2 or 4 s to the second."""

_ALWAYS: Final[tuple[Event, ...]] = (
    "claim",
    "claim and start",
    "cancel",
    "prioritize",
    "a while",
    "a lease",
    "restart",
)

NEVER_GIVEN: Final = "0" * 32
_TOLERANCE_SEC: Final = 0.001


class Player:
    """A job, its model, and every token it was ever given."""

    def __init__(self, running: Running, job: Job, asked: model.Job) -> None:
        self.running = running
        self.queue = job.queue
        self.id = job.id
        self.model = asked
        self.tokens: list[str] = []

    def events(self) -> tuple[Event, ...]:
        """All that can happen now."""
        if self.model.state in model.LEASED:
            return (*_ALWAYS, *CALLS)
        return (*_ALWAYS, "a moment") if self.model.state == "pending" else _ALWAYS

    async def play(self, event: Event) -> None:
        """One event, whose answer must be the model's. A restart is for who owns the service to play."""
        self.model, expected = self._modelled(event)
        assert await self._played(event) == expected, event

    async def play_at_once(self, calls: Sequence[Event]) -> None:
        """Several calls in one transaction, each of which must be answered as if it had come alone."""
        playing, expected = [], []
        for call in calls:
            self.model, answer = self._modelled(call)
            expected.append(answer)
            playing.append(self._played(call))
        assert await in_one_group(self.running.core, *playing) == expected, calls

    def _modelled(self, event: Event) -> tuple[model.Job, Answer | None]:
        match event:
            case "claim" | "claim and start":
                return model.claim(self.model, start=event == "claim and start")
            case "cancel":
                return model.cancel(self.model)
            case "prioritize":
                return model.prioritize(self.model, self._other_priority)
            case "restart":
                return model.restart(self.model), None
            case "look":
                return model.look(self.model), None
            case "a moment" | "a while" | "a lease":
                return model.wait(self.model, SECONDS[event]), None
            case _:
                return model.report(self.model, event, len(self.tokens) - 1)

    def _played(self, event: Event) -> Coroutine[Any, Any, Answer | None]:
        core = self.running.core
        match event:
            case "claim" | "claim and start":
                return self._claim(start=event == "claim and start")
            case "cancel":
                return answer_of(cancel.cancel(core, self.id))
            case "prioritize":
                return answer_of(reprioritize.reprioritize(core, self.id, self.model.priority))
            case "restart":
                return _nothing()
            case "look":
                held = core.leases.get(self.id)
                return finish.end_if_ended(core, held) if held else _nothing()
            case "a moment" | "a while" | "a lease":
                return self._pass_time(SECONDS[event])
            case _:
                return answer_of(report(core, self.id, self.tokens[-1], event))

    async def _pass_time(self, seconds: float) -> None:
        await self.running.tick(after=seconds)

    @property
    def _other_priority(self) -> int:
        return 7 if self.model.priority == 0 else 0

    async def _claim(self, *, start: bool) -> Answer:
        claimed = await self.running.claim(2, self.queue, start=start)
        if not claimed:
            return Answer("nothing")
        [job] = claimed
        assert job.id == self.id
        assert job.token not in self.tokens
        self.tokens.append(job.token or "")
        return Answer("job", job.state)

    async def say_all_that_is_too_late(self, unknown: str | None = None) -> int:
        """Everything that can be said under a token whose lease is over, and under one that nobody was given; how
        much. The model does not move by it, which is for the caller to see in the service."""
        tokens: dict[int | None, str] = dict(enumerate(self.tokens[: len(self.model.ended)]))
        if unknown is not None:
            tokens[None] = unknown
        said = [(call, number) for call in CALLS for number in tokens]
        core = self.running.core
        answers = await in_one_group(core, *(answer_of(report(core, self.id, tokens[n], call)) for call, n in said))
        for (call, number), answer in zip(said, answers, strict=True):
            after, expected = model.report(self.model, call, number)
            assert after == self.model
            assert answer == expected, (call, number)
        return len(said)

    async def compare(self, connection: Connection) -> None:
        """The job, its attempts and its lease are what the model says."""
        job = await jobs.get(connection, self.id)
        assert job is not None
        ended = await attempts.of_job(connection, self.id)
        self._compare_job(job)
        self._compare_attempts(ended)
        self._compare_lease()

    def _compare_job(self, job: Job) -> None:
        wanted = self.model
        assert (job.state, job.attempt, job.error) == (wanted.state, wanted.attempt, wanted.error)
        assert job.priority == wanted.priority
        assert job.token == (self.tokens[-1] if wanted.state in model.LEASED else None)
        for column, cell in model.columns_of(wanted.state).items():
            if cell != "?":
                assert (getattr(job, column) is not None) == (cell == "+"), column
        assert job.result == ({"passed": 3} if wanted.state == "completed" else None)
        if job.effective_priority is not None:
            assert job.effective_priority == wanted.priority  # it is alone: nothing is ahead of it
        if wanted.due_left is not None:
            assert _is_near((job.run_at - self.running.clock.now()).total_seconds(), wanted.due_left)

    def _compare_attempts(self, ended: list[Attempt]) -> None:
        seen = [(a.number, a.token, a.outcome, a.error, a.started_at is not None) for a in ended]
        assert seen == [
            (number, self.tokens[number - 1], attempt.outcome, attempt.error, attempt.was_started)
            for number, attempt in enumerate(self.model.ended, 1)
        ]

    def _compare_lease(self) -> None:
        held, now = self.running.core.leases.get(self.id), self.running.clock.monotonic_ns()
        assert (held is not None) == (self.model.lease_left is not None)
        if held is not None and self.model.lease_left is not None:
            assert held.token == self.tokens[-1]
            assert _is_near((held.expires_at - now) / 1e9, self.model.lease_left)
            assert (held.timeout_at is not None) == (self.model.time_left is not None)
            if held.timeout_at is not None and self.model.time_left is not None:
                assert _is_near((held.timeout_at - now) / 1e9, self.model.time_left)

    def fork(self) -> Player:
        """The same, to go another way from here."""
        other = copy(self)
        other.tokens = list(self.tokens)
        return other


def _is_near(seconds: float, wanted: float) -> bool:
    return abs(seconds - wanted) < _TOLERANCE_SEC


def report(core: Core, job_id: str, token: str, call: Call) -> Awaitable[Any]:
    """What a worker says under a token."""
    match call:
        case "start":
            return lease.start(core, job_id, token)
        case "heartbeat":
            return lease.heartbeat(core, job_id, token)
        case "complete":
            return finish.complete(core, job_id, token, {"passed": 3})
        case "release":
            return finish.release(core, job_id, token)
        case _:
            return finish.fail(core, job_id, token, "it broke", retry=call == "fail")


async def answer_of(call: Awaitable[Any]) -> Answer:
    """What the service said, in the model's words."""
    try:
        said = await call
    except LeaseLost as error:
        return Answer("lost", error.state)
    except Conflict as error:
        return Answer("conflict", error.state)
    return Answer("nothing") if isinstance(said, datetime) else Answer("job", said.state)


async def _nothing() -> None:
    pass
