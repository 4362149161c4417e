"""The page says of each command which keys it works with. Each is run on a service, and what it asks there is looked up
in the one table of who may call what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from app.api.access import MAY_CALL
from app.cli import main
from tests.cli.running import Fairlane
from tests.databases import Database
from tests.served import Served, serving

PAGE: Final = Path(__file__).parents[2] / "docs" / "command-line.md"
ROW: Final = re.compile(r"^\| (`[^|]+`) \| ([a-z, ]+) \|$", re.MULTILINE)
NONE: Final = "none"


class Ask(NamedTuple):
    """A command that asks a service for something."""

    line: str
    stdin: str = ""
    code: int = 0


ASKS: Final[Mapping[str, tuple[Ask, ...]]] = {
    "submit": (
        Ask("submit -t acme -s suite"),
        Ask("submit -t acme -", '{"test_suite": "s"}'),
        Ask("submit -t a -s b --key k"),
    ),
    "jobs": (Ask("jobs"), Ask("jobs --tenant acme")),
    "job": (Ask("job {job}"),),
    "explain": (Ask("explain {job}"),),
    "cancel": (Ask("cancel {job}"), Ask("cancel --tenant acme --yes")),
    "wait": (Ask("wait {ended}", code=1),),
    "retry": (Ask("retry {ended}"),),
    "tenants": (Ask("tenants"), Ask("tenants acme")),
    "tenant": (
        Ask("tenant set acme --weight 2"),
        Ask("tenant load -", '{"name": "acme", "weight": 3}'),
        Ask("tenant erase leaver --yes"),
    ),
    "queues": (Ask("queues"),),
    "replicas": (Ask("replicas"),),
    "pause": (Ask("pause default"), Ask("pause --tenant acme")),
    "resume": (Ask("resume default"), Ask("resume --tenant acme")),
    "top": (Ask("top"),),
    "keys --url": (
        Ask("keys create new --role reader --url {url}"),
        Ask("keys list --url {url}"),
        Ask(f"keys revoke {'0' * 32} --url {{url}}", code=3),
    ),
}
ASKS_NOBODY: Final = (
    "serve",
    "migrate",
    "config",
    "report",
    "snapshot",
    "copy",
    "reopen",
    "reporting-role",
    "completion",
    "keys",
)


def rows() -> dict[str, str]:
    """The page's table: of each command, who may."""
    return {
        command: may
        for commands, may in ROW.findall(PAGE.read_text())
        for command in commands.replace("`", "").split(", ")
    }


class Asked:
    """What a service has been asked since the last look."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._seen = 0

    async def who_may(self) -> str:
        """Whose key lets all of it through."""
        async with self._served.client() as client:
            await client.get(f"/seen/{self._seen}")  # behind all that is to be logged
        await self._served.logged("request_served", lambda event: event["path"] == f"/seen/{self._seen}")
        new, self._seen = self._served.events[self._seen :], len(self._served.events)
        routes = {f"{event['method']} {event['route']}" for event in new if event.get("route")}
        assert routes, "it asked for nothing"
        may = [roles for route in routes if (roles := MAY_CALL[route]) is not None]
        return ", ".join(role for role in ("tenant", "worker", "reader", "admin") if all(role in each for each in may))


@pytest.fixture
async def served(sqlite_database: Database) -> AsyncIterator[Served]:
    async with serving(sqlite_database.url) as running:
        yield running


async def test_the_page_says_of_every_command_whose_key_it_needs(served: Served) -> None:
    fairlane, asked = Fairlane(served.url), Asked(served)
    fairlane("tenant", "set", "leaver")
    ended = fairlane.submit("acme")
    fairlane("cancel", ended)
    found = {}
    for command, asks in ASKS.items():
        may = set()
        for ask in asks:
            names = {"job": fairlane.submit("acme"), "ended": ended, "url": served.url}
            await asked.who_may()
            line = ask.line.format(**names).split()
            await asyncio.to_thread(fairlane, *line, stdin=ask.stdin, code=ask.code)
            may.add(await asked.who_may())
        [found[command]] = may
    async with fairlane.process("worker", "--", "true"):
        await served.logged("request_served", lambda event: event["route"] == "/jobs/finish")
    found["worker"] = await asked.who_may()
    assert found == {command: may for command, may in rows().items() if may != NONE}


def test_no_command_is_left_out() -> None:
    told = rows()
    assert {command for command, may in told.items() if may == NONE} == set(ASKS_NOBODY)
    assert set(main.commands) <= told.keys()
