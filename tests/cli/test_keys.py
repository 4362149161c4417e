"""`fairlane keys`, on the database itself and through a service that asks for keys; and the other commands there."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.client import Client, Denied
from app.keys import Key
from tests.cli.running import PROGRAM, Fairlane, are_gone, environ, until
from tests.databases import Database
from tests.served import PATIENCE_SEC, serving

IS_KEY = re.compile(r"fairlane_[0-9a-f]{32}_[\w-]{43}")


def fairlane(url: str, *arguments: str, code: int = 0, **more: str) -> Result:
    """Run a command; `url` is the database's where it begins like one."""
    where = {"FAIRLANE_DATABASE_URL": url} if not url.startswith("http") else {}
    result = CliRunner().invoke(main, arguments, env=environ(url, **where, **more), prog_name="fairlane")
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def made(database: Database, *arguments: str) -> str:
    """A new key, alone on standard output."""
    key = fairlane(database.url, "keys", "create", *arguments).stdout.removesuffix("\n")
    assert IS_KEY.fullmatch(key)
    return key


def test_made_listed_and_taken_back_without_a_service(database: Database) -> None:
    key = Key.read(made(database, "ci of acme", "--role", "tenant", "--tenant", "acme", "--expires-in", "90d"))
    assert key is not None
    listed = fairlane(database.url, "keys", "list")
    assert "ci of acme" in listed.stdout
    assert "tenant acme" in listed.stdout
    assert key.secret not in listed.output
    [row] = map(json.loads, fairlane(database.url, "keys", "list", "--json").stdout.splitlines())
    assert (row["id"], row["role"], row["tenant"], row["last_used_at"]) == (key.id, "tenant", "acme", None)
    fairlane(database.url, "keys", "revoke", key.id)
    assert "taken back" in fairlane(database.url, "keys", "list").stdout
    for absent in ("0" * 32, "nothing"):
        assert "key not found" in fairlane(database.url, "keys", "revoke", absent, code=3).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["n"], "Missing option '--role'"),
        (["n", "--role", "boss"], "'boss' is not one of"),
        (["n", "--role", "tenant"], "--tenant and --role tenant go together"),
        (["n", "--role", "reader", "--tenant", "acme"], "--tenant and --role tenant go together"),
        (["n", "--role", "admin", "--queue", "q"], "--queue is for --role worker"),
        (["n", "--role", "worker", "--queue", "a/b"], "--queue must be 1-128 characters"),
        (["n", "--role", "tenant", "--tenant", " "], "--tenant must be 1-128 characters"),
        ([" ", "--role", "reader"], "NAME must be 1-128 characters"),
        (["n" * 129, "--role", "reader"], "NAME must be 1-128 characters"),
        (["n", "--role", "reader", "--expires-in", "soon"], "--expires-in is a number of days or hours"),
        (["n", "--role", "reader", "--expires-in", "0d"], "--expires-in is a number of days or hours"),
        (
            ["n", "--role", "reader", "--expires-in", "1d", "--expires-at", "2030-01-31T09:30:00Z"],
            "either --expires-in or",
        ),
        (
            ["n", "--role", "reader", "--expires-at", "2030-01-31T09:30:00"],
            "--expires-at must be a time with its offset",
        ),
        (["n", "--role", "reader", "--expires-at", "2030-01-31"], "--expires-at must be a time with its offset"),
        (["n", "--role", "reader", "--expires-at", "tomorrow"], "--expires-at must be a time with its offset"),
        (["n", "--role", "reader", "--expires-at", ""], "--expires-at must be a time with its offset"),
        (["n", "--role", "reader", "--expires-at", "2001-01-31T09:30:00Z"], "--expires-at must lie in the future"),
        (["n", "--role", "reader", "--expires-at", "9999-12-31T23:59:59-01:00"], "--expires-at must lie in the years"),
        (["n", "--role", "reader", "--url", "http://x", "--database-url", "y"], "either --url or --database-url"),
    ],
)
def test_what_cannot_be_is_said(sqlite_databases: Any, arguments: list[str], words: str) -> None:
    database = sqlite_databases.create()
    assert words in fairlane(database.url, "keys", "create", *arguments, code=2).stderr
    assert fairlane(database.url, "keys", "list", "--json").stdout == ""


