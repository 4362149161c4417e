"""`fairlane copy` and `fairlane reopen` beside real servers: what they refuse, in which words, and how life goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from app.cli import main
from app.errors import NotServed
from app.main import running
from app.settings import without_password
from app.store import migrate
from tests.api.asgi import app_of, client_of
from tests.cli.running import Fairlane, environ
from tests.copy.moving import Pair, add_jobs, everything, marks
from tests.databases import Database, Sqlite
from tests.flow.harness import service, settings_for
from tests.served import serving

NOWHERE = "http://127.0.0.1:9"


def fairlane(*arguments: str, code: int = 0) -> str:
    """All that the command prints; whatever happens, no traceback and no password."""
    result = CliRunner().invoke(main, arguments, env=environ(NOWHERE), prog_name="fairlane")
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    assert "secret" not in result.output
    return result.output


def copy(source: Database, target: Database, code: int = 0) -> str:
    return fairlane("copy", source.url, target.url, code=code)


async def refused_start(database: Database) -> str:
    """What a service says that does not start."""
    with pytest.raises(NotServed) as refused:
        async with service(database):
            pass
    return str(refused.value)


@asynccontextmanager
async def client_in_this_process(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    async with running(settings_for(database), lambda _: None, "test") as made, client_of(app_of(made)) as client:
        yield client


async def test_life_goes_on_in_the_other_database(sqlite_to_postgres: Pair) -> None:
    source, target = sqlite_to_postgres.source, sqlite_to_postgres.target
    job = {"tenant": "acme", "test_suite": "suite"}
    async with client_in_this_process(source) as client:
        made = await client.post("/jobs", json=job, headers={"Idempotency-Key": "once"})
        [claimed] = (await client.post("/jobs/claim", json={"worker": "w", "start": True})).json()["jobs"]
    told = await asyncio.to_thread(copy, source, target)
    assert re.search(r"\njobs +1 rows, digest [0-9a-f]{16}, the same in both\n", told)

    assert "was copied into" in await refused_start(source)
    async with serving(target.url) as served, served.client() as client:
        token = {"token": claimed["lease"]["token"]}
        beat = await client.post(f"/jobs/{claimed['id']}/heartbeat", json=token)
        done = await client.post(f"/jobs/{claimed['id']}/complete", json=token)
        again = await client.post("/jobs", json=job, headers={"Idempotency-Key": "once"})
        assert (beat.status_code, done.json()["state"], again.status_code) == (200, "completed", 200)
        assert again.json()["id"] == made.json()["id"]
        assert (await asyncio.to_thread(copy, source, target)).endswith(": nothing to do\n")


async def test_a_database_that_is_served_is_neither_copied_nor_copied_into(unlike: Pair, tmp_path: Path) -> None:
    other = Sqlite(tmp_path / "other.db")
    await migrate.upgrade(other.url)
    async with serving(unlike.source.url) as served:
        for called, pair in (("FROM", Pair(unlike.source, other)), ("TO", Pair(other, unlike.source))):
            told = await asyncio.to_thread(copy, pair.source, pair.target, code=1)
            assert re.match(
                rf"Error: {called}, .*, is in use by .* process {served.process.pid} .*: stop it first", told
            )
    assert await marks(unlike.source) == await marks(other) == []


async def test_half_a_copy_is_not_served_nor_its_source_before_it_is_opened_again(sqlite_to_postgres: Pair) -> None:
    source, target = sqlite_to_postgres.source, sqlite_to_postgres.target
    await add_jobs(source, "only")
    nul = "INSERT INTO jobs (tenant, test_suite, error) VALUES ('acme', 'by hand', 'a' || char(0))"
    await source.execute(nul)
    assert "jobs with seq = 2 cannot be kept there" in await asyncio.to_thread(copy, source, target, code=1)

    assert re.search(f"a copy of this database into {shown(target)} was begun at", await refused_start(source))
    assert f"is an unfinished copy of {source.url}: run the same" in await refused_start(target)

    assert re.search(shown(target), await asyncio.to_thread(fairlane, "reopen", source.url))
    async with service(source):
        pass
    given_up = await asyncio.to_thread(copy, source, target, code=1)
    assert re.search(f"TO, {shown(target)}, holds an unfinished copy of {source.url} that is not this one", given_up)
    assert "not copied" in await asyncio.to_thread(fairlane, "reopen", source.url)


def shown(database: Database) -> str:
    """A database's address without what is secret, or may be: a pattern."""
    return re.escape(without_password(database.url).partition("?")[0]) + r"\S*"


