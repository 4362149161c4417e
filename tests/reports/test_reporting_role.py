"""The role for analysts, on the real Postgres: it reads the reports, writes nothing, sees no secret, and is stopped by
its timeout; its password is shown nowhere."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.errors import BadSettings
from app.store.reporting_role import ReportingRole, scram_verifier
from tests.databases import POSTGRES_URL, Database, Databases, Postgres, Refused, run_apart
from tests.reports.looking import VIEWS
from tests.reports.sample import STORIES

PASSWORD = "correct horse battery staple"  # noqa: S105


@pytest.fixture
def sample(both: tuple[Database, Database]) -> Database:
    """The sample on Postgres."""
    return both[1]


@pytest.fixture
def name(sample: Database) -> Iterator[str]:
    """A role's name that nobody uses, and that needs quoting. Roles are the whole server's."""
    made = f'an "Analyst" {uuid4().hex[:8]}'
    yield made
    if POSTGRES_URL in os.environ:
        quoted = made.replace('"', '""')
        run_apart(sample.execute(f'DROP OWNED BY "{quoted}"', f'DROP ROLE "{quoted}"'))


async def reporting_role(database: Database, *arguments: str, code: int = 0, password: str = PASSWORD) -> Result:
    """Run the command, and insist on its exit code and on its saying nothing of the password."""
    environ = {"FAIRLANE_DATABASE_URL": database.url, "FAIRLANE_REPORTING_PASSWORD": password}
    return await invoke(environ, "reporting-role", *arguments, code=code)


async def invoke(environ: dict[str, str], *arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    """Run a command beside this loop: it has one of its own."""
    run = partial(CliRunner().invoke, main, arguments, env=environ, input=stdin, prog_name="fairlane")
    result = await asyncio.to_thread(run)
    assert result.exit_code == code, (result.output, result.exception)
    assert PASSWORD not in result.output
    return result


def as_role(database: Database, name: str) -> Postgres:
    """The database, to whom the role is. The tests' server asks for no password."""
    parts = urlsplit(database.url)
    host = parts.netloc.rpartition("@")[2]
    return Postgres(urlunsplit(parts._replace(netloc=f"{quote(name)}:{quote(PASSWORD)}@{host}")))


async def test_it_reads_every_report_and_nothing_else(sample: Database, name: str) -> None:
    await reporting_role(sample, name)
    analyst = as_role(sample, name)

    for view in VIEWS:
        assert await analyst.fetch(f"SELECT * FROM {view}") == await sample.fetch(f"SELECT * FROM {view}")
    assert await analyst.fetch("SELECT until FROM rollups") == [(None,)]
    for table in ("jobs", "job_attempts", "tenants", "queues", "lanes", "dispatcher", "pg_authid"):
        with pytest.raises(Refused, match="permission denied"):
            await analyst.fetch(f"SELECT * FROM {table}")


async def test_it_writes_nothing_not_even_when_it_says_that_it_would(sample: Database, name: str) -> None:
    await reporting_role(sample, name)
    analyst = as_role(sample, name)

    for statement in (
        "INSERT INTO tenants (name) VALUES ('x')",
        "UPDATE rollups SET until = now()",
        "DELETE FROM hourly_tenants",
        "UPDATE report_job_waits SET priority = 0",
        "CREATE TABLE mine (x int)",
        "CREATE TEMP TABLE mine (x int)",
    ):
        with pytest.raises(Refused, match=r"read-only transaction|permission denied for view"):
            await analyst.execute(statement)
        if "TEMP" not in statement:
            with pytest.raises(Refused, match=r"permission denied|cannot update view"):
                await analyst.execute("SET TRANSACTION READ WRITE", statement)


async def test_a_statement_that_takes_long_is_stopped(sample: Database, name: str) -> None:
    await reporting_role(sample, name, "--timeout", "1")

    with pytest.raises(Refused, match="canceling statement due to statement timeout"):
        await as_role(sample, name).fetch("SELECT pg_sleep(60)")


async def test_whole_jobs_are_shown_if_asked_but_no_secret(sample: Database, name: str) -> None:
    await reporting_role(sample, name, "--whole-jobs")
    analyst = as_role(sample, name)

    assert len(await analyst.fetch("SELECT payload, result, error FROM jobs")) == len(STORIES)
    assert await analyst.fetch("SELECT error FROM job_attempts")
    for column, table in (("token", "jobs"), ("token", "job_attempts"), ("idempotency_key", "jobs")):
        with pytest.raises(Refused, match="permission denied"):
            await analyst.fetch(f"SELECT {column} FROM {table}")

    await reporting_role(sample, name)  # and no more
    with pytest.raises(Refused, match="permission denied"):
        await analyst.fetch("SELECT payload FROM jobs")


async def test_the_command_reads_reports_as_this_role(sample: Database, name: str) -> None:
    await reporting_role(sample, name)
    environ = {"FAIRLANE_DATABASE_URL": as_role(sample, name).url}

    printed = (await invoke(environ, "report", "queue-depth", "--format", "csv")).stdout

    assert len(printed.splitlines()) == 4


