"""Jobs as they were, written into a database as they ended or stand: what takes the service a day is there in a
moment. The triggers that refuse to begin in the middle of a life are put aside meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.databases import Database


@dataclass(frozen=True)
class Try:
    """An attempt. Without an end it is still held."""

    worker: str
    queued: str
    scheduled: str
    started: str | None = None
    ended: str | None = None
    outcome: str | None = None
    weight: int = 1


@dataclass(frozen=True)
class Story:
    """A job. Times are as they stand on a clock, `09:30` or `09:30:12.5`, of the day that `write` is told. `queued` is
    set of one that waits, or left the queue without being dispatched."""

    tenant: str
    suite: str
    state: str
    submitted: str
    tries: Sequence[Try] = ()
    due: str | None = None
    queued: str | None = None
    finished: str | None = None
    queue: str = "default"
    priority: int = 5
    cost: int = 1


class Writing:
    """The SQL of stories that happened on a day."""

    def __init__(self, day: str) -> None:
        self._day = day

    def moment(self, clock: str | None) -> str | None:
        """A time of the day as the API writes it."""
        if clock is None:
            return None
        whole, _, fraction = clock.partition(".")
        hour, minute, *second = whole.split(":")
        return f"{self._day}T{hour}:{minute}:{second[0] if second else '00'}.{fraction:0<6}Z"

    def statements(self, stories: Sequence[Story]) -> list[str]:
        """The rows, each of an INSERT of its own."""
        made = []
        for number, story in enumerate(stories, 1):
            job_id = hashlib.md5(f"job {number}".encode(), usedforsecurity=False).hexdigest()
            made.append(_insert("jobs", {"seq": number, "id": job_id, **self._job(story, job_id)}))
            ended = [each for each in story.tries if each.ended is not None]
            made += [
                _insert("job_attempts", {"job_id": job_id, "number": n, **self._attempt(story, each, f"{job_id}-{n}")})
                for n, each in enumerate(ended, 1)
            ]
        return made

    def _job(self, story: Story, job_id: str) -> Mapping[str, Any]:
        last = story.tries[-1] if story.tries and story.queued is None and story.state != "pending" else None
        is_held = story.state in ("scheduled", "running")
        due = story.due or story.submitted
        return {
            "tenant": story.tenant,
            "test_suite": story.suite,
            "queue": story.queue,
            "priority": story.priority,
            "cost": story.cost,
            "state": story.state,
            "attempt": sum(each.outcome != "released" for each in story.tries),
            "submitted_at": self.moment(story.submitted),
            "due_at": self.moment(due),
            "run_at": self.moment(due),
            "queued_at": self.moment(last.queued if last else story.queued),
            "effective_priority": None if story.state == "pending" else story.priority,
            "scheduled_at": self.moment(last.scheduled if last else None),
            "started_at": self.moment(last.started if last else None),
            "completed_at": self.moment(story.finished),
            "worker": last and last.worker,
            "charge": 1 if last else None,
            "dispatch_weight": last and last.weight,
            "token": f"{job_id}-held" if is_held else None,
            "lease_sec": 30 if is_held else None,
            "lease_expires_at": self.moment(last.scheduled) if last and is_held else None,
            "error": "it broke" if story.state == "failed" else None,
        }

    def _attempt(self, story: Story, each: Try, token: str) -> Mapping[str, Any]:
        return {
            "token": token,
            "worker": each.worker,
            "queued_at": self.moment(each.queued),
            "scheduled_at": self.moment(each.scheduled),
            "started_at": self.moment(each.started),
            "ended_at": self.moment(each.ended),
            "outcome": each.outcome,
            "error": None if each.outcome in ("completed", "released", "cancelled") else "it broke",
            "weight": each.weight,
            "cost": story.cost,
        }


async def write(database: Database, day: str, weights: Mapping[str, int], stories: Sequence[Story]) -> None:
    """The tenants, with these weights, and what happened on that day, into an empty database."""
    names = [f"INSERT INTO tenants (name, weight) VALUES ('{name}', {weight})" for name, weight in weights.items()]
    queues = sorted({story.queue for story in stories} - {"default"})
    names += [f"INSERT INTO queues (name) VALUES ('{queue}')" for queue in queues]
    await database.execute(*names, *await without_first_state(database, Writing(day).statements(stories)))


async def without_first_state(database: Database, statements: Sequence[str]) -> list[str]:
    """The statements, put between those that take the trigger on new jobs away and give it back."""
    if database.kind == "postgres":
        last = "SELECT setval('jobs_seq_seq', (SELECT max(seq) FROM jobs))"
        switch = "ALTER TABLE jobs {} TRIGGER tr_jobs_first_state"
        return [switch.format("DISABLE"), *statements, switch.format("ENABLE"), last]
    [(sql,)] = await database.fetch("SELECT sql FROM sqlite_master WHERE name = 'tr_jobs_first_state'")
    return ["DROP TRIGGER tr_jobs_first_state", *statements, sql]


def _insert(table: str, row: Mapping[str, Any]) -> str:
    cells = ("NULL" if value is None else repr(value) for value in row.values())
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(cells)})"
