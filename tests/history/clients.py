"""Clients as they are: submitters that send a key again when no answer came, workers that beat, fail, crash and come
too late, people who cancel, look and change settings. They know an address and no more, and outlive every fault."""

from __future__ import annotations

import asyncio
import random
import ssl
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import msgspec

from tests.history.record import Call, History, Voice, Watched

TENANTS: Final[dict[str, dict[str, Any]]] = {
    "red": {"weight": 3},
    "green": {"weight": 1, "max_running": 4},
    "blue": {"weight": 2},
    "grey": {"weight": 1},
    "heavy": {"weight": 3},
    "light": {"weight": 1},
}
"""The last two always have jobs waiting in a queue of their own, where shares are seen from outside."""

STEADY: Final = ("heavy", "light")
OTHERS: Final = ("red", "green", "blue", "grey")
QUEUES: Final = ("default", "gpu")
SHARED: Final = "shared"

_ANSWER_SEC: Final = 10.0
_AGAIN_SEC: Final = 0.05
_KNOWN: Final = 200
_IN_LINE: Final = 40


@dataclass
class Site:
    """Everybody who uses one service, and what they have in common: the history, and the ids they have heard of."""

    url: str
    chance: random.Random
    crowd: int = 50
    history: History = field(default_factory=History)
    known: deque[str] = field(default_factory=lambda: deque(maxlen=_KNOWN))
    """Jobs that were acknowledged of late."""
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether anybody may expect an answer: who knows that the service is away does not ask."""
    is_closing: bool = False
    _context: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _numbers: int = 0

    @asynccontextmanager
    async def voice(self, name: str) -> AsyncIterator[Voice]:
        """A client of its own connections."""
        async with httpx.AsyncClient(base_url=self.url, timeout=_ANSWER_SEC, verify=self._context) as http:
            yield Voice(self.history, http, name)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """All of them, until the block ends; then each finishes what it is about. The service must be up by then."""
        self.is_closing = False
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(self._watch(f"watcher {number}")) for number in range(2)]
            people = [group.create_task(self._run(name, does)) for name, does in self._crowd()]
            yield
            self.is_closing = True
            async with asyncio.timeout(4 * _ANSWER_SEC):
                await asyncio.wait(people)
            for stream in streams:
                stream.cancel()

    async def known_answer(self, ask: Callable[[], Awaitable[Call]]) -> Call:
        """Ask the same until it is known what came of it."""
        while True:
            await self.up.wait()
            call = await ask()
            if call.status is not None and call.status < 500:
                return call
            await asyncio.sleep(_AGAIN_SEC)

    def number(self) -> int:
        """One that nobody else has."""
        self._numbers += 1
        return self._numbers

    def _crowd(self) -> list[tuple[str, Doing]]:
        share = self.crowd - 6
        submitters, workers = share * 2 // 5, share // 2
        named: list[tuple[str, Doing]] = [("operator", operate), ("steady submitter", keep_in_line)]
        named += [("steady worker", work_steadily), ("looker", look)]
        named += [(f"submitter {number}", submit) for number in range(submitters)]
        named += [(f"worker {number}", work) for number in range(workers)]
        named += [(f"canceller {number}", cancel) for number in range(share - submitters - workers)]
        return named

    async def _run(self, name: str, does: Doing) -> None:
        chance = random.Random(self.chance.getrandbits(64))
        async with self.voice(name) as voice:
            while not self.is_closing:
                await self.up.wait()
                await does(self, voice, chance)

    async def _watch(self, name: str) -> None:
        """Hear every move, with a new stream whenever one is cut."""
        async with httpx.AsyncClient(base_url=self.url, timeout=None, verify=self._context) as http:  # noqa: S113 - a stream
            while True:
                await self.up.wait()
                with suppress(httpx.TransportError):
                    await self._hear(http, f"{name}, stream {self.number()}")
                await asyncio.sleep(_AGAIN_SEC)

    async def _hear(self, http: httpx.AsyncClient, stream: str) -> None:
        async with http.stream("GET", "/events") as response:
            name = ""
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and name == "move":
                    move = msgspec.json.decode(line.removeprefix("data: "))
                    self.history.watched.append(Watched(stream, move["id"], move["old_state"], move["new_state"]))
                elif line.startswith("data: "):
                    return  # some were missed: what follows is another stream


Doing = Callable[[Site, Voice, random.Random], Awaitable[None]]


# -- who submits


async def submit(site: Site, voice: Voice, chance: random.Random) -> None:
    """One job or a few, mostly under keys, which are sent again until there is an answer, and now and then after."""
    way = chance.choices(["key", "no key", "batch"], [16, 2, 2])[0]
    if way == "no key":
        _remember(site, await voice.submit(_job(site, chance)))
    elif way == "batch":
        jobs = [{**_job(site, chance), "idempotency_key": _key(chance)} for _ in range(chance.randint(1, 5))]
        _remember(site, await site.known_answer(lambda: voice.submit_batch(jobs)))
    else:
        job, key = _job(site, chance), _key(chance)
        _remember(site, await site.known_answer(lambda: voice.submit(job, key)))
        if chance.random() < 0.1:
            await voice.submit(job, key)
        if chance.random() < 0.02:
            await voice.submit(job | {"cost": 8}, key)
    await asyncio.sleep(chance.random() * 0.1)


def _job(site: Site, chance: random.Random) -> dict[str, Any]:
    return {
        "tenant": chance.choice(OTHERS),
        "test_suite": f"suite {site.number()}",
        "queue": chance.choice(QUEUES),
        "priority": chance.randint(0, 10),
        "cost": chance.choice([1, 1, 1, 7]),
        "delay_sec": chance.choice([0, 0, 0, 0, 1, 2, 30]),
        "max_attempts": chance.choice([1, 3, 3, 100]),
        "timeout_sec": chance.choice([None, None, None, 1]),
        "payload": chance.choice([None, {"n": 1}]),
    }


def _key(chance: random.Random) -> str:
    return uuid.UUID(int=chance.getrandbits(128)).hex


def _remember(site: Site, call: Call) -> None:
    if call.is_ok:
        site.known.extend(job["id"] for job in call.answer.get("jobs", [call.answer]))


# -- who works


async def work(site: Site, voice: Voice, chance: random.Random) -> None:
    """Claim and do what comes, each job in one of the ways in which workers do them."""
    wanted = {
        "queues": chance.sample(QUEUES, 2),
        "limit": chance.randint(1, 3),
        "start": chance.random() < 0.7,
        "lease_sec": chance.choice([1, 2, 3600]),
        "wait_sec": chance.choice([0, 0, 1]),
    }
    claim = await voice.claim(**wanted)
    if not claim.is_ok:
        await asyncio.sleep(_AGAIN_SEC)
        return
    for job in claim.answer["jobs"]:
        await _WAYS[chance.choices(range(len(_WAYS)), _OFTEN)[0]](site, voice, chance, job)
    await asyncio.sleep(chance.random() * 0.05)


async def _complete(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    if await _started(site, voice, job):
        result = chance.choice([None, {"passed": 3}])
        await _report(site, voice, "complete", job, result=result)


async def _beat_and_complete(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    if not await _started(site, voice, job):
        return
    for _ in range(3):
        await asyncio.sleep(chance.random() * job["lease"]["heartbeat_sec"] if job["lease"]["heartbeat_sec"] < 1 else 0)
        beat = await voice.report("heartbeat", job["id"], job["lease"]["token"], progress=chance.random())
        if beat.status == 409:
            return
    await _report(site, voice, "complete", job)


async def _complete_late(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    """The lease has lapsed by then, if it was short."""
    if await _started(site, voice, job):
        await asyncio.sleep(1.2 + chance.random())
        await _report(site, voice, "complete", job)


async def _complete_twice(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    await _complete(site, voice, chance, job)
    await voice.report(chance.choice(["complete", "release"]), job["id"], job["lease"]["token"])


async def _fail(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    await _report(site, voice, "fail", job, error="no", retry=chance.random() < 0.7)


async def _release(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:  # noqa: ARG001
    await _report(site, voice, "release", job)


async def _crash(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:
    """Nobody hears of this worker again."""


async def _finish_in_bulk(site: Site, voice: Voice, chance: random.Random, job: dict[str, Any]) -> None:  # noqa: ARG001
    if await _started(site, voice, job):
        item = {"id": job["id"], "token": job["lease"]["token"], "outcome": "completed", "result": 7}
        await site.known_answer(lambda: voice.finish([item]))


_WAYS: Final = (
    _complete,
    _beat_and_complete,
    _complete_late,
    _complete_twice,
    _fail,
    _release,
    _crash,
    _finish_in_bulk,
)
_OFTEN: Final = (10, 2, 1, 2, 3, 2, 1, 2)


async def _started(site: Site, voice: Voice, job: dict[str, Any]) -> bool:
    """Whether the job runs now, under the lease at hand."""
    return job["state"] == "running" or (await _report(site, voice, "start", job)).is_ok


async def _report(site: Site, voice: Voice, kind: str, job: dict[str, Any], **more: Any) -> Call:
    return await site.known_answer(lambda: voice.report(kind, job["id"], job["lease"]["token"], **more))


# -- the two whose shares are compared


async def keep_in_line(site: Site, voice: Voice, chance: random.Random) -> None:
    """See to it that both always have jobs waiting; how many it lets wait is more than are done in a moment."""
    stats = await voice.look("/stats")
    for tenant in STEADY:
        waiting = stats.answer["tenant_counts"].get(tenant, 0) if stats.is_ok else _IN_LINE
        jobs = [
            {
                "tenant": tenant,
                "test_suite": f"steady {site.number()}",
                "queue": SHARED,
                "priority": chance.randint(0, 10),
            }
            | {"idempotency_key": _key(chance), "cost": chance.choice([1, 1, 3])}
            for _ in range(_IN_LINE - waiting)
        ]
        if jobs:
            await site.known_answer(lambda jobs=jobs: voice.submit_batch(jobs))  # type: ignore[misc]
    await asyncio.sleep(0.05)


async def work_steadily(site: Site, voice: Voice, chance: random.Random) -> None:
    """Complete one after the other, and give nothing back."""
    claim = await voice.claim(queues=[SHARED], limit=2, start=True, lease_sec=3600)
    for job in claim.answer["jobs"] if claim.is_ok else []:
        await _report(site, voice, "complete", job)
    await asyncio.sleep(chance.random() * 0.02)


# -- who else there is


async def cancel(site: Site, voice: Voice, chance: random.Random) -> None:
    """Cancel, ask for it again, look what became of it."""
    if site.known:
        job_id = chance.choice(site.known)
        way = chance.choices(["cancel", "retry", "look", "all of a suite"], [4, 2, 6, 1])[0]
        if way == "cancel":
            await site.known_answer(lambda: voice.cancel(job_id))
        elif way == "retry":
            await voice.retry(job_id)
        elif way == "look":
            await voice.look_at(job_id)
        else:
            job = await voice.look_at(job_id)
            if job.is_ok:
                await voice.cancel_many(tenant=job.answer["tenant"], test_suite=job.answer["test_suite"])
    await asyncio.sleep(chance.random() * 0.4)


async def look(site: Site, voice: Voice, chance: random.Random) -> None:  # noqa: ARG001
    """The newest, the oldest, the final, and the rest of what can be looked at."""
    state = chance.choice(["completed", "failed", "cancelled", "running", "queued"])
    query = chance.choice(["?limit=20", "?order=asc&limit=20", f"?state={state}&limit=20"])
    await voice.list_jobs(query)
    await voice.look(chance.choice(["/stats", "/tenants", "/queues"]))
    await asyncio.sleep(chance.random() * 0.2)


async def operate(site: Site, voice: Voice, chance: random.Random) -> None:
    """Change weights and caps, pause and go on, and sort the line of a tenant while it is paused."""
    tenant = chance.choice(OTHERS)
    way = chance.choice(["weight", "cap", "sort", "queue"])
    if way == "weight":
        await _set(site, voice, tenant, weight=chance.randint(1, 5))
    elif way == "cap":
        await _set(site, voice, tenant, max_running=chance.choice([None, 2, 6]))
    elif way == "queue":
        queue = chance.choice(QUEUES)
        await site.known_answer(lambda: voice.switch_queue(queue, paused=True))
        await asyncio.sleep(0.1)
        await site.known_answer(lambda: voice.switch_queue(queue, paused=False))
    else:
        await _set(site, voice, tenant, paused=True)
        await _sort(site, voice, chance, tenant)
        await _set(site, voice, tenant, paused=False)
    await asyncio.sleep(chance.random() * 0.2)


async def set_up(site: Site, voice: Voice) -> None:
    """The tenants as they are at the beginning."""
    for name, settings in TENANTS.items():
        await site.known_answer(lambda name=name, settings=settings: voice.put_tenant(name, **settings))  # type: ignore[misc]


async def _set(site: Site, voice: Voice, tenant: str, **settings: Any) -> None:
    """If it is not known what came of it, look before anything else is set; but not before a later write is done, as
    until then the commit may still be under way."""
    call = await voice.set_tenant(tenant, **settings)
    while not call.is_ok:
        await site.known_answer(lambda: voice.switch_queue(SHARED, paused=False))
        await site.known_answer(lambda: voice.look_at_tenant(tenant))
        await site.up.wait()
        call = await voice.set_tenant(tenant, **settings)


async def _sort(site: Site, voice: Voice, chance: random.Random, tenant: str) -> None:
    for job_id in chance.sample(list(site.known), min(10, len(site.known))):
        looked = await voice.look_at(job_id)
        if looked.is_ok and looked.answer["tenant"] == tenant and looked.answer["state"] in ("pending", "queued"):
            priority = chance.randint(0, 10)
            await site.known_answer(lambda job_id=job_id, priority=priority: voice.prioritize(job_id, priority))  # type: ignore[misc]
