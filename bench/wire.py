"""HTTP/1.1 as a load generator speaks it: requests built once, connections kept, answers measured and not parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec

from bench.payload import PAYLOAD, TENANTS

_END_OF_HEADERS: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)


class Address(NamedTuple):
    """Where a service listens."""

    host: str
    port: int


class Refused(Exception):
    """The service did not do what was asked; what it said instead."""


class Connection(asyncio.Protocol):
    """One kept connection, with one request on it at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._got = b""
        self._then: Callable[[bytes], None]
        self._ended = asyncio.get_running_loop().create_future()
        self._ended.add_done_callback(lambda ended: ended.exception())  # whoever waits for an answer is told

    @staticmethod
    async def to(address: Address) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
        return connection

    def send(self, request: bytes, then: Callable[[bytes], None]) -> None:
        """Send it, and call `then` with the body of the answer."""
        self._then = then
        self._transport.write(request)

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.send(request, answered.set_result)
        await asyncio.wait([answered, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            self._ended.result()
        return answered.result()

    @property
    def ended(self) -> asyncio.Future[None]:
        """Done when the connection is no more, with the reason if there is one."""
        return self._ended

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(_END_OF_HEADERS)
        if end < 0:
            return
        body_at = end + len(_END_OF_HEADERS)
        if len(self._got) < body_at + _length_in(self._got[:end]):
            return
        answer, self._got = self._got, b""
        if answer[_STATUS] not in (b"200", b"201"):
            self._end(Refused(answer[:500].decode(errors="replace")))
            self._transport.close()
            return
        self._then(answer[body_at:])

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("the service has closed the connection"))

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


def _length_in(headers: bytes) -> int:
    lower = headers.lower()
    at = lower.find(_LENGTH) + len(_LENGTH)
    return int(lower[at:].split(b"\r\n", 1)[0])


def post(path: str, body: object, *headers: str) -> bytes:
    """A request, as it goes over the wire."""
    encoded = msgspec.json.encode(body)
    usual = ("Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(encoded)}")
    head = "\r\n".join((f"POST {path} HTTP/1.1", *usual, *headers))
    return head.encode() + _END_OF_HEADERS + encoded


def job(number: int, **beside: object) -> dict[str, object]:
    """The job that is submitted, of a tenant by turns."""
    return {"tenant": f"team-{number % TENANTS}", "test_suite": "tests/login", "payload": PAYLOAD, **beside}


def submits() -> list[bytes]:
    """Requests for one job each, of every tenant."""
    return [post("/jobs", job(number)) for number in range(TENANTS)]


def batch(size: int) -> bytes:
    """A request for so many jobs, answered by their ids, as Fairlane's own clients send it."""
    return post("/jobs/batch", {"jobs": [job(number) for number in range(size)]}, "Prefer: return=minimal")


def claim(worker: str, limit: int = 1, wait_sec: int = 0) -> bytes:
    """A request for jobs to be begun at once, under leases that outlive every run."""
    return post(
        "/jobs/claim", {"worker": worker, "limit": limit, "wait_sec": wait_sec, "lease_sec": 3600, "start": True}
    )


class _Lease(msgspec.Struct):
    token: str


class Claimed(msgspec.Struct):
    """What a worker has to know of a job in order to report it."""

    id: str
    lease: _Lease
    payload: dict[str, Any]


class _Claim(msgspec.Struct):
    jobs: list[Claimed]


_decode_claim: Final = msgspec.json.Decoder(_Claim).decode


def claimed_in(answer: bytes) -> list[Claimed]:
    """The jobs of a claim's answer."""
    return _decode_claim(answer).jobs


def finish(jobs: list[Claimed]) -> bytes:
    """A request that reports all of them done."""
    return post(
        "/jobs/finish", {"results": [{"id": job.id, "token": job.lease.token, "outcome": "completed"} for job in jobs]}
    )


class _Judged(msgspec.Struct):
    ok: bool


class _Finish(msgspec.Struct):
    results: list[_Judged]


_decode_finish: Final = msgspec.json.Decoder(_Finish).decode


def finished_in(answer: bytes) -> int:
    """How many reports were taken."""
    return sum(judged.ok for judged in _decode_finish(answer).results)
