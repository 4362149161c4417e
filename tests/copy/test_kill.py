"""A copy is killed at any instant, and goes on: nothing is lost or there twice, and nobody serves half of it."""

from __future__ import annotations

import random

import pytest

from app.errors import NotServed
from app.store import copies
from app.store.engine import open_engines
from tests.copy.dying import copy_until
from tests.copy.moving import Pair, add_jobs, everything, fill, marks
from tests.databases import Database, run_apart
from tests.effort import EFFORT, chance_of

MOST_CALLS = 90
"""More than a copy makes before it writes, and fewer than it makes in all."""


class Cut(BaseException):
    """Nothing that anybody expects."""


def kill(pair: Pair, chance: random.Random, times: int) -> int:
    """Copy, and be killed again and again; how often it was."""
    for killed in range(times):
        if copy_until(pair, chance.randrange(1, MOST_CALLS)):
            return killed
        run_apart(assert_nobody_serves_half_of_it(pair))
        for database in (pair.source, pair.target):  # as if somebody had waited until it is forgotten
            run_apart(database.execute("UPDATE dispatcher SET expires_at = NULL"))
    return times


async def is_served(database: Database) -> bool:
    async with open_engines(database.url) as engines:
        try:
            async with engines.reader.connect() as connection:
                await copies.require_servable(connection)
        except NotServed:
            return False
    return True


async def assert_nobody_serves_half_of_it(pair: Pair) -> None:
    source, target = [await is_served(database) for database in (pair.source, pair.target)]
    tenants = await pair.target.value("SELECT count(*) FROM tenants")
    assert not (source and tenants)
    assert not (target and tenants) or await marks(pair.target) == [("in", True)]


@pytest.mark.torture
def test_a_copy_that_is_killed_goes_on(pair: Pair) -> None:
    chance = chance_of(f"a copy that is killed {pair.source.kind} {pair.target.kind}")
    run_apart(fill(pair.source, chance, jobs=28))
    before = everything_of(pair.source)

    killed = kill(pair, chance, times=(3 if pair.source.kind == pair.target.kind == "sqlite" else 2) * EFFORT)

    assert killed > 1
    assert copy_until(pair, None)
    assert everything_of(pair.target) == before == everything_of(pair.source)
    run_apart(assert_nobody_serves_half_of_it(pair))


def everything_of(database: Database) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {}

    async def look() -> None:
        found.update(await everything(database))

    run_apart(look())
    return found


@pytest.mark.parametrize("side", [1, 2], ids=["before FROM is marked", "before TO is"])
async def test_a_copy_that_is_cut_as_it_finishes_is_finished_by_the_next(
    sqlite_to_postgres: Pair, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    pair = sqlite_to_postgres
    await add_jobs(pair.source, "only")
    calls: list[object] = []
    as_it_is = copies.finish_if_unfinished

    async def finish(*told: object) -> None:
        calls.append(told)
        if len(calls) == side:  # not when it is called again
            raise Cut
        await as_it_is(*told)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "finish_if_unfinished", finish)
    with pytest.raises(Cut):
        await pair.copy()
    assert not await is_served(pair.source)
    assert not await is_served(pair.target)

    assert (await pair.copy()).digests is not None
    assert not await is_served(pair.source)
    assert await is_served(pair.target)
    assert await everything(pair.target) == await everything(pair.source)
