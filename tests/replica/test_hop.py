"""One hop, seen from its other end: what arrives there, and what becomes of a call that is not answered."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from tests.databases import Database, Databases
from tests.replica.several import TTL_SEC
from tests.served import PATIENCE_SEC, serving

_JOB: Final = {"tenant": "acme", "test_suite": "suite"}
_YES: Final = b"HTTP/1.1 200 \r\ncontent-type: application/json\r\ncontent-length: 2\r\nx-told: once\r\n\r\n{}"
_NOT_ME: Final = b"HTTP/1.1 503 \r\nfairlane-role: standby\r\ncontent-length: 2\r\n\r\n{}"
_HALF: Final = b"HTTP/1.1 200 \r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
_HEAD: Final = _HALF.removesuffix(b"{")
_EVENTS: Final = b"HTTP/1.1 200 \r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n"


class FarEnd:
    """Answers each request with the next of `answers`, and hangs up; without an answer if there is none. A probe, which
    comes when it likes, is answered and not counted."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[bytes] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1")
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /health/live "):
            writer.write(_YES)
            writer.close()
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(lengths[0].partition(b":")[2])) if lengths else b""
        self.asked.append(head + body)
        if self.answers:
            writer.write(self.answers.pop(0))
        writer.close()

    def expect(self, *answers: bytes) -> None:
        """These are the next answers."""
        self.answers, self.asked = list(answers), []


@pytest.fixture(scope="module")
def kept(postgres_databases: Databases) -> Iterator[Database]:
    made = postgres_databases.create()
    yield made
    postgres_databases.drop(made)


@pytest.fixture(scope="module")
async def hop(kept: Database) -> AsyncIterator[tuple[FarEnd, httpx.AsyncClient]]:
    """The far end, and a client of a replica that stands by for it."""
    far = FarEnd()
    async with far.listening() as port:
        await kept.execute(
            "INSERT INTO dispatcher (name, holder, address, epoch, expires_at)"
            f" VALUES ('main', 'far end', '127.0.0.1:{port}', 1, now() + interval '1 hour')"
        )
        async with serving(kept.url, leader_ttl_sec=TTL_SEC) as served, served.client() as client:
            await served.logged("standing_by")
            yield far, client


async def test_all_but_what_is_of_one_hop_arrives(hop: tuple[FarEnd, httpx.AsyncClient]) -> None:
    far, client = hop
    far.expect(_YES)
    headers = {
        "Authorization": "Bearer of a key",
        "Idempotency-Key": "k",
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "1",
        "X-Ours": "2",
        "Host": "lanes.example.com",
    }
    answer = await client.post("/tenants/a%2Bb%20c/erase?x=%61", json={"dry_run": True}, headers=headers)
    assert (answer.status_code, answer.json(), answer.headers["x-told"]) == (200, {}, "once")
    [asked] = far.asked
    head, _, body = asked.partition(b"\r\n\r\n")
    line, *told = head.split(b"\r\n")
    names = {each.partition(b": ")[0].lower(): each.partition(b": ")[2] for each in told}
    assert line == b"POST /tenants/a%2Bb%20c/erase?x=%61 HTTP/1.1"
    assert body == b'{"dry_run":true}'
    assert names[b"authorization"] == b"Bearer of a key"
    assert names[b"idempotency-key"] == b"k"
    assert names[b"host"] == b"lanes.example.com"
    assert names[b"x-ours"] == b"2"
    assert b"process" in names[b"fairlane-forwarded"]
    assert b"x-mine" not in names


@pytest.mark.parametrize("lost", [b"", _HEAD], ids=["nothing", "a head"])
async def test_what_may_be_sent_twice_is_sent_again_when_no_answer_comes(
    hop: tuple[FarEnd, httpx.AsyncClient], lost: bytes
) -> None:
    far, client = hop
    for method, path, more in (
        ("GET", "/stats", {}),
        ("PUT", "/tenants/acme", {"json": {"weight": 2}}),
        ("POST", f"/jobs/{'0' * 32}/complete", {"json": {"token": "t"}}),
        ("POST", "/jobs", {"json": _JOB, "headers": {"Idempotency-Key": "k"}}),
    ):
        far.expect(lost, _YES)
        answer = await client.request(method, path, **more)
        assert (answer.status_code, len(far.asked)) == (200, 2), path


async def test_what_may_not_is_in_doubt(hop: tuple[FarEnd, httpx.AsyncClient]) -> None:
    far, client = hop
    key = {"Idempotency-Key": "k"}  # heeded where one job is submitted, and nowhere else
    for path, body, headers in (
        ("/jobs", _JOB, {}),
        ("/jobs/claim", {"worker": "w"}, {}),
        ("/jobs/batch", {"jobs": [_JOB]}, {}),
        ("/jobs/claim", {"worker": "w"}, key),
        (f"/jobs/{'0' * 32}/retry", None, key),
        ("/keys", {"name": "n", "role": "admin"}, key),
    ):
        far.expect(b"", _YES)
        answer = await client.post(path, json=body, headers=headers)
        assert (answer.status_code, len(far.asked)) == (503, 1), path
        assert "may have been done" in answer.json()["error"]
        assert int(answer.headers["retry-after"]) >= 1


async def test_who_does_not_dispatch_has_done_nothing(hop: tuple[FarEnd, httpx.AsyncClient]) -> None:
    far, client = hop
    far.expect(_NOT_ME, _NOT_ME, _YES)
    answer = await client.post("/jobs/claim", json={"worker": "w"})
    assert (answer.status_code, len(far.asked)) == (200, 3)


async def test_half_an_answer_is_seen_to_be_half(hop: tuple[FarEnd, httpx.AsyncClient]) -> None:
    far, client = hop
    far.expect(_HALF, _YES)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get("/stats")
    assert len(far.asked) == 1  # part of it is out already


async def test_a_stream_of_events_that_breaks_off_ends(hop: tuple[FarEnd, httpx.AsyncClient]) -> None:
    far, client = hop
    far.expect(_EVENTS)
    async with asyncio.timeout(PATIENCE_SEC), client.stream("GET", "/events") as answer:
        assert [line async for line in answer.aiter_lines()] == [":", ""]
