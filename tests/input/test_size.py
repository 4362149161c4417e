"""Bodies made to take as much memory and time as they can: refused in bounded memory, and others are served."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.databases import Databases
from tests.effort import EFFORT
from tests.input.wire import connection, connections, peak_bytes, post
from tests.served import serving

MIB: Final = 1024 * 1024
LIMIT: Final = 16 * MIB
AT_ONCE: Final = 4
BOUND: Final = 400 * MIB
"""They wait as they came, each copied twice on its way, and one is decoded at a time, in pieces. Decoded as a whole and
all at once they took 1.7 GiB."""

SENDERS: Final = 24 if EFFORT == 1 else 100
HELD: Final = 256 * MIB
"""What the service says that it holds of all bodies."""

A_JOB: Final = {"tenant": "acme", "test_suite": "smoke"}
MANY_PATHS: Final = ("/jobs/batch", "/jobs/finish")

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(sys.platform != "linux", reason="only there a process says how much memory it ever had"),
]


def filled(start: bytes, item: bytes, end: bytes) -> bytes:
    """As many items as the largest body holds."""
    return start + item * ((LIMIT - len(start) - len(end) - 1) // len(item)) + item.rstrip(b",") + end


def large() -> Iterator[tuple[bytes, str]]:
    """Bodies, and how the sentence begins with which each is refused."""
    yield filled(b'{"jobs":[', b"[],", b"]}"), "jobs must be a list"
    yield filled(b'{"jobs":[', b"{},", b"]}"), "jobs must be a list"
    yield filled(b'{"jobs":[{"payload":[', b"[],", b"]}]}"), "jobs[0] must be at most 1 MiB"
    names = b",".join(b'"%x":1' % n for n in range(1_500_000))
    yield b'{"jobs":[{%b}]}' % names, "jobs[0] must be at most 1 MiB"
    yield b"{%b}" % names, "the body must be at most 1 MiB beside jobs"
    yield b'{"jobs":%b}' % (b"[" * 100_000 + b"]" * 100_000), "invalid JSON"


async def test_large_bodies_at_once_take_bounded_memory(sqlite_databases: Databases) -> None:
    """One engine is enough: none of these gets as far as a database."""
    async with serving(sqlite_databases.create().url) as served, served.client() as client:
        before = peak_bytes(served)
        for body, sentence in large():
            async with connections(served, AT_ONCE) as senders:
                for sender in senders:
                    await sender.say(post("/jobs/batch", body))
                answers = [await sender.next() for sender in senders]
            for answer in answers:
                assert answer.status == 400
                assert answer.error.startswith(sentence)
            assert (await client.get("/health/ready")).status_code == 200
            grown = peak_bytes(served) - before
            print(f"{sentence}: peak {grown / MIB:.0f} MiB above the rest")  # noqa: T201
            assert grown < BOUND


async def test_slow_senders_of_large_bodies_leave_room_for_others(sqlite_databases: Databases) -> None:
    """Each sends all but the end. Of those for whom there is no room each is told so."""
    body = b" " * (LIMIT - 1)
    async with serving(sqlite_databases.create().url) as served, served.client() as client:
        before = peak_bytes(served)
        async with connections(served, SENDERS) as senders:
            for n, sender in enumerate(senders):
                await sender.say(post(MANY_PATHS[n % 2], body, length=LIMIT))
            refused = [asyncio.create_task(sender.next()) for sender in senders]
            await served.logged("request_served", lambda event: event["status"] == 503)
            small = await client.post("/jobs", json=A_JOB | {"payload": "x" * 60_000})
            assert small.status_code == 201
            grown = peak_bytes(served) - before
            print(f"{SENDERS} senders: peak {grown / MIB:.0f} MiB above the rest")  # noqa: T201
            assert grown < HELD + BOUND
            # Whoever could be held now sends its end, and gets an answer as well.
            for sender in senders:
                await sender.say(b" ")
            answers = await asyncio.gather(*refused)
        statuses = Counter(answer.status for answer in answers)
        assert set(statuses) == {400, 503}
        assert statuses[400] >= HELD // LIMIT - 1
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status == 503)
        async with connection(served) as alone:  # what they held is free again
            await alone.say(post("/jobs/batch", b"[" + b" " * (LIMIT - 1)))
            assert (await alone.next()).status == 400


async def test_a_body_that_does_not_come_is_not_waited_for(sqlite_databases: Databases) -> None:
    program = "from app.api.intake import Intake; Intake.within_sec = 0.5; from app.cli import main; main()"
    async with serving(sqlite_databases.create().url, program=program) as served, served.client() as client:
        async with connection(served) as slow:
            await slow.say(post("/jobs", b"{", length=100))
            [answer] = await slow.rest()
        assert answer.status == 408
        assert answer.headers["connection"] == "close"
        assert "body" in answer.error
        assert (await client.post("/jobs", json=A_JOB)).status_code == 201
