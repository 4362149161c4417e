"""Ids and tokens say when they were made, and nothing else."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from app.flow.ids import new_id
from tests.databases import Database
from tests.flow.harness import service, token_of

_NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(new_id(_NOON))

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int(_NOON.timestamp() * 1000)


def test_those_of_later_milliseconds_come_later() -> None:
    made = [new_id(_NOON + timedelta(milliseconds=n)) for n in range(100)]

    assert made == sorted(made)


def test_those_of_one_moment_have_nothing_in_common_but_it() -> None:
    made = [int(new_id(_NOON), 16) for _ in range(1000)]
    always, never = made[0], ~made[0]
    for each in made:
        always, never = always & each, never & ~each

    assert len(set(made)) == 1000
    by_chance = ((1 << 80) - 1) & ~(0xF << 76) & ~(0x3 << 62)
    assert (always | never) & by_chance == 0  # each of 74 bits was both


async def test_a_token_and_an_id_are_made_alike(database: Database) -> None:
    async with service(database) as running:
        for _ in range(3):
            await running.submit()
        jobs = await running.claim(3)

        for made in (*(job.id for job in jobs), *map(token_of, jobs)):
            assert uuid.UUID(made).version == 7
        assert len({token_of(job) for job in jobs} | {job.id for job in jobs}) == 6
