"""Two versions on one database: a schema says for whom it is, the version before goes by what it says, and each
migration keeps what it promises of itself."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from app.errors import SchemaOutdated
from app.store import copy, migrate
from app.store.copied_rows import NoCopy
from app.store.engine import open_engines
from app.store.migrate import Kind, Status
from tests.ahead import HEAD, REPOSITORY, REVISIONS, Ahead
from tests.copy.moving import ignore
from tests.copy.test_command import fairlane
from tests.databases import MIGRATED_BY, Database, Sqlite, SqliteDatabases
from tests.store.expanding import faults, structure

NOTHING = "pass"


@pytest.fixture
def ahead(tmp_path: Path) -> Ahead:
    """A version to come."""
    return Ahead.within(tmp_path)


async def usable(database: Database) -> Status:
    """What this version finds, having looked whether it may work on it."""
    async with open_engines(database.url) as engines:
        return await migrate.require_usable(engines.reader)


async def refused(database: Database) -> str:
    """Why it may not."""
    with pytest.raises(SchemaOutdated) as refusal:
        await usable(database)
    return str(refusal.value)


async def test_a_schema_of_ones_own(database: Database, empty_database: Database) -> None:
    assert await usable(database) == Status(HEAD, HEAD, ())
    assert await refused(empty_database) == (
        "the database's schema is older than this version's: run `fairlane migrate up`"
    )


async def test_a_newer_schema_that_only_expands_is_worked_on(database: Database, ahead: Ahead) -> None:
    ahead.add()
    await ahead.upgrade(database.url)
    assert await usable(database) == Status("next", HEAD, (), HEAD)
    async with open_engines(database.url) as engines:
        with pytest.raises(SchemaOutdated, match="knows only part of it"):
            await migrate.require_current(engines.reader)


async def test_a_newer_schema_that_contracts_is_refused(database: Database, ahead: Ahead) -> None:
    ahead.add(NOTHING, kind="contracting", oldest="next")
    await ahead.upgrade(database.url)
    assert await refused(database) == (
        f"the database's schema (next) is newer than this version's ({HEAD}) and takes a version of next or later:"
        " run a newer version of Fairlane"
    )


async def test_what_contracts_only_for_those_who_came_before_us_is_worked_on(database: Database, ahead: Ahead) -> None:
    ahead.add(NOTHING, kind="contracting")
    ahead.add(NOTHING, revision="later", down="next")
    await ahead.upgrade(database.url)
    assert await usable(database) == Status("later", HEAD, (), HEAD)


@pytest.mark.parametrize(
    "silence",
    ["UPDATE alembic_version SET oldest_code = NULL", "ALTER TABLE alembic_version DROP COLUMN oldest_code"],
)
async def test_a_newer_schema_that_says_nothing_is_refused(database: Database, ahead: Ahead, silence: str) -> None:
    ahead.add()
    await ahead.upgrade(database.url)
    await database.execute(silence)
    assert "newer than this version's" in await refused(database)
    assert "does not say it takes older" in await refused(database)

    await ahead.upgrade(database.url)  # whoever knows it says it again
    assert (await usable(database)).is_usable


async def test_a_downgrade_says_it_anew(database: Database, ahead: Ahead) -> None:
    ahead.add(back='run("DROP TABLE labels")')
    ahead.add(NOTHING, revision="last", down="next", kind="contracting", oldest="last")
    await ahead.upgrade(database.url)
    await refused(database)
    for revision in ("next", HEAD):
        with ahead.known():
            await migrate.downgrade(database.url, revision)
        assert (await usable(database)).current == revision
    said = await database.value("SELECT oldest_code FROM alembic_version")
    assert said == migrate.step_to(HEAD).oldest_code


async def test_an_older_version_leaves_a_newer_schema_as_it_is(database: Database, ahead: Ahead) -> None:
    ahead.add()
    await ahead.upgrade(database.url)
    before = await structure(database)
    await migrate.upgrade(database.url)  # as the job of a deployment that is rolled back does
    for revision in (REVISIONS[-2], migrate.BASE):
        with pytest.raises(SchemaOutdated, match="run the newer version"):
            await migrate.downgrade(database.url, revision)
    assert await structure(database) == before
    await database.execute("UPDATE alembic_version SET oldest_code = 'next'")
    with pytest.raises(SchemaOutdated, match="takes a version of next"):
        await migrate.upgrade(database.url)


async def test_nothing_is_copied_that_is_not_wholly_known(database: Database, ahead: Ahead, tmp_path: Path) -> None:
    """What a newer version keeps in columns of its own would stay behind without a word."""
    ahead.add()
    await ahead.upgrade(database.url)
    other = f"sqlite:///{tmp_path}/other.db"
    for called, source, target in (("FROM", database.url, other), ("TO", other, database.url)):
        await migrate.upgrade(other)
        with pytest.raises(NoCopy, match=f"{called}, .* cannot be used: .* knows only part of it"):
            await copy.copy(source, target, ignore)


async def test_a_copy_says_for_whom_it_is(database: Database, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    await copy.copy(database.url, other, ignore)
    said = await Sqlite(tmp_path / "other.db").fetch("SELECT version_num, oldest_code FROM alembic_version")
    assert said == [(HEAD, migrate.step_to(HEAD).oldest_code)]


async def test_the_command_line_says_it(database: Database, empty_database: Database, ahead: Ahead) -> None:
    async def status(of: Database, code: int) -> str:
        return await asyncio.to_thread(fairlane, "migrate", "status", "--database-url", of.url, code=code)

    assert "missing: 0002, expanding: from then on only versions of 0001 or later may run\n" in await status(
        empty_database, 1
    )
    assert await status(database, 0) == f"schema at {HEAD}; this version wants {HEAD}\n"
    ahead.add()
    await ahead.upgrade(database.url)
    wants = f"schema at next; this version wants {HEAD}\n"
    assert await status(database, 0) == f"{wants}newer than this version, which may go on to work on it\n"
    told = await asyncio.to_thread(fairlane, "migrate", "up", "--database-url", database.url)
    assert told == "schema at next: nothing to do\n"
    await database.execute("UPDATE alembic_version SET oldest_code = 'next'")
    assert await status(database, 1) == f"{wants}newer than this version, which may not work on it\n"


def test_the_tests_can_be_run_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIGRATED_BY, f"{sys.executable} -m tests.ahead")
    monkeypatch.chdir(REPOSITORY)
    database = SqliteDatabases(tmp_path).create()
    assert asyncio.run(migrate.status(database.url)) == Status("next", HEAD, (), HEAD)


# --- what each migration says of itself ---


def test_each_migration_says_who_may_work_on_what_it_makes() -> None:
    given_up = ""
    for before, revision in zip(("", *REVISIONS), REVISIONS, strict=False):
        step = migrate.step_to(revision)
        assert given_up <= step.oldest_code <= revision, revision
        if step.kind is Kind.EXPANDING:
            assert step.oldest_code <= before, f"{revision} expands, so {before} goes on to work on it"
        else:
            assert step.oldest_code > given_up, f"{revision} contracts, but gives nobody up"
        given_up = step.oldest_code


def test_each_migration_says_in_which_release_it_comes() -> None:
    numbers = [[int(number) for number in migrate.step_to(revision).release.split(".")] for revision in REVISIONS]
    assert numbers == sorted(numbers)


# On SQLite 0006 says in other words what is refused; test_other_words.py holds that it is the same.
IN_OTHER_WORDS = {
    ("sqlite", "0006"): re.compile(
        r"constraint ck_\w+_(times|ids|json|flags|state|outcome) of \w+ has changed"
        r"|trigger tr_jobs_(legal_move|final|identity|request|priority) of jobs has changed"
    )
}


async def test_what_says_that_it_expands_does_no_more(empty_database: Database) -> None:
    for revision in REVISIONS:
        before = await structure(empty_database)
        await migrate.upgrade(empty_database.url, revision)
        if migrate.step_to(revision).kind is Kind.EXPANDING:
            found = faults(before, await structure(empty_database))
            if said := IN_OTHER_WORDS.get((empty_database.kind, revision)):
                found = [fault for fault in found if not said.fullmatch(fault)]
            assert found == [], revision


async def test_there_is_something_to_be_found(empty_database: Database) -> None:
    await migrate.upgrade(empty_database.url, "0003")
    before = await structure(empty_database)
    assert len(before) > 150
    await migrate.upgrade(empty_database.url, "0004")
    assert "trigger tr_jobs_first_state of jobs has changed" in faults(before, await structure(empty_database))


async def test_a_model_expansion_has_no_fault(database: Database, ahead: Ahead) -> None:
    before = await structure(database)
    ahead.add()
    await ahead.upgrade(database.url)
    after = await structure(database)
    assert after != before
    assert faults(before, after) == []


FAULTS = [
    ("ALTER TABLE copies DROP COLUMN position", "column position of copies is gone"),
    ("ALTER TABLE lanes RENAME COLUMN virtual_time TO vtime", "column virtual_time of lanes is gone"),
    ("ALTER TABLE copies RENAME TO moves", "column begun_at of copies is gone"),
    ("DROP INDEX ix_jobs_pending", "index ix_jobs_pending of jobs is gone"),
    ("DROP VIEW report_workers", "column worker of report_workers is gone"),
    (
        "ALTER TABLE api_keys ADD COLUMN owner TEXT DEFAULT NULL CONSTRAINT ck_api_keys_owner CHECK (owner <> name)",
        "constraint ck_api_keys_owner of api_keys refuses what it may write to name",
    ),
    (
        "CREATE UNIQUE INDEX uq_api_keys_name ON api_keys (name)",
        "unique index uq_api_keys_name of api_keys refuses what it may write to name",
    ),
    (
        "CREATE TABLE labels (tenant TEXT CONSTRAINT fk_labels_tenant_tenants REFERENCES tenants (name))",
        "constraint fk_labels_tenant_tenants of labels keeps it from deleting rows of tenants",
    ),
]
ON_POSTGRES = [
    (
        "ALTER TABLE copies ADD COLUMN why TEXT NOT NULL",
        "column why of copies must be given, and it does not know that",
    ),
    ("ALTER TABLE jobs ALTER COLUMN payload SET NOT NULL", "column payload of jobs has changed"),
    (
        "CREATE TRIGGER tr_tenants_fixed BEFORE UPDATE ON tenants FOR EACH ROW EXECUTE FUNCTION fairlane_refuse('x')",
        "trigger tr_tenants_fixed of tenants refuses what it may write",
    ),
    ("DROP FUNCTION fairlane_refuse_unless CASCADE", "function fairlane_refuse_unless is gone"),
]
ON_SQLITE = [
    (
        "CREATE TRIGGER tr_tenants_fixed BEFORE UPDATE ON tenants BEGIN SELECT RAISE(ABORT, 'x'); END",
        "trigger tr_tenants_fixed of tenants refuses what it may write",
    ),
]


@pytest.mark.parametrize(("statement", "fault"), FAULTS)
async def test_a_fault_is_found(database: Database, statement: str, fault: str) -> None:
    await _finds(database, statement, fault)


@pytest.mark.parametrize(("statement", "fault"), ON_POSTGRES)
async def test_a_fault_on_postgres_is_found(postgres: Database, statement: str, fault: str) -> None:
    await _finds(postgres, statement, fault)


@pytest.mark.parametrize(("statement", "fault"), ON_SQLITE)
async def test_a_fault_on_sqlite_is_found(sqlite: Database, statement: str, fault: str) -> None:
    await _finds(sqlite, statement, fault)


async def _finds(database: Database, statement: str, fault: str) -> None:
    before = await structure(database)
    await database.execute(statement)
    assert fault in faults(before, await structure(database))
