"""Clients, workers, operators and people who type SQL. Each step sends something, without waiting for the answer, and
what comes back is told to the witness. What got no answer may be sent again, in this life or a later one."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from app.clock import rfc3339
from app.errors import RateLimited, TooManyQueued, Unavailable
from app.flow import dispatch, tenancy
from app.flow.bulk import Judged, finish_many, heartbeat_many
from app.flow.bulk import Report as BulkReport
from app.flow.cancel import CancelFilter, cancel, cancel_many
from app.flow.core import Core
from app.flow.dispatch import ClaimRequest
from app.flow.look import get_job
from app.flow.reprioritize import reprioritize
from app.flow.retry import retry
from app.flow.submit import JobRequest, submit
from app.flow.tenancy import TenantSettings
from app.scheduling.job import State
from tests.contract.model import CALLS, FINAL, Answer, Call
from tests.contract.player import NEVER_GIVEN, answer_of, report
from tests.simulation.nature import QUEUES, TENANTS, Nature
from tests.simulation.requests import (
    Box,
    CancelMany,
    Claim,
    OfJob,
    Report,
    ReportMany,
    Sent,
    SetQueue,
    SetTenant,
    Submit,
)
from tests.simulation.witness import Witness, Wrong

LIKELY_CALLS: Final[tuple[Call, ...]] = (*CALLS, "start", "complete", "complete", "fail", "release")


class Clients:
    """Everybody who is not the service. `core` is the present one's."""

    core: Core

    def __init__(
        self,
        chance: random.Random,
        nature: Nature,
        witness: Witness,
        box: Box,
        *,
        now: Callable[[], float],
        wrong: Callable[[BaseException], None],
    ) -> None:
        self._chance = chance
        self._nature = nature
        self._witness = witness
        self._box = box
        self._now = now
        self._wrong = wrong
        self._unanswered: list[Sent] = []
        self._names = 0
        self.excuse: str | None = None
        """Why a client may be told that the service is not there."""
        self.is_deaf = False

    # -- sending

    def send(self, sent: Sent) -> asyncio.Task[None]:
        """From now on it is under way."""
        self._box.put(sent, at=self._now(), began=self._witness.commit)
        self._witness.say(f"{sent.number}: {sent}")
        sent.task = asyncio.get_running_loop().create_task(self._until_answered(sent), name=f"request {sent.number}")
        return sent.task

    async def _until_answered(self, sent: Sent) -> None:
        try:
            await self._judged(sent)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the seed has found
            self._wrong(error)

    async def _judged(self, sent: Sent) -> None:
        try:
            answer = await self._call(sent)
        except asyncio.CancelledError:
            if not self.is_deaf:
                self._lost(sent)
            raise
        except Exception as error:
            if self.is_deaf:
                return
            if not isinstance(error, Unavailable | RateLimited | TooManyQueued):
                raise
            self._refused(sent, error)
            return
        if self.is_deaf:
            return
        self._witness.say(f"{sent.number} ← {_shown(answer)}")
        self._box.open.setdefault(sent.number, sent)
        if isinstance(sent, ReportMany):
            self._each_judged(sent, answer)
        else:
            self._witness.answered(sent, answer)
        self._box.close(sent, self._witness.commit)

    def _refused(self, sent: Sent, error: Unavailable | RateLimited | TooManyQueued) -> None:
        self._witness.say(f"{sent.number} ← {type(error).__name__}: {error}")
        if isinstance(error, Unavailable):
            if self.excuse is None:
                raise Wrong(f"{sent}: told that the service is away, and it is not: {error}")
            self._lost(sent)
            return
        if not self._nature.limits:
            raise Wrong(f"{sent}: refused without a limit: {error}")
        self._box.close(sent)

    def _lost(self, sent: Sent) -> None:
        """Its client does not know what has become of it."""
        self._unanswered.append(sent)
        self._leaves(sent)

    def _leaves(self, sent: Sent) -> None:
        if isinstance(sent, Claim):
            self._witness.left.add(sent.asked.worker)

    def service_died(self) -> None:
        """What was under way gets no answer; what the dead process would still say, nobody hears."""
        self.is_deaf = True
        self._unanswered += [sent for sent in self._box.open.values() if sent.task is not None and not sent.task.done()]

    def _each_judged(self, sent: ReportMany, judged: Sequence[Judged]) -> None:
        for each, said in zip(sent.reports, judged, strict=True):
            if said.id != each.job:
                raise Wrong(f"{sent}: answered out of order")
            each.began, each.at = sent.began, sent.at
            self._witness.reported(each, _answer_of_one(each, said))

    def _call(self, sent: Sent) -> Awaitable[Any]:
        core = self.core
        match sent:
            case Submit():
                return self._submit(sent)
            case Claim():
                return dispatch.claim(core, sent.asked)
            case Report():
                return answer_of(report(core, sent.job, sent.token, sent.call))
            case ReportMany():
                return self._report_many(sent)
            case OfJob():
                return self._of_job(sent)
            case CancelMany():
                return cancel_many(core, sent.wanted)
            case SetTenant():
                return tenancy.put_tenant(core, sent.name, sent.settings)
            case SetQueue():
                return tenancy.put_queue(core, sent.name, paused=sent.paused)
            case _:
                raise AssertionError(sent)

    async def _submit(self, sent: Submit) -> Any:
        return [submitted.job for submitted in await submit(self.core, sent.jobs)]

    def _of_job(self, sent: OfJob) -> Coroutine[Any, Any, Any]:
        core = self.core
        if sent.kind == "retry":
            return self._retry(sent)
        calls = {
            "cancel": lambda: cancel(core, sent.job),
            "prioritize": lambda: reprioritize(core, sent.job, sent.priority),
            "look": lambda: get_job(core, sent.job),
        }
        return answer_of(calls[sent.kind]())

    async def _retry(self, sent: OfJob) -> Any:
        new: list[Any] = []

        async def call() -> Any:
            new.append(await retry(self.core, sent.job))
            return new[0]

        answer = await answer_of(call())
        return new[0] if new else answer

    async def _report_many(self, sent: ReportMany) -> Sequence[Judged]:
        if sent.reports[0].call == "heartbeat":
            return await heartbeat_many(self.core, [(each.job, each.token) for each in sent.reports])
        return await finish_many(self.core, [_in_bulk(each) for each in sent.reports])

    # -- what they do

    def do(self, name: str) -> None:
        """One step."""
        getattr(self, "_" + name.replace(" ", "_") + "_step")()

    def _submit_step(self) -> None:
        self.send(self._new_batch())

    def _submit_twice_step(self) -> None:
        """Twins, or a client that does not wait."""
        batch = self._new_batch(keyed=True)
        self.send(batch)
        self.send(Submit(jobs=batch.jobs))

    def _new_batch(self, *, keyed: bool = False) -> Submit:
        chance = self._chance
        jobs = [self._new_job(keyed=keyed or chance.random() < 0.3) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        batch = Submit(jobs=jobs)
        self._witness.forms |= {job.test_suite: batch for job in jobs}
        return batch

    def _new_job(self, *, keyed: bool) -> JobRequest:
        chance = self._chance
        self._names += 1
        return JobRequest(
            tenant=chance.choice(TENANTS),
            test_suite=f"suite {self._names}",
            queue=chance.choice((*QUEUES, "default")),
            priority=chance.choice((0, 0, 3, 5, 10)),
            delay_sec=chance.choice((0, 0, 0, 1, 6)),
            cost=chance.choice((1, 1, 3)),
            max_attempts=chance.randint(1, 3),
            timeout_sec=chance.choice((None, None, 20)),
            idempotency_key=f"key {self._names}" if keyed else None,
        )

    def _claim_step(self) -> None:
        chance = self._chance
        if not self._witness.jobs and chance.random() < 0.8:
            self._submit_step()
            return
        self.send(
            Claim(
                asked=ClaimRequest(
                    worker=f"w{self._box.count + 1}",
                    queues=chance.choice((QUEUES, QUEUES[::-1], QUEUES[:1])),
                    limit=chance.choice((1, 1, 2, 4)),
                    start=chance.random() < 0.6,
                    wait_sec=chance.choice((0, 0, 10)),
                )
            )
        )

    def _report_step(self) -> None:
        """Under any token there ever was, mostly under one of the newest."""
        token = self._some_token()
        if token is not None:
            self.send(self._new_report(token, self._chance.choice(LIKELY_CALLS)))
        else:
            self._claim_step()

    def _report_many_step(self) -> None:
        tokens = [token for _ in range(self._chance.randint(1, 4)) if (token := self._some_token()) is not None]
        if tokens:
            calls: tuple[Call, ...] = ("heartbeat",) if self._chance.random() < 0.3 else ("complete", "fail")
            reports = [self._new_report(token, self._chance.choice(calls)) for token in tokens]
            self.send(ReportMany(reports=reports))

    def beat(self) -> None:
        """Every worker that holds a job beats for it."""
        for known in list(self._witness.jobs.values()):
            if known.row.token in self._witness.given:
                self.send(Report(job=known.row.id, token=known.row.token or "", call="heartbeat"))

    def _some_token(self) -> str | None:
        known = list(self._witness.given)
        if not known:
            return None
        return known[-1 - min(len(known) - 1, int(self._chance.expovariate(0.4)))]

    def _new_report(self, token: str, call: Call) -> Report:
        job = self._witness.given[token]
        return Report(job=job, token=NEVER_GIVEN if self._chance.random() < 0.02 else token, call=call)

    def _again_step(self) -> None:
        """Who got no answer sends the same thing again."""
        if self._unanswered:
            self.send(
                _the_same(self._unanswered.pop(self._chance.randrange(len(self._unanswered))), self._box.count + 1)
            )

    def _hang_up_step(self) -> None:
        waiting = self._waiting()
        claims = [sent for sent in waiting if isinstance(sent, Claim)]
        if waiting:
            self._hang_up(self._chance.choice(claims or waiting))

    def hang_up_all(self) -> list[asyncio.Task[None]]:
        """Nobody waits any longer; those who did."""
        return [self._hang_up(sent) for sent in self._waiting()]

    def under_way(self) -> list[asyncio.Task[None]]:
        """All that is not answered yet."""
        return [sent.task for sent in self._waiting() if sent.task is not None]

    def _waiting(self) -> list[Sent]:
        return [sent for sent in self._box.open.values() if sent.task is not None and not sent.task.done()]

    def _hang_up(self, sent: Sent) -> asyncio.Task[None]:
        self._witness.say(f"{sent.number}: the client hangs up")
        sent.was_hung_up = True
        self._leaves(sent)
        assert sent.task is not None
        sent.task.cancel()
        return sent.task

    def _cancel_step(self) -> None:
        self._of_some_job("cancel")

    def _prioritize_step(self) -> None:
        self._of_some_job("prioritize", priority=self._chance.randint(0, 10))

    def _retry_step(self) -> None:
        self._of_some_job("retry")

    def _look_step(self) -> None:
        self._of_some_job("look")

    def _of_some_job(self, kind: str, priority: int = 0) -> None:
        if self._witness.jobs:
            job = self._chance.choice(list(self._witness.jobs))
            self.send(OfJob(kind=kind, job=job, priority=priority))

    def _cancel_many_step(self) -> None:
        chance = self._chance
        wanted = CancelFilter(
            tenant=chance.choice(TENANTS),
            queue=chance.choice((None, *QUEUES)),
            state=chance.choice((None, State.PENDING, State.QUEUED, State.SCHEDULED, State.RUNNING)),
        )
        self.send(CancelMany(wanted=wanted))

    def _set_tenant_step(self) -> None:
        chance = self._chance
        limit = (None, 3) if self._nature.limits else (None,)
        wanted = TenantSettings(
            weight=chance.choice((1, 1, 2, 5)),
            max_running=chance.choice((None, 1, 2)),
            max_queued=chance.choice(limit),
            rate_per_sec=chance.choice((None, 0.5)) if self._nature.limits else None,
            burst=4 if self._nature.limits else None,
            paused=chance.random() < 0.2,
        )
        self.send(SetTenant(name=chance.choice(TENANTS), settings=wanted))

    def _set_queue_step(self) -> None:
        self.send(SetQueue(name=self._chance.choice(QUEUES), paused=self._chance.random() < 0.4))

    # -- what is typed

    def type_sql(self, name: str, wall: datetime) -> bool:
        """One of the statements that people may type; whether it could be written just now."""
        statement = {"type a job": self._a_job, "type a cancel": self._a_cancel, "type a setting": self._a_setting}[
            name
        ]()
        if statement is None:
            return False
        session = self._witness.file
        # The defaults of columns ask SQLite for the time and for chance.
        session.create_function("strftime", -1, lambda *_: rfc3339(wall)[:-4])
        session.create_function("randomblob", 1, self._chance.randbytes)
        try:
            session.execute(statement)
        except sqlite3.OperationalError as error:
            self._witness.say(f"typed in vain: {error}")
            return False
        self._witness.say(f"typed: {statement}")
        return True

    def _a_job(self) -> str | None:
        if "ada" not in self._witness.tenants:
            return None
        self._names += 1
        return f"INSERT INTO jobs (tenant, test_suite, priority) VALUES ('ada', 'typed {self._names}', 5)"

    def _a_cancel(self) -> str | None:
        unfinished = [known for known in self._witness.jobs.values() if known.now.state not in FINAL]
        if not unfinished:
            return None
        job = self._chance.choice(unfinished).row.id
        return (
            "UPDATE jobs SET state = 'cancelled', completed_at = submitted_at, token = NULL, lease_sec = NULL,"
            f" lease_expires_at = NULL WHERE id = '{job}'"
        )

    def _a_setting(self) -> str | None:
        chance = self._chance
        if chance.random() < 0.3:
            queue = chance.choice(QUEUES)
            self._witness.typed.add(queue)
            return f"UPDATE queues SET paused = {chance.randint(0, 1)} WHERE name = '{queue}'"
        tenant = chance.choice(TENANTS)
        self._witness.typed.add(tenant)
        return (
            f"UPDATE tenants SET weight = {chance.randint(1, 9)}, max_running = 2, paused = 0 WHERE name = '{tenant}'"
        )


def _the_same(sent: Sent, number: int) -> Sent:
    """The same request once more; a claim has a name of its own each time, by which it is known."""
    blank: dict[str, Any] = {"task": None, "is_over": False, "was_hung_up": False}
    if isinstance(sent, Claim):
        return replace(sent, asked=replace(sent.asked, worker=f"w{number}"), **blank)
    if isinstance(sent, ReportMany):
        return replace(sent, reports=[replace(each) for each in sent.reports], **blank)
    return replace(sent, **blank)


def _in_bulk(sent: Report) -> BulkReport:
    if sent.call == "complete":
        return BulkReport(id=sent.job, token=sent.token, result={"passed": 3})
    return BulkReport(id=sent.job, token=sent.token, error="it broke")


def _answer_of_one(sent: Report, said: Judged) -> Answer:
    if said.ok:
        return Answer("nothing") if sent.call == "heartbeat" else Answer("job", said.state)
    is_lost = (said.error or "").startswith("the lease is lost")
    return Answer("lost" if is_lost else "conflict", said.state)


def _shown(answer: Any) -> str:
    if isinstance(answer, Answer):
        return f"{answer.kind} {answer.state or ''}"
    if isinstance(answer, list):
        return (
            ", ".join(f"{each.id} {each.state} {(each.token or '')[:6]}" for each in answer if hasattr(each, "seq"))
            or f"{len(answer)}"
        )
    return getattr(answer, "id", None) or type(answer).__name__
