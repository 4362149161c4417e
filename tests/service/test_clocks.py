"""The wall clock is moved by a second, an hour, a year, both ways, under load and over restarts, on hosts in other time
zones: nothing is lost, no lease ends for it, no time that is given out falls, and the order stays what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from app.clock import parse_rfc3339
from app.scheduling.job import State
from tests.databases import Database
from tests.effort import EFFORT, chance_of
from tests.history.attacked import Attacked, attacked
from tests.history.record import Voice
from tests.history.table import Tell
from tests.history.tables import Tables
from tests.history.terms import Terms
from tests.history.wrong_clock import PROGRAM, WrongClock
from tests.served import PATIENCE_SEC

SECOND, HOUR, YEAR = 1, 3600, 365 * 86400
WHILE_IT_RUNS: Final = (-SECOND, 0, -HOUR, 0, -YEAR, 0, SECOND, HOUR, YEAR, 0)
"""How far it is off, one after the other. At the end times are given out that are a year ahead, and the next round, and
the starts, go on from there."""

OVER_RESTARTS: Final = (-SECOND, SECOND, -HOUR, HOUR, -YEAR, YEAR)
ZONES: Final = ("Asia/Kathmandu", "America/New_York", "UTC", "Pacific/Apia")
CHANGES: Final = (datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 11, 7, 6, tzinfo=UTC))
"""When New York goes to summer time and back."""

_TERMS: Final = Terms(is_clock_moved=True)


async def _set_time_zone(database: Database, zone: str) -> None:
    """What the database's sessions begin with, where they have a time zone."""
    if database.kind == "postgres":
        name = await database.value("SELECT current_database()")
        await database.execute(f"ALTER DATABASE {name} SET timezone TO '{zone}'")


async def _until_it_is(state: State, voice: Voice, job_id: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SEC):
        while (job := (await voice.look_at(job_id)).answer)["state"] != state:  # noqa: ASYNC110 - it is told over HTTP
            await asyncio.sleep(0.05)
    return dict(job)


async def _claimed(voice: Voice, queue: str, lease_sec: int) -> tuple[str, str]:
    """A job that is leased for so long; its id and token."""
    await voice.submit({"tenant": "patient", "test_suite": queue, "queue": queue})
    [job] = (await voice.claim(queues=[queue], lease_sec=lease_sec)).answer["jobs"]
    return job["id"], job["lease"]["token"]


def _assert_times_rise(tables: Tables) -> None:
    times = [job.submitted_at for job in tables.written.jobs]
    assert all(before < after for before, after in pairwise(times))


def _off_by(moves: Sequence[int], rounds: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Each move, and how far the clock is off after it: each round begins a year later."""
    return ((move, (first + nth) * YEAR + move) for nth in range(rounds) for move in moves)


async def _move(service: Attacked, clock: WrongClock, off_by: int) -> None:
    """Somebody sets the clock."""
    with service.history.fault(f"the clock is off by {off_by} s"):
        clock.off_by(off_by)
        await asyncio.sleep(service.chance.uniform(0.1, 0.3))


async def _see_one_lapse(service: Attacked, voice: Voice) -> None:
    """Whatever the clock shows, a lease that nobody renews ends after its time."""
    job_id, _ = await _claimed(voice, f"lapsing {service.site.number()}", lease_sec=1)
    await _until_it_is(State.QUEUED, voice, job_id)


@pytest.mark.torture
async def test_a_clock_that_is_moved_loses_nothing_and_ends_no_lease(
    database: Database, tell: Tell, tmp_path: Path
) -> None:
    clock, zones = WrongClock(tmp_path), cycle(ZONES)
    await _set_time_zone(database, "Pacific/Marquesas")
    environment = clock.host(next(zones), with_database=True)
    chance = chance_of(f"clocks of {database.kind}")
    async with attacked(database, chance, program=PROGRAM, environment=environment, leader_ttl_sec=1) as service:
        async with service.site.voice("patient") as voice, service.site.at_work():
            begun = parse_rfc3339(
                (await voice.submit({"tenant": "patient", "test_suite": "now"})).answer["submitted_at"]
            )
            assert abs(datetime.now(UTC) - begun) < timedelta(minutes=1)
            held, token = await _claimed(voice, "held", lease_sec=3600)
            for move, off_by in _off_by(WHILE_IT_RUNS, EFFORT):
                hence = {"tenant": "patient", "test_suite": "in a while", "queue": "later", "delay_sec": HOUR // 2}
                later = (await voice.submit(hence)).answer["id"]
                await _move(service, clock, off_by)
                assert (await voice.report("heartbeat", held, token)).is_ok
                if abs(move) == YEAR:
                    await _see_one_lapse(service, voice)
                if move == HOUR:
                    await _until_it_is(State.QUEUED, voice, later)  # what is due goes by the wall clock
            restarts = OVER_RESTARTS if EFFORT > 1 else chance.sample(OVER_RESTARTS, 3)
            for _, off_by in _off_by(restarts, EFFORT, first=EFFORT):
                with service.history.fault(f"started with the clock off by {off_by} s"):
                    await service.stop()
                    clock.off_by(off_by)
                    await service.start(environment=clock.host(next(zones), with_database=True))
                assert (await voice.report("heartbeat", held, token)).is_ok
            assert (await voice.report("start", held, token)).is_ok
            assert (await voice.report("complete", held, token)).is_ok
        _assert_times_rise(await service.verdict(_TERMS, tell, "the wall clock moved"))


@pytest.mark.torture
async def test_a_host_that_goes_to_summer_time_and_back_is_on_time(
    database: Database, tell: Tell, tmp_path: Path
) -> None:
    """Jobs that are due just before, at and after the change are queued when they are due, and no other hour."""
    clock = WrongClock(tmp_path)
    await _set_time_zone(database, "America/New_York")
    environment = clock.host("America/New_York", with_database=True)
    chance = chance_of(f"summer time of {database.kind}")
    async with attacked(database, chance, program=PROGRAM, environment=environment, leader_ttl_sec=1) as service:
        async with service.site.voice("patient") as voice:
            for change in CHANGES:
                with service.history.fault("the hour changes"):
                    clock.shows(change - timedelta(seconds=1))
                    due = [change + timedelta(seconds=seconds) for seconds in (-0.5, 0, 0.5)]
                    asked = [{"tenant": "patient", "test_suite": "s", "run_at": moment.isoformat()} for moment in due]
                    jobs = (await voice.submit_batch(asked)).answer["jobs"]
                    queued = [await _until_it_is(State.QUEUED, voice, job["id"]) for job in jobs]
                assert all(parse_rfc3339(job["queued_at"]) >= moment for job, moment in zip(queued, due, strict=True))
                assert parse_rfc3339(queued[-1]["queued_at"]) - due[-1] < timedelta(seconds=10)
        _assert_times_rise(await service.verdict(_TERMS, tell, "summer time"))
