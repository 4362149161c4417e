"""The front, before applications of a few lines: what it lets through, what it counts and what it tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from litestar.types import ASGIApp

from app.api.front import Front
from app.clock import Clock
from app.events import Event, RequestFailed, RequestServed
from tests.api.asgi import Call, Headers

HOST = (b"host", b"here")


async def answers(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"{}", "more_body": False})


async def must_not_be_asked(_scope: Any, _receive: Any, _send: Any) -> None:
    pytest.fail("the application was asked")


def front_of(app: Any, hosts: str = "any") -> tuple[Front, list[Event]]:
    events: list[Event] = []
    asgi: ASGIApp = app
    return Front(asgi, events.append, Clock(), hosts), events


class TestMalformed:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ([], 400),
            ([HOST, HOST], 400),
            ([(b"host", b" ")], 400),
            ([(b"host", b"a/b")], 400),
            ([(b"host", b"a b")], 400),
            ([HOST, (b"content-length", b"5"), (b"transfer-encoding", b"chunked")], 400),
            ([HOST, (b"x", b"a" * 32 * 1024)], 431),
            ([HOST, *([(b"x", b"a")] * 6000)], 431),
        ],
    )
    async def test_headers(self, headers: Headers, status: int) -> None:
        front, events = front_of(must_not_be_asked)
        call = await Call(headers=headers).of(front)
        assert call.status == status
        assert call.answer_headers[b"connection"] == b"close"
        assert call.answer_headers[b"content-type"] == b"application/json"
        assert sorted(call.answer) == ["details", "error"]
        [served] = events
        assert isinstance(served, RequestServed)
        assert served.status == status

    async def test_a_long_address_counts_as_well(self) -> None:
        front, _ = front_of(must_not_be_asked)
        assert (await Call(query=b"a" * 33_000).of(front)).status == 431

    async def test_headers_of_32_kib_are_let_through(self) -> None:
        front, _ = front_of(answers)
        assert (await Call(headers=[HOST, (b"x", b"a" * 32_000)]).of(front)).status == 204

    @pytest.mark.parametrize("host", [b"here", b"here:8080", b"127.0.0.1:80", b"[::1]:8080", b"a_b.example"])
    async def test_usual_hosts(self, host: bytes) -> None:
        front, _ = front_of(answers)
        assert (await Call(headers=[(b"host", host)]).of(front)).status == 204

    @pytest.mark.parametrize(
        "host",
        [
            b"evil.example",
            b"lanes.example.evil.example",
            b"127.0.0.1.evil.example",
            b"evil.example:8080",
            b"1.2.3",
            b"any",
        ],
    )
    async def test_a_host_that_is_not_ours_where_we_know_ours(self, host: bytes) -> None:
        front, _ = front_of(must_not_be_asked, "lanes.example,lanes")
        call = await Call(headers=[(b"host", host)]).of(front)
        assert call.status == 400
        assert "FAIRLANE_HOSTS" in call.answer["error"]

    @pytest.mark.parametrize(
        "host",
        [
            b"lanes.example",
            b"LANES.example.:443",
            b"lanes:8080",
            b"localhost",
            b"localhost:1",
            b"127.0.0.1",
            b"[::1]:80",
        ],
    )
    async def test_our_hosts_and_addresses(self, host: bytes) -> None:
        front, _ = front_of(answers, "lanes.example,lanes")
        assert (await Call(headers=[(b"host", host)]).of(front)).status == 204

    @pytest.mark.parametrize("path", [b"/a//b", b"//", b"/a/", b"/a%2Fb", b"/a%2fb", b"/%FF", b"/%ED%A0%80"])
    async def test_paths_that_could_be_read_in_two_ways(self, path: bytes) -> None:
        front, _ = front_of(must_not_be_asked)
        assert (await Call(path=path).of(front)).status == 404


class TestFaults:
    async def test_a_fault_is_told_to_the_log_and_not_to_the_client(self) -> None:
        async def fails(_scope: Any, _receive: Any, _send: Any) -> None:
            raise ZeroDivisionError("secret")

        front, events = front_of(fails)
        call = await Call(method="POST", path=b"/x").of(front)
        assert call.status == 500
        assert "secret" not in str(call.sent)
        [failed, served] = events
        assert isinstance(failed, RequestFailed)
        assert (failed.method, failed.path) == ("POST", "/x")
        assert failed.error.startswith("Traceback")
        assert "ZeroDivisionError: secret" in failed.error
        assert isinstance(served, RequestServed)

    async def test_a_fault_in_mid_answer_ends_it(self) -> None:
        async def fails(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ZeroDivisionError

        front, events = front_of(fails)
        assert len((await Call().of(front)).sent) == 1
        assert [type(event) for event in events] == [RequestFailed, RequestServed]

    async def test_a_client_that_hung_up_is_no_fault(self) -> None:
        async def hung_up(_message: Any) -> None:
            raise ConnectionResetError

        front, events = front_of(answers)
        scope: Any = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b""}
        receive: Any = None
        await front(scope | {"headers": [HOST]}, receive, hung_up)
        assert [type(event) for event in events] == [RequestServed]


class TestTelling:
    @pytest.mark.parametrize(
        ("path", "shown"),
        [
            (b"/jobs", "/jobs"),
            (b"/tenants/caf%C3%A9", "/tenants/café"),
            (b"/a%0D%0A[SERVER]%20x%1B[2J", "/a\\r\\n[SERVER] x\\x1b[2J"),
            (b"/%E2%80%AE%C2%9B", "/\\u202e\\x9b"),
            (b"/" + b"a" * 1000, "/" + "a" * 255 + "..."),
        ],
    )
    async def test_a_path_is_shown_as_harmless_text(self, path: bytes, shown: str) -> None:
        front, events = front_of(answers)
        await Call(path=path, query=b"token=secret").of(front)
        [served] = events
        assert isinstance(served, RequestServed)
        assert (served.method, served.path, served.status) == ("GET", shown, 204)
        assert 0 <= served.took_ms < 10_000


class TestCounting:
    async def test_idle_once_the_last_request_is_answered(self) -> None:
        entered, may_go = asyncio.Semaphore(0), asyncio.Event()

        async def waits(scope: Any, receive: Any, send: Any) -> None:
            entered.release()
            await may_go.wait()
            await answers(scope, receive, send)

        front, _ = front_of(waits)
        assert await front.wait_idle(0)
        calls = [asyncio.create_task(Call().of(front)) for _ in range(3)]
        for _ in calls:
            await entered.acquire()
        assert front.in_flight == 3
        assert not await front.wait_idle(0.001)
        idle = asyncio.create_task(front.wait_idle(30))
        may_go.set()
        assert await idle
        assert front.in_flight == 0
        await asyncio.gather(*calls)

    async def test_a_cancelled_request_is_not_in_flight(self) -> None:
        entered = asyncio.Event()

        async def waits(_scope: Any, _receive: Any, _send: Any) -> None:
            entered.set()
            await asyncio.Event().wait()

        front, events = front_of(waits)
        call = asyncio.create_task(Call().of(front))
        await entered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert front.in_flight == 0
        assert [type(event) for event in events] == [RequestServed]

    async def test_what_is_no_request_passes(self) -> None:
        seen = []

        async def sees(scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(scope["type"])

        front, events = front_of(sees)
        scope: Any = {"type": "lifespan"}
        nothing: Any = None
        await front(scope, nothing, nothing)
        assert (seen, events) == (["lifespan"], [])