def test_when_a_key_ends_is_said_by_how_long_or_until_when(database: Database) -> None:
    made(database, "at", "--role", "reader", "--expires-at", "2130-01-31T09:30:00.5+01:00")
    made(database, "in", "--role", "reader", "--expires-in", "12h")
    made(database, "never", "--role", "reader")
    listed = map(json.loads, fairlane(database.url, "keys", "list", "--json").stdout.splitlines())
    ends = {row["name"]: row["expires_at"] for row in listed}
    assert ends["at"] == "2130-01-31T08:30:00.500000Z"
    in_hours = (datetime.fromisoformat(ends["in"]) - datetime.now(UTC)) / timedelta(hours=1)
    assert 11.9 < in_hours <= 12
    assert ends["never"] is None


def test_where_there_is_no_database_there_are_no_keys_and_it_is_not_made_to_look(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert fairlane(url, "keys", "list", "--json").stdout == ""
    assert "key not found" in fairlane(url, "keys", "revoke", "0" * 32, code=3).stderr
    assert list(tmp_path.iterdir()) == []


def test_the_first_key_may_come_before_the_first_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert IS_KEY.match(fairlane(url, "keys", "create", "boss", "--role", "admin").stdout)


async def test_a_service_that_asks_for_keys(database: Database) -> None:
    """All that people do with it, each with the key that is for it, and none without."""
    admin = await asyncio.to_thread(made, database, "boss", "--role", "admin")
    async with serving(database.url, keys="required") as served:
        await asyncio.to_thread(_by_roles, database, served.url, admin)


async def test_a_busy_worker_whose_key_is_taken_back_ends_with_its_command(
    sqlite_database: Database, tmp_path: Path
) -> None:
    admin, worker = [
        await asyncio.to_thread(made, sqlite_database, role, "--role", role) for role in ("admin", "worker")
    ]
    key = Key.read(worker)
    assert key is not None
    async with serving(sqlite_database.url, keys="required") as served:
        ask = Fairlane(served.url, admin)
        job = ask.submit("acme")
        begun = tmp_path / "begun"
        text = f"echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 600"
        async with ask.process("worker", "--lease", "9", "--shell", "--", text, FAIRLANE_KEY=worker) as process:
            await until(begun.exists)
            ask("keys", "revoke", key.id, "--url", served.url)
            async with asyncio.timeout(PATIENCE_SEC):
                _, told = await process.communicate()
            assert process.returncode == 4
            assert "a valid key is needed" in told.decode()
            assert "Traceback" not in told.decode()
            assert are_gone([int(begun.read_text())])
        assert ask.state(job) == "running"  # until its lease lapses, and then it is tried again


def _by_roles(database: Database, url: str, admin: str) -> None:
    at = ("--url", url)
    tenant = made(database, "ci", "--role", "tenant", "--tenant", "acme")  # while it runs
    worker = fairlane(url, "keys", "create", "w", "--role", "worker", *at, FAIRLANE_KEY=admin).stdout.strip()
    listed = fairlane(url, "keys", "list", *at, "--json", FAIRLANE_KEY=admin).stdout
    ids = {row["name"]: row["id"] for row in map(json.loads, listed.splitlines())}
    assert set(ids) == {"boss", "ci", "w"}
    submit = ("submit", "--tenant", "acme", "--suite", "s")
    assert "a valid key is needed" in fairlane(url, *submit, code=4).output
    job = fairlane(url, *submit, FAIRLANE_KEY=tenant).stdout.strip()
    fairlane(url, "submit", "--tenant", "other", "--suite", "s", FAIRLANE_KEY=tenant, code=4)
    with Client(url, key=worker) as client:
        [held] = client.claim("w", start=True)
        client.complete(held.hold)
    fairlane(url, "wait", job, FAIRLANE_KEY=tenant)
    assert "completed" in fairlane(url, "job", job, FAIRLANE_KEY=tenant).stdout
    fairlane(url, "queues", FAIRLANE_KEY=tenant, code=4)
    fairlane(url, "queues", FAIRLANE_KEY=admin)
    fairlane(url, "keys", "revoke", ids["w"], *at, FAIRLANE_KEY=admin)
    with Client(url, key=worker) as client, pytest.raises(Denied, match="a valid key is needed"):
        client.claim("w")
    command = [*PROGRAM, "worker", "--", "true"]
    variables = environ(url, FAIRLANE_KEY=worker)
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False)
    assert ended.returncode == 4
    assert "a valid key is needed" in ended.stderr
