"""All replicas go by one time, that of their database, however their machines' clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.clock import DatabaseClock, parse_rfc3339
from tests.databases import Database
from tests.history import wrong_clock
from tests.history.wrong_clock import WrongClock
from tests.replica.several import claimed, replicas_on, submitted, until
from tests.served import PROGRAM

_HOUR: Final = 3600
_NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)


class _Machine(DatabaseClock):
    """Its monotonic clock stands still until a test moves it."""

    passed_sec = 100.0

    def monotonic(self) -> float:
        return self.passed_sec


def test_it_shows_what_was_heard_and_what_has_passed_since() -> None:
    clock = _Machine(_NOON, asked_at=99.0)
    assert clock.shown() == _NOON
    clock.passed_sec += 1.5
    assert clock.shown() == _NOON + timedelta(seconds=1.5)
    assert clock.now() < clock.now()


def test_an_answer_that_came_late_says_less_than_one_that_was_known_before() -> None:
    clock = _Machine(_NOON, asked_at=100.0)
    clock.passed_sec += 10
    for shown_after in (1, 10):  # at some moment since it was asked
        clock.heard(_NOON + timedelta(seconds=shown_after), asked_at=101.0)
        assert clock.shown() == _NOON + timedelta(seconds=10)


@pytest.mark.parametrize(("hours", "late_sec"), [(1, 0), (-1, 1)])
def test_what_cannot_be_any_more_is_set_right(hours: int, late_sec: int) -> None:
    clock = _Machine(_NOON, asked_at=100.0)
    clock.heard(_NOON + timedelta(hours=hours), asked_at=99.0)
    assert clock.shown() == _NOON + timedelta(hours=hours, seconds=late_sec)


async def test_who_follows_one_whose_clock_was_ahead_is_on_time(postgres: Database, tmp_path: Path) -> None:
    clock = WrongClock(tmp_path)
    clock.off_by(_HOUR)
    host = clock.host("UTC", with_database=False)
    async with replicas_on(postgres, 1, program=wrong_clock.PROGRAM, environment=host, leader_ttl_sec=1) as made:
        second = await made.start(program=PROGRAM, environment={})
        await second.logged("standing_by")
        async with second.client() as client:
            later = await submitted(client, "later", delay_sec=2, queue="later")
            assert abs(parse_rfc3339(later["submitted_at"]) - datetime.now(UTC)) < timedelta(seconds=_HOUR / 2)
            await submitted(client, "lapsing", queue="lapsing")
            [lapsing] = await claimed(client, queues=["lapsing"], start=True, lease_sec=1)
            await made.all[0].kill()
            await second.logged("dispatch_begun")
            await until(lambda: _is_queued(client, later["id"]))
            await until(lambda: _is_queued(client, lapsing["id"]))  # after its lease, and a while
            assert (await client.get(f"/jobs/{lapsing['id']}")).json()["error"] == "lease expired"


async def _is_queued(client: httpx.AsyncClient, job_id: str) -> bool:
    return bool((await client.get(f"/jobs/{job_id}")).json()["state"] == "queued")
