"""Each statement on jobs and attempts that a moment of a job's life sends, planned as it was really sent, beside a
history: it finds its rows by the one index that was made for it, on both engines, with statistics and without."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import getmembers, isfunction, signature
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.clock import rfc3339
from app.flow import look
from app.flow.look import JobFilter
from app.flow.retention import retire
from app.flow.submit import JobRequest
from app.scheduling.job import State
from app.store import attempts, jobs
from app.store.engine import Engines, open_engines
from app.store.rollups import hour_of
from app.store.schema import UQ_JOBS_IDEMPOTENCY_KEY
from app.store.transaction import Transaction
from app.store.writer import PLANS_LAST
from tests.api.asgi import app_of, client_of
from tests.databases import Database, Databases, run_apart
from tests.flow.harness import HOUR, FakeClock, Running, service
from tests.flow.operations import OPERATIONS, Trial, retiring
from tests.reports.million import END, fill

FINISHED: Final = 12_000
WAITING: Final = 1_000

PK_JOBS: Final = "pk_jobs"
BY_ID: Final = "uq_jobs_id"
PK_ATTEMPTS: Final = "pk_job_attempts"
LISTED: Final = tuple(f"ix_jobs_{name}_seq" for name in ("tenant", "state", "queue", "test_suite"))
OF_TENANT: Final = LISTED[0]

HOT: Final[dict[str, tuple[str, ...]]] = {
    # a submit
    "numbers._draw": (PK_JOBS,),  # the highest number that there is, for SQLite
    "jobs.with_keys": (UQ_JOBS_IDEMPOTENCY_KEY,),
    # rows of new jobs, for which SQLite looks for what they would orphan; starts, and ends with their attempts
    "parts.write": (BY_ID, PK_ATTEMPTS),
    "conclusion._commit_on_sqlite": (BY_ID, PK_ATTEMPTS),
    "conclusion._commit_on_postgres": (BY_ID, PK_ATTEMPTS, "pk_dispatcher"),
    # a lease and its end
    "jobs.claim_if_queued": (BY_ID,),
    "jobs.renew_if_held": (BY_ID,),
    "jobs.with_ids": (BY_ID,),
    "jobs.get": (BY_ID,),
    "jobs.move_if_unchanged": (BY_ID,),
    "jobs.reprioritize_if_unchanged": (BY_ID,),
    "attempts.outcomes_under": (PK_ATTEMPTS, "uq_job_attempts_token"),
    "jobs.newest_seq": (PK_JOBS,),
    "jobs.unfinished": (OF_TENANT,),
    # a tick
    "jobs.next_due": ("ix_jobs_pending",),
    "jobs.due": ("ix_jobs_pending",),
    "jobs.promote_if_pending": (BY_ID,),
    # jobs leave the history
    "jobs.finished_before": ("ix_jobs_finished", PK_ATTEMPTS),
    "jobs.finished_of": (OF_TENANT, PK_ATTEMPTS),
    "jobs.delete_if_finished": (BY_ID, PK_ATTEMPTS),
    "jobs.has_any": (OF_TENANT,),
    # somebody looks
    "jobs.with_seqs": (PK_JOBS,),
    "jobs.page": (PK_JOBS, *LISTED),
    "jobs.count_by_worker": ("ix_jobs_active",),
    "jobs.places": (BY_ID,),
    "attempts.of_job": (PK_ATTEMPTS,),
}
"""By which indexes each may find its rows. Whatever a job, a tick or somebody who looks has the database asked enters
here."""

_INSERT: Final = {"parts.write", "conclusion._commit_on_sqlite", "conclusion._commit_on_postgres"}

_OF_ONE: Final = {
    "sqlite": {"numbers._draw", "conclusion._commit_on_sqlite"},
    "postgresql": {"conclusion._commit_on_postgres"},
}
"""What only one of the engines is sent, or only by it looks at jobs."""

SLOW: Final[dict[str, str]] = {
    "jobs.queued": "a start reads all that wait",
    "jobs.leased": "a start reads all leases",
    "jobs.count_pending": "a start and the audit count",
    "jobs.count_finished": "a start counts",
    "jobs.queued_places": "the audit looks at all that wait",
    "jobs.lease_tokens": "the audit looks at all leases",
    "jobs.count_unfinished": "the audit counts",
    "jobs.count_by_state": "the audit counts",
    "jobs.count_between": "the audit counts, a part at a time",
    "jobs.count_leased": "the audit has found a difference",
    "jobs.count_of": "a tenant is erased",
    "rollups.figures": "an hour is rolled up",
    "rollups.next_change": "an hour is rolled up",
    "slices.in_slices": "the audit looks at much, a part at a time",
}
"""Why the others may look at more rows."""


class Sent(NamedTuple):
    """A statement as the driver got it, with values of its own, the function of `app.store` that has sent it, and
    whether the writer did."""

    name: str
    sql: str
    parameters: Any
    by_writer: bool


@pytest.fixture(scope="module")
def history(databases: Databases) -> Iterator[Database]:
    """A month of finished jobs, and no statistics of them."""
    made = databases.create()
    run_apart(_take_no_statistics(made))
    run_apart(fill(made, FINISHED, is_analyzed=False))
    run_apart(made.execute(f"UPDATE rollups SET until = '{rfc3339(hour_of(END))}'"))  # it would take minutes
    yield made
    databases.drop(made)


async def _take_no_statistics(database: Database) -> None:
    if database.kind == "postgres":
        tables = ("jobs", "job_attempts")
        await database.execute(*(f"ALTER TABLE {table} SET (autovacuum_enabled = off)" for table in tables))


@pytest.fixture(scope="module")
async def sent(history: Database) -> list[Sent]:
    """What every operation sends, once each."""
    found: dict[tuple[str, str], Sent] = {}
    async with service(history, clock=FakeClock(END), retention_days=30) as running:
        await _wait_in_every_way(running)
        with _listening(running.core.engines, found):
            for operation in OPERATIONS:
                if operation is not retiring:  # it takes the whole history away
                    async with operation(Trial(running, history, operation.__name__)) as act:
                        await act()
            await _retire_some(running)
            await _look(running)
    return [each for each in found.values() if re.search(r"\b(jobs|job_attempts)\b", each.sql)]


async def _wait_in_every_way(running: Running) -> None:
    """A thousand jobs each that are queued, pending and leased, some of them submitted under keys."""
    for delay_sec in (0, 0, 1000 * HOUR):
        await running.submit_all(
            JobRequest(
                tenant=f"t{n % 50}", test_suite="s", delay_sec=int(delay_sec), idempotency_key=f"{delay_sec} {n}"
            )
            for n in range(WAITING)
        )
    await running.claim(WAITING, lease_sec=3600)


async def _retire_some(running: Running) -> None:
    await running.roll_all_up()
    await retire(running.core)


async def _look(running: Running) -> None:
    one: dict[str, Any] = {"tenant": "t7", "queue": "gpu", "test_suite": "suites/7", "state": State.FAILED}
    wanted: dict[str, Any]
    for wanted in ({}, *({name: value} for name, value in one.items()), one):
        for after_seq in (None, 1000):
            await look.list_jobs(running.core, JobFilter(**wanted, after_seq=after_seq))
    async with running.core.reading() as connection:
        await jobs.places(connection, [f"{number:032x}" for number in range(100)])  # for a worker's key
    async with client_of(app_of(running)) as client:
        for path in ("/", "/stats", "/metrics", "/jobs", "/jobs?state=queued"):
            answer = await client.get(path)
            assert answer.is_success, (path, answer.status_code)


@contextmanager
def _listening(engines: Engines, found: dict[tuple[str, str], Sent]) -> Iterator[None]:
    sender: ContextVar[str] = ContextVar("sender")

    def naming(method: str) -> Any:
        send = getattr(AsyncConnection, method)

        async def sending(*args: Any, **kw: Any) -> Any:
            sender.set(_sender())
            return await send(*args, **kw)

        return sending

    def note(connection: Connection, _cursor: object, sql: str, parameters: Any, *_rest: object) -> None:
        by_writer = connection.engine is engines.writer.sync_engine
        found.setdefault((sender.get(""), sql), Sent(sender.get(""), sql, parameters, by_writer))

    with pytest.MonkeyPatch.context() as patch:
        for method in ("execute", "stream"):
            patch.setattr(AsyncConnection, method, naming(method))
        both = (engines.writer.sync_engine, engines.reader.sync_engine)
        for engine in both:
            event.listen(engine, "before_cursor_execute", note)
        try:
            yield
        finally:
            for engine in both:
                event.remove(engine, "before_cursor_execute", note)


def _sender() -> str:
    """The innermost function of `app.store` at work that is no service to the others; if there is none, what is."""
    names = list[str]()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parts[-3:-1] == ("app", "store"):
            names.append(f"{path.stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return next((name for name in names if not name.startswith(("dialect.", "many.", "slices."))), *names[-1:])


async def test_how_many_there_are_is_told_without_asking_the_database(database: Database) -> None:
    found: dict[tuple[str, str], Sent] = {}
    async with service(database) as running, client_of(app_of(running)) as client:
        await running.submit()
        with _listening(running.core.engines, found):
            for path in ("/stats", "/metrics"):
                assert (await client.get(path)).is_success
    assert found == {}


# What SQLite calls the indexes of keys.
_ITS_OWN: Final = {
    "sqlite_autoindex_jobs_1": BY_ID,
    "sqlite_autoindex_job_attempts_1": PK_ATTEMPTS,
    "sqlite_autoindex_job_attempts_2": "uq_job_attempts_token",
}
_WHOLE: Final = "the whole table"


def test_every_statement_is_in_one_of_the_tables() -> None:
    known = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (jobs, attempts)
        for name, function in getmembers(module, isfunction)
        if function.__module__ == module.__name__ and "connection" in signature(function).parameters
    }
    assert known - HOT.keys() - SLOW.keys() == set(), "say how it finds its rows, or why it need not"
    assert HOT.keys() & SLOW.keys() == set()


@pytest.mark.parametrize("has_statistics", [False, True], ids=["without statistics", "with statistics"])
async def test_a_hot_statement_finds_its_rows_by_its_index(
    history: Database,
    sent: list[Sent],
    has_statistics: bool,  # noqa: FBT001
) -> None:
    if has_statistics:
        await history.execute("ANALYZE")
    wrong, met = list[str](), set[str]()
    async with open_engines(history.url) as engines:
        for each in sent:
            if each.name in SLOW:
                continue
            met.add(each.name)
            for plan in await _plans(engines, each):
                looks = _looks(engines, plan, each.sql)
                if not looks <= set(HOT.get(each.name, ())) or not (looks or each.name in _INSERT):
                    wrong.append(f"{each.name}: {each.sql}\n{plan}")
    assert wrong == []
    others = {name for dialect, names in _OF_ONE.items() if dialect != engines.dialect for name in names}
    assert HOT.keys() - met - others == set(), "no operation here sends these"


async def _plans(engines: Engines, each: Sent) -> list[str]:
    """How the statement is done with the values it had; by Postgres, if the writer sends it, for any values."""
    if engines.dialect == "sqlite":
        return [await _explained(engines, "EXPLAIN QUERY PLAN " + each.sql, each.parameters)]
    if not each.by_writer:
        return [await _explained(engines, "EXPLAIN " + each.sql, each.parameters)]
    return [
        await _explained(
            engines,
            _of_any_values("sent", each.sql),
            (),
            before=("SET LOCAL plan_cache_mode = force_generic_plan", "PREPARE sent AS " + each.sql),
            after="DEALLOCATE sent",
        )
    ]


def _of_any_values(name: str, sql: str) -> str:
    """Asks how a prepared statement is done."""
    nulls = ", ".join(["NULL"] * len(set(re.findall(r"\$\d+", sql))))
    return f'EXPLAIN EXECUTE "{name}"' + (f"({nulls})" if nulls else "")


async def _explained(
    engines: Engines, sql: str, parameters: Any, *, before: tuple[str, ...] = (), after: str = ""
) -> str:
    async with engines.reader.begin() as connection:
        for statement in before:
            await connection.exec_driver_sql(statement)
        rows = (await connection.exec_driver_sql(sql, parameters)).all()
        if after:
            await connection.exec_driver_sql(after)
    return "\n".join(str(row[-1]) for row in rows)


@pytest.fixture
def new_database(databases: Databases) -> Iterator[Database]:
    """One of which nobody has taken statistics: of a kept one somebody may have, when it was full of other jobs."""
    made = databases.create()
    yield made
    databases.drop(made)


async def test_no_plan_is_kept_from_when_there_was_little(new_database: Database) -> None:
    """A service begins with empty tables and has much to do before anybody takes statistics of them."""
    await _take_no_statistics(new_database)
    async with service(new_database) as running:
        of_the_start = await running.core.write(_kept_plans)
        for new_jobs in (1, 1, *[PLANS_LAST] * 4, 1):
            await _submit_and_finish_one(running, new_jobs)
        plans = await running.core.write(_kept_plans)
        looks = {sql: _looks(running.core.engines, plan, "") for sql, plan in plans.items() if sql not in of_the_start}
    assert [plans[sql] for sql, found in looks.items() if _WHOLE in found] == []
    assert new_database.kind == "sqlite" or {BY_ID, PK_ATTEMPTS} <= set().union(*looks.values())


async def _submit_and_finish_one(running: Running, new_jobs: int) -> None:
    await running.submit_all(JobRequest(tenant="t", test_suite="s") for _ in range(new_jobs))
    await running.complete(await running.claim_one(start=True))


async def _kept_plans(tx: Transaction) -> dict[str, str]:
    """What Postgres has prepared for this connection, and how it would do that."""
    connection = await tx.reading()
    if connection.dialect.name == "sqlite":
        return {}
    prepared = (await connection.execute(_PREPARED)).all()
    explained = [await connection.exec_driver_sql(_of_any_values(name, sql)) for name, sql in prepared]
    plans = ["\n".join(line for (line,) in each) for each in explained]
    return {sql: plan for (_, sql), plan in zip(prepared, plans, strict=True)}


_PREPARED: Final = text(
    r"SELECT name, statement FROM pg_prepared_statements WHERE statement ~ '\m(jobs|job_attempts)\M'"
)


def _looks(engines: Engines, plan: str, sql: str) -> set[str]:
    """The indexes by which a plan finds jobs and attempts."""
    if engines.dialect == "sqlite":
        found = re.findall(r"(?:SEARCH|SCAN) (jobs|job_attempts)\b(?: USING (.*))?", plan)
        return {_index_on_sqlite(table, how, sql) for table, how in found}
    scans = re.findall(r"(?:Index(?: Only)? Scan(?: Backward)? using|Bitmap Index Scan on) (\S+)", plan)
    wholes = re.findall(r"Seq Scan on (?:jobs|job_attempts)\b", plan)
    return {*scans, *(_WHOLE for _ in wholes)}


def _index_on_sqlite(table: str, how: str, sql: str) -> str:
    if named := re.match(r"(?:COVERING )?INDEX (\S+)", how):
        return _ITS_OWN.get(named[1], named[1])
    # Its primary key is the table itself, which is also walked through for the last number, or for a page.
    is_key = "PRIMARY KEY" in how or "max(" in sql or re.search(r"ORDER BY jobs\.seq(?: DESC)?\s+LIMIT", sql)
    return f"pk_{table}" if is_key else _WHOLE
