"""The rows of the benchmarks that measure Fairlane work, on both databases; what they measure is nobody's business
here. The peers' rows are not tried: they need an environment of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from bench import table
from bench.load import closed_loop, open_loop
from bench.parts import PARTS, Part
from bench.served import FAIRLANE, NO_OP, Served, serving
from bench.stage import SHOWN_AS, Plan, Stage
from bench.wire import Connection, Refused, post, submits
from bench.worker import work
from tests.databases import Databases

QUICK = Plan(rounds=1, sec=0.1, clients=4, drained=300, pickups=3, sizes=(100,), deep=20, blocks=2, block=8)

# The clients of the part that is left out are those of tests/input, and are tried there.
ROWS = [part for part in PARTS if part.name != "crowded"]

NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Shared(Stage):
    """A stage on which every part meets the same services, so that they have to be started once only."""

    services: Mapping[str, Served] = field(default_factory=dict)

    @asynccontextmanager
    async def fairlane(self, kind: str) -> AsyncIterator[Served]:
        """A service without waiting jobs, as a fresh one is."""
        connection = await Connection.to(self.services[kind].address)
        await work(connection, 1000)
        connection.close()
        yield self.services[kind]

    @asynccontextmanager
    async def no_op(self) -> AsyncIterator[Served]:
        yield self.services[NOTHING]


@pytest.fixture(scope="module")
def urls(sqlite_databases: Databases, postgres_databases: Databases) -> Iterator[Mapping[str, str]]:
    """A database for each service; the one that stores nothing must have one as well."""
    with ExitStack() as stack:
        made = {}
        for kind, databases in (
            ("sqlite", sqlite_databases),
            ("postgres", postgres_databases),
            (NOTHING, sqlite_databases),
        ):
            made[kind] = databases.create()
            stack.callback(databases.drop, made[kind])
        yield {kind: database.url for kind, database in made.items()}


@pytest.fixture(scope="module")
async def stage(
    urls: Mapping[str, str], sqlite_databases: Databases, postgres_databases: Databases
) -> AsyncIterator[Shared]:
    async with AsyncExitStack() as stack:
        services = {
            kind: await stack.enter_async_context(serving(url, NO_OP if kind == NOTHING else FAIRLANE))
            for kind, url in urls.items()
        }
        databases = {"sqlite": sqlite_databases, "postgres": postgres_databases}
        yield Shared(databases, QUICK, peers=(), services=services)


@pytest.mark.parametrize("part", ROWS, ids=lambda part: part.name)
async def test_each_part_measures_both_databases(stage: Shared, part: Part) -> None:
    figures = await part.play(stage)
    assert {figure.who for figure in figures} >= set(SHOWN_AS.values())
    assert {figure.part for figure in figures} == {part.name}
    assert all(figure.samples and min(figure.samples) >= 0 for figure in figures)
    assert all(figure.median > 0 for figure in figures if "CPU" not in figure.measure)
    shown = table.markdown(figures, {})
    assert part.title in shown
    assert all(figure.row in shown for figure in figures)


@pytest.mark.parametrize("kind", SHOWN_AS)
async def test_what_is_counted_is_stored(stage: Shared, kind: str) -> None:
    before = await _stored(stage.services[kind])
    taken = await closed_loop(stage.services[kind].address, submits(), 4, 0.1)
    assert len(taken.took_ms) == await _stored(stage.services[kind]) - before > 0


async def test_the_server_without_a_database_answers_alike_and_stores_nothing(stage: Shared) -> None:
    answers = {}
    for kind in (NOTHING, "sqlite"):
        async with _client(stage.services[kind]) as client:
            request = submits()[0].partition(b"\r\n\r\n")[2]
            answers[kind] = await client.post("/jobs", content=request, headers={"content-type": "application/json"})
    empty, full = answers[NOTHING], answers["sqlite"]
    assert empty.status_code == full.status_code == 201
    assert empty.headers.keys() == full.headers.keys()
    assert empty.json().keys() == full.json().keys()
    differs = {name for name, value in full.json().items() if empty.json()[name] != value}
    assert differs <= {"id", "submitted_at", "run_at", "queued_at", "effective_priority"}
    assert await _stored(stage.services[NOTHING]) == 0


async def test_requests_that_are_refused_are_no_figure(stage: Shared) -> None:
    with pytest.raises(Refused, match="tenant and test_suite are required"):
        await closed_loop(stage.services["sqlite"].address, [post("/jobs", {})], 2, 60)
    with pytest.raises(Refused, match="tenant and test_suite are required"):
        await open_loop(stage.services["sqlite"].address, lambda _: post("/jobs", {}), 2, 100, 60)


async def test_an_open_loop_sends_as_many_to_a_slow_service_as_to_a_fast_one(stage: Shared) -> None:
    address, [request, *_] = stage.services["sqlite"].address, submits()
    one_at_a_time, many = [await open_loop(address, lambda _: request, connections, 200, 0.2) for connections in (1, 8)]
    assert len(one_at_a_time.took_ms) == len(many.took_ms) > 20


async def _stored(served: Served) -> int:
    async with _client(served) as client:
        return int((await client.get("/stats")).json()["total_jobs"])


def _client(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{served.address.host}:{served.address.port}")
