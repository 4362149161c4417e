"""A service in this process that knows leases and nothing else, by the loop's clock: for tests of the worker in virtual
time. What it is asked is kept, and it can be told to fail. With the real one the worker is tested elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpx
from msgspec import json

from app.client import AsyncClient
from app.client.retry import Backoff, Terms
from tests.client.test_calls import JOB


@dataclass
class FakeJob:
    """A job and its lease."""

    id: str
    payload: Any = None
    state: str = "queued"
    token: str = ""
    ends_at: float = 0.0
    attempt: int = 0
    progress: float | None = None
    result: Any = None
    error: str | None = None

    def shown(self) -> dict[str, Any]:
        """As the service shows it."""
        told = {name: getattr(self, name) for name in ("id", "payload", "state", "attempt", "result", "error")}
        lease = {"token": self.token, "expires_at": JOB["run_at"], "heartbeat_sec": 10.0}
        return JOB | told | {"lease": lease}


@dataclass(frozen=True)
class Asked:
    """One request: when it came, for what, and with what."""

    at: float
    call: str
    body: dict[str, Any]


@dataclass
class Trouble:
    """What goes wrong with a request: on its way, which takes `late_sec`, or with its answer."""

    never_arrives: bool = False
    status: int | None = None
    body: Any = None
    late_sec: float = 0.0
    answer_lost: bool = False
    answer_late_sec: float = 0.0
    refused: bool = False
    retry_after: int | None = None


class FakeService(httpx.AsyncBaseTransport):
    """Does what the real one does with a lease. `troubles` are taken one by one for each kind of call; `away` is
    while nobody listens."""

    def __init__(self, *payloads: Any) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.asked: list[Asked] = []
        self.troubles: defaultdict[str, deque[Trouble]] = defaultdict(deque)
        self.away = False
        self._tokens = 0
        self._reported: set[str] = set()
        self._news = asyncio.Event()
        self.add(*payloads)

    def client(self) -> AsyncClient:
        """A client of it that lives in the loop's time, without chance."""
        client = AsyncClient("http://fake", transport=self)
        client.terms = Terms(now=self.now, dice=lambda: 0.5, backoff=Backoff(0.2, 10.0))
        return client

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def add(self, *payloads: Any) -> list[FakeJob]:
        """More jobs, in order."""
        added = [FakeJob(f"{len(self.jobs) + number:032x}", payload) for number, payload in enumerate(payloads)]
        self.jobs |= {job.id: job for job in added}
        self._ring()
        return added

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until a job has come or ended so that it is so."""
        while not happened():
            await self._news.wait()

    def _ring(self) -> None:
        self._news.set()
        self._news.clear()

    def job(self, payload: Any) -> FakeJob:
        """The job with that payload."""
        [job] = [job for job in self.jobs.values() if job.payload == payload]
        return job

    def calls(self, call: str) -> list[Asked]:
        """What was asked of that kind."""
        return [asked for asked in self.asked if asked.call == call]

    def states(self) -> Counter[str]:
        """How many jobs are in each state now."""
        self._lapse()
        return Counter(job.state for job in self.jobs.values())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                return await self._handle(request)
        except TimeoutError as error:
            raise httpx.ReadTimeout("silence", request=request) from error

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = json.decode(request.content) if request.content else {}
        *_, job_id, call = ("", *request.url.path.removeprefix("/jobs/").split("/"))
        if call == "heartbeat" and not job_id:
            call = "beat"
        self.asked.append(Asked(self.now(), call, body))
        troubles = self.troubles[call]
        trouble = troubles.popleft() if troubles else Trouble()
        if self.away or trouble.refused:
            raise httpx.ConnectError("nobody listens", request=request)
        await asyncio.sleep(trouble.late_sec)
        if trouble.never_arrives:
            await asyncio.Event().wait()
        if trouble.status is not None:
            headers = {} if trouble.retry_after is None else {"retry-after": str(trouble.retry_after)}
            return httpx.Response(trouble.status, json=trouble.body or {"error": "no", "details": []}, headers=headers)
        status, answer = await self._answer(call, job_id, body)
        await asyncio.sleep(trouble.answer_late_sec)
        if trouble.answer_lost:
            raise httpx.ReadError("lost", request=request)
        return httpx.Response(status, content=json.encode(answer))

    async def _answer(self, call: str, job_id: str, body: dict[str, Any]) -> tuple[int, Any]:
        match call:
            case "claim":
                return 200, {"jobs": [job.shown() for job in await self._claim(**body)]}
            case "beat":
                return 200, {"results": [self._beat(lease, body["lease_sec"]) for lease in body["leases"]]}
            case "finish":
                return 200, {"results": [self._finish(report) for report in body["results"]]}
        job = self._held(job_id, body["token"])
        if job is None:
            return 409, {"error": f"the lease is lost: the job is {self.jobs[job_id].state}", "details": []}
        match call:
            case "start":
                job.state = "running"
            case "release":
                job.state, job.token, job.attempt = "queued", "", job.attempt - 1
                self._ring()
            case "heartbeat":
                job.ends_at, job.progress = self.now() + body["lease_sec"], body["progress"]
                return 200, {"expires_at": JOB["run_at"]}
        return 200, job.shown()

    async def _claim(self, limit: int, lease_sec: int, wait_sec: int, **_: Any) -> list[FakeJob]:
        ends_at = self.now() + wait_sec
        while not (queued := self._queued()) and self.now() < ends_at:
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._news.wait()
            except TimeoutError:
                break
        for job in queued[:limit]:
            self._tokens += 1
            job.state, job.token = "scheduled", f"token {self._tokens}"
            job.ends_at, job.attempt = self.now() + lease_sec, job.attempt + 1
        return queued[:limit]

    def _queued(self) -> list[FakeJob]:
        self._lapse()
        return [job for job in self.jobs.values() if job.state == "queued"]

    def _lapse(self) -> None:
        for job in self.jobs.values():
            if job.token and job.ends_at <= self.now():
                job.state, job.token = "queued", ""

    def _held(self, job_id: str, token: str) -> FakeJob | None:
        self._lapse()
        job = self.jobs[job_id]
        return job if job.token == token else None

    def _beat(self, lease: dict[str, Any], lease_sec: int) -> dict[str, Any]:
        job = self._held(lease["id"], lease["token"])
        if job is None:
            return {"id": lease["id"], "ok": False, "expires_at": None, "error": "the lease is lost"}
        job.ends_at = self.now() + lease_sec
        return {"id": job.id, "ok": True, "expires_at": JOB["run_at"], "error": None}

    def _finish(self, report: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs[report["id"]]
        if self._held(job.id, report["token"]) is not None:
            job.state, job.token = report["outcome"], ""
            job.result, job.error = report.get("result"), report.get("error")
            self._reported.add(report["token"])
            self._ring()
        ok = report["token"] in self._reported
        return {"id": job.id, "ok": ok, "state": job.state, "error": None if ok else "the lease is lost"}


def held(asked: Iterable[Asked]) -> list[int]:
    """How many leases each of these heartbeats was for."""
    return [len(beat.body["leases"]) for beat in asked]
