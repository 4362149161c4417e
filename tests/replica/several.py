"""Several servers on one Postgres, each a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.databases import Database
from tests.served import PATIENCE_SEC, Served, serving

TTL_SEC: Final = 2.0
"""Short, and yet longer than a process stands still on a busy machine."""

_AGAIN_SEC: Final = 0.02


@dataclass
class Replicas:
    """Those that were started, whether they live or not."""

    database: Database
    stack: AsyncExitStack
    settings: dict[str, Any]
    all: list[Served] = field(default_factory=list)

    async def start(self, url: str | None = None, **settings: Any) -> Served:
        """One more, which listens; it reaches the database by `url`, if one is given."""
        made = serving(url or self.database.url, **self.settings | settings)
        self.all.append(await self.stack.enter_async_context(made))
        return self.all[-1]

    async def epoch(self) -> int:
        """How often the row was taken."""
        return int(await self.database.value("SELECT epoch FROM dispatcher"))


@asynccontextmanager
async def replicas_on(
    database: Database, count: int, first_url: str | None = None, **settings: Any
) -> AsyncIterator[Replicas]:
    """So many, of which the first dispatches; whatever happens, none is left in the end."""
    async with AsyncExitStack() as stack:
        made = Replicas(database, stack, {"leader_ttl_sec": TTL_SEC, **settings})
        first = await made.start(first_url)
        await first.logged("dispatch_begun")
        for _ in range(count - 1):
            await (await made.start()).logged("standing_by")
        await until(lambda: _known(made, count))
        yield made


async def _known(made: Replicas, count: int) -> bool:
    addresses = ", ".join(f"'{served.url.removeprefix('http://')}'" for served in made.all)
    return bool(await made.database.value(f"SELECT count(*) FROM replicas WHERE address IN ({addresses})") == count)


async def until(is_so: Callable[[], Any]) -> None:
    """Ask again and again: what is asked about tells nobody when it comes."""
    async with asyncio.timeout(PATIENCE_SEC):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SEC)


async def submitted(client: httpx.AsyncClient, key: str, **fields: Any) -> dict[str, Any]:
    """A job that is stored."""
    body = {"tenant": "acme", "test_suite": "suite", **fields}
    answer = await client.post("/jobs", json=body, headers={"Idempotency-Key": key})
    assert answer.is_success, (answer.status_code, answer.text)
    return dict(answer.json())


async def claimed(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    """What a worker gets."""
    answer = await client.post("/jobs/claim", json={"worker": "w", **fields})
    assert answer.is_success, (answer.status_code, answer.text)
    return list(answer.json()["jobs"])
