"""Every value of the corpus in every place of every operation, asked of a service on SQLite and of one on Postgres:
both answer alike, what is refused is named, what is taken is read back as it was sent, and the next call is served."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from tests.api.asgi import Call, app_of
from tests.databases import Database, Databases
from tests.effort import EFFORT, chance_of
from tests.flow.harness import FakeClock, service
from tests.input.corpus import IN_ADDRESSES, NO_JSON, VALUES
from tests.input.places import Place, places
from tests.input.side import Scene, Side

NOW: Final = datetime(2029, 1, 31, 12, tzinfo=UTC)
DRAWN: Final = re.compile(r'[0-9a-f]{32}|"key": "[^"]*"|2029-01-31T12:\d\d:\d\d\.\d{6}Z')
"""Ids, secrets, and the times of now, which pass by as many microseconds as there are readings."""

NOT_KEPT: Final = ("id",)
FRACTIONS: Final = ("progress", "rate_per_sec")
ALL_OF_IT: Final = 6
"""With so much effort each value is tried in each place; it takes a minute."""

CUT: Final = " [cut]"
TIMES: Final = ("run_at", "expires_at")


@pytest.fixture
def both(sqlite_databases: Databases, postgres_databases: Databases) -> Iterator[list[Database]]:
    """A database on each engine."""
    makers = [sqlite_databases, postgres_databases]
    made = [maker.create() for maker in makers]
    yield made
    for maker, database in zip(makers, made, strict=True):
        maker.drop(database)


@pytest.fixture
async def sides(both: list[Database]) -> AsyncIterator[list[Side]]:
    """The service on each, by clocks that show the same."""
    async with AsyncExitStack() as stack:
        yield [
            Side(app_of(await stack.enter_async_context(service(database, clock=FakeClock(NOW))))) for database in both
        ]


@pytest.mark.torture
async def test_both_databases_answer_alike_to_whatever_stands_anywhere(sides: list[Side]) -> None:
    document = await sides[0].well("GET", "/schema")
    statuses = Counter[int]()
    faults, chance = [], chance_of("corpus")
    for place in places(document):
        for name, value in values_for(place, chance):
            calls = [await side.ask(place, value) for side in sides]
            statuses[calls[0][0].status] += 1
            if fault := await fault_of(document, place, value, sides, calls):
                faults.append(f"{name} as {place}: {fault}")
    print(statuses.total(), "calls of each:", dict(sorted(statuses.items())))  # noqa: T201
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:100]])
    assert statuses[200] + statuses[201] > 100
    assert statuses[400] > 1000


async def fault_of(
    document: Any, place: Place, value: bytes, sides: list[Side], calls: list[tuple[Call, Scene]]
) -> str | None:
    """What is wrong with the two answers, if anything is."""
    (call, scene), (other, other_scene) = calls
    if shown(call) != shown(other):
        return f"{differing(shown(call), shown(other))}"
    if call.status >= 500 or not (is_elsewhere(place, call) or is_documented(document, place, call)):
        return f"{call.status}"
    if call.status == 400 and not names(place, value, call.answer):
        return f"not named: {call.answer}"
    if call.status < 300 and place.where == "body":
        looked = await sides[0].well("GET", scene.look_at(call.answer))
        also = await sides[1].well("GET", other_scene.look_at(other.answer))
        if comparable(looked) != comparable(also):
            return f"read as {differing(comparable(looked), comparable(also))}"
        return kept_fault(place, value, looked)
    return None


def values_for(place: Place, chance: Random) -> list[tuple[str, bytes]]:
    """All that may stand there, or with little effort some, in each place others."""
    values = [*(VALUES | NO_JSON if place.where == "body" else IN_ADDRESSES).items()]
    count = len(values) * EFFORT // ALL_OF_IT
    return values if EFFORT >= ALL_OF_IT else chance.sample(values, count)


def shown(call: Call) -> tuple[int, Any, Any]:
    """An answer, but for what is drawn by chance."""
    headers = {name: value for name, value in call.answer_headers.items() if name in (b"link", b"content-type")}
    is_json = headers.get(b"content-type", b"").startswith(b"application/json")
    return call.status, comparable(call.answer) if is_json else None, headers


def comparable(answer: Any) -> str:
    return DRAWN.sub("drawn", json.dumps(answer, sort_keys=True))


def is_documented(document: Any, place: Place, call: Call) -> bool:
    return str(call.status) in document["paths"][place.path][place.method.lower()]["responses"]


def is_elsewhere(place: Place, call: Call) -> bool:
    """Whether the path with this in it is none."""
    return place.where == "path" and call.status == 404


def differing(one: Any, other: Any) -> str:
    """Two answers from where on they differ."""
    one, other = str(one), str(other)
    begin = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    return f"...{one[max(0, begin - 60) : begin + 60]} and ...{other[max(0, begin - 60) : begin + 60]}"


def names(place: Place, value: bytes, answer: Any) -> bool:
    """Whether a refusal is about the place, what is in it, or what it is in; or about a body that is no JSON."""
    if place.where == "body" and value in NO_JSON.values():
        return bool(answer["error"] == "invalid JSON")
    fields = [detail["field"] for detail in answer["details"]]
    return any(field and (field.startswith(place.told) or place.told.startswith(field)) for field in fields)


def kept_fault(place: Place, value: bytes, looked: Any) -> str | None:
    """What is wrong with how a value is read back that was taken."""
    name = place.steps[-1]
    if name in NOT_KEPT or not isinstance(looked, dict) or name not in looked:
        return None
    sent, kept = json.loads(value, parse_float=lambda text: float(text) or 0.0), looked[name]
    if name in TIMES and sent is not None:
        return None if near(sent, kept) else f"read back as {kept}"
    if name == "error" and len(sent) > len(kept):
        sent = sent[: len(kept) - len(CUT)] + CUT
    is_same = sent == kept if name in FRACTIONS and type(sent) is not bool else json.dumps(sent) == json.dumps(kept)
    return None if is_same else f"read back as {kept!r}"


def near(sent: str, kept: str) -> bool:
    """Whether they are the same time to the microsecond; what is due already is due now."""
    due = datetime.fromisoformat(sent.upper())
    return abs(datetime.fromisoformat(kept) - max(due, NOW)) < timedelta(seconds=1 if due <= NOW else 0, microseconds=2)
