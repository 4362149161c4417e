"""A small history in which all is well, and the tables that go with it, made up by hand. Tests of the checker spoil it
in one place and see whether that is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from app.clock import rfc3339
from app.scheduling.job import Attempt, Job, Outcome, State
from app.scheduling.tenant import TenantSettings
from tests import twin
from tests.history.checker import violations
from tests.history.record import Call, History, Watched
from tests.history.tables import Tables, shown
from tests.history.terms import Terms

_DAWN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NOTHING: Final = dict.fromkeys(Job.__struct_fields__)


def at(second: float) -> datetime:
    """So many seconds into the story."""
    return _DAWN + timedelta(seconds=second)


@dataclass
class Story:
    """What was said and what is written; `tell` compares the two."""

    history: History = field(default_factory=History)
    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    tenants: dict[str, TenantSettings] = field(default_factory=dict)
    read_at: datetime = at(60)

    def tell(self, terms: Terms | None = None) -> list[str]:
        return violations(self.history, self.tables(), terms or Terms())

    def tables(self) -> Tables:
        rows = {self.id_of(name): attempts for name, attempts in self.attempts.items()}
        jobs = sorted(self.jobs.values(), key=lambda job: job.seq)
        return Tables(twin.History(jobs, rows, {}, {}), self.tenants, self.read_at)

    def id_of(self, name: str) -> str:
        return self.jobs[name].id

    def change(self, name: str, **values: Any) -> None:
        """Another row."""
        self.jobs[name] = replace(self.jobs[name], **values)

    def change_attempt(self, name: str, nth: int, **values: Any) -> None:
        """Another attempt."""
        self.attempts[name][nth - 1] = replace(self.attempts[name][nth - 1], **values)

    def show_again(self, call: Call, name: str) -> None:
        """The call was answered with the row as it is now."""
        call.answer = shown(self.jobs[name])

    def call(self, kind: str, name: str | None = None, nth: int = 1) -> Call:
        """One of its kind, about that job."""
        of_job = [call for call in self.history.of(kind) if name is None or self.id_of(name) == _job_in(call)]
        return of_job[nth - 1]

    def forget(self, call: Call) -> None:
        self.history.calls.remove(call)

    # -- telling it

    def job(self, name: str, submitted: float, **values: Any) -> Job:
        """A row that waits since then."""
        number = len(self.jobs) + 1
        due = submitted + (values.get("delay_sec") or 0)
        given = {
            "seq": number,
            "id": f"{number:032x}",
            "tenant": "acme",
            "test_suite": name,
            "queue": "default",
            "priority": 0,
            "effective_priority": 0,
            "cost": 1,
            "state": State.QUEUED,
            "delay_sec": 0,
            "attempt": 0,
            "max_attempts": 3,
            "submitted_at": at(submitted),
            "due_at": at(due),
            "run_at": at(due),
            "queued_at": at(submitted),
        }
        self.jobs[name] = Job(**{**_NOTHING, **given, **values})
        return self.jobs[name]

    def attempt(
        self, name: str, queued: float, scheduled: float, started: float | None, ended: float, outcome: Outcome
    ) -> None:
        """An attempt that has ended, under a token that is named for it."""
        row, attempts = self.jobs[name], self.attempts.setdefault(name, [])
        number = len(attempts) + 1
        times = (at(queued), at(scheduled), None if started is None else at(started), at(ended))
        attempts.append(Attempt(row.id, number, f"{name}-{number}", "w", *times, outcome, None, 1, row.cost))

    def say(
        self, second: float, kind: str, name: str = "", *, client: str = "w", status: int = 200, **more: Any
    ) -> Call:
        """A call that took a tenth of a second. Its answer is the job as it is at the end, unless it says otherwise."""
        path = f"/jobs/{self.id_of(name)}/{kind}" if name else ""
        answer = more.pop("answer", shown(self.jobs[name]) if name else None)
        key = more.pop("key", None)
        returned = second + 0.1
        call = Call(client, kind, path, more, key, second, at(second), returned, at(returned), status, answer)
        self.history.calls.append(call)
        return call

    def submit(self, second: float, name: str, **asked: Any) -> None:
        """A job is submitted and acknowledged as it was then."""
        row = self.jobs[name]
        was = State.PENDING if row.due_at > row.submitted_at else State.QUEUED
        first = replace(row, state=was, completed_at=None, result=None)
        given = {"tenant": row.tenant, "test_suite": name, "priority": row.priority, **asked}
        self.say(second, "submit", name, status=201, answer=shown(first), key=row.idempotency_key, **given)

    def claim(self, second: float, name: str, number: int, *, client: str = "w", start: bool, lease_sec: int) -> None:
        """It was given to a worker, as attempt number so many."""
        row = self.jobs[name]
        held = replace(row, state=State.RUNNING if start else State.SCHEDULED, completed_at=None, result=None)
        answer = {"jobs": [{**shown(held), "lease": {"token": f"{name}-{number}"}}]}
        self.say(second, "claim", client=client, start=start, lease_sec=lease_sec, answer=answer)

    def set_tenant(self, second: float, name: str, **settings: Any) -> None:
        """How a tenant is set, as the answer said."""
        told = {"weight": 1, "max_running": None, "paused": False, **settings}
        self.tenants[name] = TenantSettings(**told)
        self.say(second, "set a tenant", answer={**told, "name": name, "updated_at": rfc3339(at(second))}, **settings)

    def watch(self, name: str, *states: str) -> None:
        """The stream of moves told that it went from one to the next."""
        for old, new in zip((None, *states), states, strict=False):
            self.history.watched.append(Watched("stream", self.id_of(name), old, new))


def _job_in(call: Call) -> str | None:
    if call.job_id is not None or not call.is_ok:
        return call.job_id
    [job] = call.answer.get("jobs", [call.answer])
    found: str | None = job.get("id")
    return found


def all_is_well() -> Story:
    """Ada is completed. Bob lapses, is released and waits. Cyd comes later, fails twice, the second time for good. Dan
    is cancelled. Eve runs. Of fay nobody knows whether she was stored, and she was not."""
    story = Story()
    story.set_tenant(0, "acme")
    _ada(story)
    _bob(story)
    _cyd(story)
    _dan(story)
    _eve(story)
    story.say(50, "submit", client="s", status=503, key="fay", tenant="acme", test_suite="fay", priority=0)
    return story


def _ada(story: Story) -> None:
    over = {"state": State.COMPLETED, "completed_at": at(4), "scheduled_at": at(2.05), "started_at": at(2.06)}
    story.job("ada", 1, idempotency_key="ada", attempt=1, worker="w", result=7, **over)
    story.attempt("ada", 1, 2.05, 2.06, 4, Outcome.COMPLETED)
    story.submit(0.95, "ada")
    story.claim(2, "ada", 1, start=True, lease_sec=30)
    story.say(3, "heartbeat", "ada", token="ada-1", answer={})
    story.say(3.95, "complete", "ada", token="ada-1", result=7)
    story.watch("ada", "queued", "scheduled", "running", "completed")


def _bob(story: Story) -> None:
    story.job("bob", 1.5, queued_at=at(8), effective_priority=1)
    story.attempt("bob", 1.5, 5.05, None, 6.2, Outcome.LAPSED)
    story.attempt("bob", 6.2, 7.05, None, 8, Outcome.RELEASED)
    story.change("bob", attempt=1)
    story.submit(1.45, "bob")
    story.claim(5, "bob", 1, start=False, lease_sec=1)
    story.claim(7, "bob", 2, start=False, lease_sec=30)
    story.say(7.95, "release", "bob", token="bob-2", answer=shown(story.jobs["bob"]))


def _cyd(story: Story) -> None:
    over = {"state": State.FAILED, "completed_at": at(18), "scheduled_at": at(17.05), "started_at": at(17.06)}
    story.job("cyd", 10, queue="gpu", delay_sec=2, attempt=2, worker="w", error="no", **over)
    story.change("cyd", queued_at=at(16.3))
    story.attempt("cyd", 12.1, 13.05, 13.06, 14, Outcome.FAILED)
    story.attempt("cyd", 16.3, 17.05, 17.06, 18, Outcome.FAILED)
    story.submit(9.95, "cyd", queue="gpu", delay_sec=2)
    story.claim(13, "cyd", 1, start=True, lease_sec=30)
    waits = shown(replace(story.jobs["cyd"], state=State.PENDING, completed_at=None))
    story.say(13.95, "fail", "cyd", token="cyd-1", error="no", answer=waits)
    story.claim(17, "cyd", 2, start=True, lease_sec=30)
    story.say(17.95, "fail", "cyd", token="cyd-2", error="no", retry=False)


def _dan(story: Story) -> None:
    story.job("dan", 20, state=State.CANCELLED, completed_at=at(21))
    story.submit(19.95, "dan")
    story.say(20.95, "cancel", "dan")


def _eve(story: Story) -> None:
    held = {"token": "eve-1", "lease_sec": 30, "lease_expires_at": at(63), "worker": "w", "charge": 1_000_000}
    times = {"scheduled_at": at(33.05), "started_at": at(33.06)}
    story.job("eve", 32, queue="eves", state=State.RUNNING, attempt=1, dispatch_weight=1, **held, **times)
    story.submit(31.95, "eve", queue="eves")
    story.claim(33, "eve", 1, start=True, lease_sec=30)


Spoil = Callable[[Story], None]
