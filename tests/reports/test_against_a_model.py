"""A history made by chance, counted by the views on both engines, rolled up and not, and counted again in Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.clock import rfc3339
from app.store.rollups import HOUR, hour_of
from tests.databases import Database
from tests.reports.history import Story, Try, Writing, write
from tests.reports.looking import BY_HOUR, roll_up, view

DAY = "2026-03-02"
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
NOON = f"{DAY}T12:00:00.000000Z"
WEIGHTS = {"a": 1, "b": 2, "c": 5}


class Chance:
    """Makes jobs by chance. Many of their times fall onto the edges of hours, or a microsecond beside them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def stories(self, count: int) -> list[Story]:
        return [self._story() for _ in range(count)]

    def _story(self) -> Story:
        chance = self._random
        tenant = chance.choice(list(WEIGHTS))
        submitted = now = self._later(timedelta(), 6 * 3600)
        due = now = self._later(now, 600) if chance.random() < 0.3 else now
        tries: list[Try] = []
        state, queued, finished = "pending", None, None
        while state == "pending":
            queued, now = now, self._later(now, chance.choice((1, 600, 5000)))
            state = chance.choice(
                ("queued", "cancelled", "held", "held", "completed", "completed", "failed", "pending")
            )
            if state in ("queued", "cancelled"):
                finished = now if state == "cancelled" else None
                break
            scheduled, now = now, self._later(now, 100)
            started = now if chance.random() < 0.8 or state == "completed" else None
            now = self._later(now, chance.choice((1, 600, 9000)))
            outcome = {"held": None, "completed": "completed", "failed": "failed"}.get(
                state, chance.choice(("failed", "lapsed", "timed out", "released"))
            )
            weight = chance.randint(1, 3)
            started_at = None if started is None else _clock(started)
            ended_at = _clock(now) if outcome else None
            worker = f"w{chance.randint(1, 4)}"
            tries.append(Try(worker, _clock(queued), _clock(scheduled), started_at, ended_at, outcome, weight))
            finished, queued = now if outcome else None, None
            if state == "pending" and len(tries) == 2:
                state, outcome = "failed", "failed"
        if state == "held":
            state, finished = ("running" if tries[-1].started else "scheduled"), None
        return Story(
            tenant,
            f"s{chance.randint(1, 3)}",
            state,
            _clock(submitted),
            tries,
            due=_clock(due),
            queued=None if queued is None else _clock(queued),
            finished=None if finished is None else _clock(finished),
            queue=chance.choice(("default", "gpu")),
            cost=chance.randint(1, 9),
        )

    def _later(self, moment: timedelta, most_sec: int) -> timedelta:
        later = moment + timedelta(microseconds=self._random.randint(0, most_sec * 1_000_000))
        if self._random.random() < 0.2:
            edge = timedelta(hours=later // HOUR + 1)
            later = edge + timedelta(microseconds=self._random.randint(-1, 1))
        return later


def _clock(moment: timedelta) -> str:
    return (MIDNIGHT + moment).strftime("%H:%M:%S.%f")


class Model:
    """What the page says, in Python: each fact added to what it counts in."""

    def __init__(self, stories: Sequence[Story]) -> None:
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {name: {} for name in BY_HOUR}
        self._waits: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._writing = Writing(DAY)
        for story in stories:
            self._submit_and_end(story)
            for each in story.tries:
                self._dispatch(story, each)
                if each.ended:
                    self._end_of(story, each)
            self._wait(story)

    def tenants(self) -> list[tuple[Any, ...]]:
        rows = []
        for key, row in self._rows["report_tenants_by_hour"].items():
            waits = sorted(self._waits[key])
            ranks = [waits[-(-len(waits) * percent // 100) - 1] if waits else None for percent in (50, 90, 99)]
            ended = [row.get(state, 0) for state in ("completed", "failed", "cancelled")]
            counts = (row.get("submitted", 0), row.get("dispatched", 0), sum(ended), *ended)
            rows.append((*key, *counts, *ranks, row.get("work_us", 0) / 1e6))
        return rows

    def throughput(self) -> list[tuple[Any, ...]]:
        rows = []
        for key, row in self._rows["report_throughput_by_minute"].items():
            ended = [row.get(state, 0) for state in ("completed", "failed", "cancelled")]
            rows.append((*key, row.get("submitted", 0), row.get("dispatched", 0), sum(ended), *ended))
        return rows

    def fairness(self) -> list[tuple[Any, ...]]:
        lanes = self._rows["report_fairness_by_hour"]
        weights: dict[tuple[str, str], int] = defaultdict(int)
        costs: dict[tuple[str, str], int] = defaultdict(int)
        for (hour, queue, tenant), row in lanes.items():
            row.setdefault("weight", WEIGHTS[tenant])
            weights[hour, queue] += row["weight"]
            costs[hour, queue] += row.get("cost", 0)
        rows = []
        for (hour, queue, tenant), row in lanes.items():
            weight, cost, of = row["weight"], row.get("cost", 0), (hour, queue)
            share = cost / costs[of] if costs[of] else None
            dispatched = row.get("dispatched", 0)
            rows.append((*of, tenant, weight, weights[of], weight / weights[of], dispatched, cost, costs[of], share))
        return rows

    def suites(self) -> list[tuple[Any, ...]]:
        rows = []
        for key, row in self._rows["report_failures_by_suite"].items():
            ended = [row.get(state, 0) for state in ("completed", "failed", "cancelled")]
            names = ("flaky", "attempts", "attempt failed", "attempt lapsed", "attempt timed out")
            rows.append((*key, sum(ended), *ended, *(row.get(name, 0) for name in names), row.get("work_us", 0) / 1e6))
        return rows

    def workers(self) -> list[tuple[Any, ...]]:
        names = ("dispatched", "ended", "completed", "failed", "lapsed", "timed out", "released", "cancelled")
        return [
            (*key, *(row.get(name, 0) for name in names), row.get("work_us", 0) / 1e6, row["seen"])
            for key, row in self._rows["report_workers"].items()
        ]

    def _row(self, view: str, *key: Any) -> dict[str, Any]:
        return self._rows[view].setdefault(key, {})

    def _moment(self, clock: str | None) -> datetime:
        return datetime.fromisoformat(self._writing.moment(clock) or "")

    def _hour(self, clock: str | None) -> str:
        return rfc3339(hour_of(self._moment(clock)))

    def _minute(self, clock: str | None) -> str:
        return rfc3339(self._moment(clock).replace(second=0, microsecond=0))

    def _micros(self, begin: str | None, end: str | None) -> int:
        return (self._moment(end) - self._moment(begin)) // timedelta(microseconds=1) if begin else 0

    def _submit_and_end(self, story: Story) -> None:
        _add(self._row("report_tenants_by_hour", self._hour(story.submitted), story.tenant), "submitted")
        _add(self._row("report_throughput_by_minute", self._minute(story.submitted), story.queue), "submitted")
        if story.finished is None:
            return
        hour = self._hour(story.finished)
        suite = self._row("report_failures_by_suite", hour, story.tenant, story.suite)
        _add(self._row("report_tenants_by_hour", hour, story.tenant), story.state)
        _add(self._row("report_throughput_by_minute", self._minute(story.finished), story.queue), story.state)
        _add(suite, story.state)
        if story.state == "completed" and sum(each.outcome != "released" for each in story.tries) > 1:
            _add(suite, "flaky")

    def _dispatch(self, story: Story, each: Try) -> None:
        hour = self._hour(each.scheduled)
        worker = self._row("report_workers", hour, each.worker)
        lane = self._row("report_fairness_by_hour", hour, story.queue, story.tenant)
        for row in (self._row("report_tenants_by_hour", hour, story.tenant), worker, lane):
            _add(row, "dispatched")
        _add(self._row("report_throughput_by_minute", self._minute(each.scheduled), story.queue), "dispatched")
        self._waits[hour, story.tenant].append(self._micros(each.queued, each.scheduled) / 1e6)
        _add(lane, "cost", story.cost)
        lane["weight"] = max(each.weight, lane.get("weight", 0))
        worker["seen"] = max(rfc3339(self._moment(each.scheduled)), worker.get("seen", ""))

    def _end_of(self, story: Story, each: Try) -> None:
        hour = self._hour(each.ended)
        worker = self._row("report_workers", hour, each.worker)
        suite = self._row("report_failures_by_suite", hour, story.tenant, story.suite)
        work = self._micros(each.started, each.ended)
        for row in (self._row("report_tenants_by_hour", hour, story.tenant), suite, worker):
            _add(row, "work_us", work)
        _add(suite, "attempts")
        _add(suite, f"attempt {each.outcome}")
        _add(worker, "ended")
        _add(worker, each.outcome or "")
        worker["seen"] = max(rfc3339(self._moment(each.ended)), worker.get("seen", ""))

    def _wait(self, story: Story) -> None:
        spans = [(each.queued, each.scheduled) for each in story.tries]
        if story.queued is not None:
            spans.append((story.queued, story.finished or "12:00"))
        for begin, end in spans:
            for hour in self._hours(begin, end):
                self._row("report_fairness_by_hour", hour, story.queue, story.tenant)

    def _hours(self, begin: str, end: str) -> Iterator[str]:
        hour = hour_of(self._moment(begin))
        while hour <= self._moment(end):
            yield rfc3339(hour)
            hour += HOUR


def _add(row: dict[str, Any], name: str, amount: int = 1) -> None:
    row[name] = row.get(name, 0) + amount


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_views_count_as_the_page_says(database: Database, seed: int) -> None:
    stories = Chance(seed).stories(150)
    await write(database, DAY, WEIGHTS, stories)
    model = Model(stories)
    wanted = {
        "report_tenants_by_hour": model.tenants(),
        "report_throughput_by_minute": model.throughput(),
        "report_fairness_by_hour": model.fairness(),
        "report_failures_by_suite": model.suites(),
        "report_workers": model.workers(),
    }
    assert {story.state for story in stories} >= {"queued", "cancelled", "scheduled", "running", "completed", "failed"}

    for rolled_up in range(12):
        if rolled_up in (0, 5, 11):
            for name, rows in wanted.items():
                before_noon = sorted((row for row in rows if row[0] < NOON), key=repr)
                assert await view(database, name, NOON) == before_noon, (name, rolled_up)
        await roll_up(database, MIDNIGHT + rolled_up * HOUR)
