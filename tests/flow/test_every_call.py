"""Each call to the database fails once, in every operation: its caller is told in our own words, those beside it are
stored or told too, memory is what the database says, and the same thing asked again is done, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from app import main
from app.errors import Unavailable
from app.flow import look
from app.flow.look import JobFilter
from app.store import transaction
from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.flow.calls import FAULTS, Fault, failing_call
from tests.flow.harness import Running, answers_of, service
from tests.flow.operations import OPERATIONS, Operation, Trial, auditing
from tests.flow.views import assert_memory_equals_sql


@pytest.mark.torture
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__.replace("_", " "))
async def test_any_call_to_the_database_may_fail(
    database: Database, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in turn with each fault; or, with little effort, every third or so, with a fault chosen at random."""
    chance, place = chance_of(f"{operation.__name__} on {database.kind}"), 0
    every = [(fault, is_spoiled) for fault in FAULTS[database.kind] for is_spoiled in (False, True)]
    monkeypatch.setattr(transaction, "SENT_AHEAD", 2)  # a batch of three is two calls
    monkeypatch.setattr(main, "_rounds", lambda _: ())  # what a housekeeper does meanwhile is not at one moment with us
    async with service(database, retention_days=1, metrics_queues=10_000) as running:  # each trial has a queue
        is_met = True
        while is_met:
            place += 1 if EFFORT > 1 else chance.randint(1, 5)
            chosen = every if EFFORT > 1 else [chance.choice(every)]
            is_met = any([await failed_at(running, database, operation, place, *each) for each in chosen])


async def failed_at(
    running: Running,
    database: Database,
    operation: Operation,
    place: int,
    fault: Fault,
    is_spoiled: bool,  # noqa: FBT001
) -> bool:
    """Try it while the call at this place fails; whether there is such a call. Beside a write that the database
    refuses, a group is run write by write."""
    core, name = running.core, f"{place} {fault.name}{' beside a bad row' * is_spoiled}"
    async with operation(Trial(running, database, name)) as act:
        beside = [running.submit("beside", f"{name} {n}", queue="beside") for n in range(2)]
        bad = [running.submit("a/b")] if is_spoiled else []
        with failing_call(core, place, fault) as call:
            before, answer, after, *refused = await answers_of(
                [asyncio.ensure_future(each) for each in (beside[0], act(), beside[1], *bad)]
            )
        where = f"{name}: {call.met}"
        assert not isinstance(answer, BaseException) or isinstance(answer, Unavailable), where
        assert all(isinstance(each, (IntegrityError, Unavailable)) for each in refused), where
        await running.tick()
        if operation is not auditing:
            await assert_memory_equals_sql(core)
        for n, told in enumerate((before, after)):
            await assert_stored_or_told(running, f"{name} {n}", told)
        await act()
        await assert_memory_equals_sql(core)
    await assert_memory_equals_sql(core)
    return call.met is not None


async def assert_stored_or_told(running: Running, name: str, answer: Any) -> None:
    """Who was told of a success has one job; who was told of a failure may have one."""
    stored = (await look.list_jobs(running.core, JobFilter(test_suite=name))).jobs
    if isinstance(answer, BaseException):
        assert isinstance(answer, Unavailable)
        assert len(stored) <= 1
    else:
        assert [job.id for job in stored] == [answer.id]