async def test_a_copy_goes_into_an_empty_database_and_from_one_that_is_not_copied_away(
    files: Pair, tmp_path: Path
) -> None:
    third, none = Sqlite(tmp_path / "third.db"), Sqlite(tmp_path / "none.db")
    await add_jobs(files.target, "of others")
    before = await everything(files.target)
    told = await asyncio.to_thread(copy, files.source, files.target, code=1)
    assert "is not empty: there are rows in tenants. A copy goes into an empty database" in told
    assert await everything(files.target) == before
    assert await marks(files.source) == []

    await asyncio.to_thread(copy, files.source, third)
    told = await asyncio.to_thread(copy, files.source, none, code=1)
    assert re.search(f"FROM, .* was copied into {third.url} at .*: `fairlane reopen` first", told)
    assert "there is no database at" in await asyncio.to_thread(fairlane, "reopen", f"{none.url}x", code=1)


async def test_a_database_is_not_copied_into_itself(unlike: Pair) -> None:
    same = unlike.source.url + ("&" if "?" in unlike.source.url else "?") + "application_name=other"
    other_address = same if unlike.source.kind == "postgres" else unlike.source.url.replace("///", "////")
    for url in (unlike.source.url, other_address):
        told = await asyncio.to_thread(fairlane, "copy", unlike.source.url, url, code=1)
        assert told == "Error: FROM and TO are the same database\n"
    assert await marks(unlike.source) == []


@pytest.mark.parametrize("version", ["0002", "from the future"])
async def test_both_have_the_schema_of_this_version(files: Pair, version: str) -> None:
    await files.source.execute(f"UPDATE alembic_version SET version_num = '{version}'")
    for pair, called in ((files, "FROM"), (Pair(files.target, files.source), "TO")):
        told = await asyncio.to_thread(copy, pair.source, pair.target, code=1)
        assert re.match(
            f"Error: {called}, .*, cannot be used: the database's schema .* (older|newer) than this version's", told
        )


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("mysql://secret@x", "sqlite:///x.db", "FROM must begin with sqlite:/// or postgresql://"),
        ("{}", "sqlite:///:memory:", "TO must name a plain file"),
        (
            "sqlite:////nowhere/x.db",
            "{}",
            "FROM names the file /nowhere/x.db, which is in a folder that does not exist",
        ),
        ("sqlite:///no-such.db", "{}", "there is no database at sqlite:///"),
        (
            "{}",
            "postgresql://user:secret@127.0.0.1:9/x",
            "TO, postgresql://user:***@127.0.0.1:9/x, cannot be read or written: ",
        ),
        (
            "postgresql://user:secret@127.0.0.1:9/x?password=secret",
            "{}",
            "FROM, postgresql://user:***@127.0.0.1:9/x, cannot be ",
        ),
        (
            "postgresql://user:secret@/x?host=/none&password=secret",
            "postgresql://user@/x?host=/nowhere",
            "FROM, postgresql://user:***@/x?host=/none, cannot be read or written: ",
        ),
        (
            "{}",
            "postgresql://h/x?sslmode=secret",
            "TO, postgresql://h/x, cannot be used: the database's address is wrong: `sslmode`",
        ),
    ],
)
def test_what_cannot_be_is_said_in_words(files: Pair, source: str, target: str, words: str) -> None:
    told = fairlane("copy", source.format(files.source.url), target.format(files.target.url), code=1)
    assert words in told


async def test_on_a_terminal_something_moves(files: Pair) -> None:
    await add_jobs(files.source, "only")
    async with Fairlane(NOWHERE).terminal("copy", files.source.url, files.target.url) as terminal:
        assert await terminal.exited() == 0
    assert re.search("(copying|checking|finishing)", terminal.text)
    assert "is copied into" in terminal.text