async def test_a_dry_run_prints_what_would_be_done_and_does_nothing(sample: Database, name: str) -> None:
    printed = (await reporting_role(sample, name, "--dry-run")).stdout
    quoted = name.replace('"', '""')
    assert f'CREATE ROLE "{quoted}" LOGIN NOSUPERUSER' in printed
    assert "PASSWORD '***'" in printed
    assert await sample.fetch(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'") == []

    await sample.execute(*printed.replace("PASSWORD '***'", "").split(";\n")[:-1])
    assert len(await as_role(sample, name).fetch("SELECT * FROM report_queue_depth")) == 3


async def test_another_run_brings_the_role_into_line(sample: Database, name: str) -> None:
    kept = f"SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"
    await reporting_role(sample, name)
    first = await sample.value(kept)

    assert "ALTER ROLE" in (await reporting_role(sample, name, "--dry-run")).stdout
    await reporting_role(sample, name, "--keep-password", "--timeout", "7")
    assert await sample.value(kept) == first
    assert await as_role(sample, name).fetch("SHOW statement_timeout") == [("7s",)]

    await reporting_role(sample, name, password="another password")  # noqa: S106
    assert await sample.value(kept) != first


async def test_a_role_of_somebody_elses_is_left_alone(sample: Database) -> None:
    me = await sample.value("SELECT current_user")
    assert "was not made here" in (await reporting_role(sample, me, code=1)).stderr


async def test_who_has_no_right_is_told_so(sample: Database, name: str) -> None:
    quoted = name.replace('"', '""')
    await sample.execute(f'CREATE ROLE "{quoted}" LOGIN', f'GRANT SELECT ON alembic_version TO "{quoted}"')
    somebody = as_role(sample, name)

    told = (await reporting_role(somebody, "another", code=1)).stderr
    assert "the role in FAIRLANE_DATABASE_URL may not do that: permission denied to create role" in told
    assert "it must own the tables and have CREATEROLE" in told

    told = (await invoke({"FAIRLANE_DATABASE_URL": somebody.url}, "report", "workers", code=1)).stderr
    assert told.startswith("Error: this role may not read reports; `fairlane reporting-role` makes one that may")


async def assert_kept(database: Database, role: str, password: str) -> None:
    """What the server keeps of the role's password is of this one."""
    kept = await database.value(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'")
    salt = base64.b64decode(kept.split("$")[1].partition(":")[2])
    assert scram_verifier(password, salt) == kept


async def test_the_password_is_kept_as_the_server_itself_would_keep_it(sample: Database, name: str) -> None:
    role = f"plain {uuid4().hex[:8]}"
    await sample.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD '{PASSWORD}'")
    try:
        await assert_kept(sample, role, PASSWORD)
    finally:
        await sample.execute(f'DROP ROLE "{role}"')

    await reporting_role(sample, name)
    await assert_kept(sample, name, PASSWORD)


async def test_the_password_is_asked_for_and_not_shown(sample: Database, name: str) -> None:
    await invoke({"FAIRLANE_DATABASE_URL": sample.url}, "reporting-role", name, stdin=f"{PASSWORD}\n{PASSWORD}\n")
    await assert_kept(sample, name, PASSWORD)


@pytest.mark.parametrize("password", ["", "short", "twelve bytes\n", "pässword-pässword", "nul \0 in the middle"])
def test_a_password_that_cannot_be_is_refused_without_repeating_it(password: str) -> None:
    with pytest.raises(BadSettings, match="at least 12 characters, all of them printable ASCII") as refused:
        scram_verifier(password)
    assert password == "" or password not in str(refused.value)


@pytest.mark.parametrize("name", ["", "x" * 64, "pg_monitor", "a\nb"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match="a role's name has 1 to 63 bytes"):
        ReportingRole(name, None, 1)


async def test_sqlite_has_no_roles(sqlite_databases: Databases) -> None:
    database = sqlite_databases.create()
    assert "SQLite knows no roles" in (await reporting_role(database, "analyst", code=2)).stderr
    sqlite_databases.drop(database)


_OWN_ALL = """
DO $$
DECLARE item record;
BEGIN
    FOR item IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') LOOP
        EXECUTE format('ALTER TABLE %I OWNER TO {owner}', item.relname);
    END LOOP;
    ALTER FUNCTION report_rolled_until() OWNER TO {owner};
    EXECUTE format('ALTER DATABASE %I OWNER TO {owner}', current_database());
END $$"""


@pytest.fixture
def empty(postgres_databases: Databases) -> Iterator[Database]:
    """A Postgres without jobs, whose owner may change."""
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)


async def test_an_owner_who_is_no_superuser_makes_it_and_brings_it_into_line(empty: Database, name: str) -> None:
    owner = f"owner_{uuid4().hex[:8]}"
    quoted = name.replace('"', '""')
    await empty.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE PASSWORD '{PASSWORD}'", _OWN_ALL.format(owner=owner))
    try:
        await reporting_role(as_role(empty, owner), name)
        await reporting_role(as_role(empty, owner), name, "--timeout", "7", "--whole-jobs")
        assert await as_role(empty, name).fetch("SHOW statement_timeout") == [("7s",)]
        assert await as_role(empty, name).fetch("SELECT payload FROM jobs") == []
    finally:
        await empty.execute(
            f'DROP OWNED BY "{quoted}"',
            f"REASSIGN OWNED BY {owner} TO CURRENT_USER",
            f"DROP OWNED BY {owner}",
            f"DROP ROLE {owner}",
        )
