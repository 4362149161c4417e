"""Both clients on a server that misbehaves: what comes over a socket, and what does not."""

from __future__ import annotations

import asyncio
import time
from inspect import signature

import httpx
import pytest

from app.client import (
    AsyncClient,
    Backoff,
    Client,
    DeadlineExceeded,
    FairlaneError,
    InvalidRequest,
    RateLimited,
    Unavailable,
    UnexpectedAnswer,
)
from app.client.client import failure_of
from tests.client.both import Kind, connected
from tests.client.misbehaving import (
    Act,
    babbles,
    breaks_off,
    drips,
    hangs_up,
    is_silent,
    misbehaving,
    refuses,
    resets,
    says,
)
from tests.client.test_calls import JOB
from tests.served import PATIENCE_SEC

AT_ONCE = Backoff(0.001, 0.001)
STATS = {"queue_depth": 0, "total_jobs": 0, "tenant_counts": {}, "state_counts": {}, "queues": {}}


@pytest.mark.parametrize(
    "act", [hangs_up, resets, breaks_off, babbles, refuses(503), refuses(429), says(502, b"<html>")]
)
async def test_a_submit_survives_what_passes_and_is_the_same_each_time(kind: Kind, act: Act) -> None:
    async with (
        misbehaving(act, act, says(201, JOB)) as server,
        connected(kind, server.url, backoff=AT_ONCE) as client,
    ):
        job = await client.submit("acme", "suite", payload={"a": 1})
    assert job.id == JOB["id"]
    assert len(server.received) == 3
    assert len({request.headers["idempotency-key"] for request in server.received}) == 1
    assert len({request.body for request in server.received}) == 1


@pytest.mark.parametrize("act", [hangs_up, resets, breaks_off, babbles, refuses(503)])
async def test_a_claim_is_not_sent_twice_when_its_answer_is_lost(kind: Kind, act: Act) -> None:
    async with misbehaving(act) as server, connected(kind, server.url, backoff=AT_ONCE) as client:
        with pytest.raises(Unavailable) as caught:
            await client.claim("worker")
    assert caught.value.in_doubt
    assert len(server.received) == 1


async def test_a_silent_server_is_given_a_try_and_then_another(kind: Kind) -> None:
    async with (
        misbehaving(is_silent, says(200, STATS)) as server,
        connected(kind, server.url, backoff=AT_ONCE, try_sec=0.3) as client,
    ):
        assert (await client.stats()).total_jobs == 0
    assert len(server.received) >= 2


async def test_a_silent_server_does_not_hold_a_call_beyond_its_deadline(kind: Kind) -> None:
    async with misbehaving(is_silent) as server, connected(kind, server.url, deadline_sec=0.5) as client:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=server.url) as caught:
            await client.stats()
    assert 0.5 <= time.monotonic() - began < PATIENCE_SEC
    assert caught.value.in_doubt


async def test_an_answer_that_drips_does_not_outlast_a_try(kind: Kind) -> None:
    for_ever = drips((b" " for _ in range(10_000)), every_sec=0.02)
    async with misbehaving(for_ever) as server, connected(kind, server.url, try_sec=0.5, deadline_sec=1.0) as client:
        with pytest.raises((DeadlineExceeded, Unavailable)):
            await client.stats()
    assert server.received


async def test_nobody_there_is_told_with_the_address(kind: Kind, unused_port: int) -> None:
    url = f"http://127.0.0.1:{unused_port}/prefix"
    async with connected(kind, url, backoff=Backoff(1000.0, 1000.0), deadline_sec=5.0) as client:
        with pytest.raises(Unavailable, match=f"http://127.0.0.1:{unused_port}") as caught:
            await client.submit("acme", "suite")
    assert not caught.value.in_doubt


async def test_the_time_that_the_service_names_is_waited_for(kind: Kind) -> None:
    async with (
        misbehaving(refuses(429, retry_after="1"), says(201, JOB)) as server,
        connected(kind, server.url, backoff=AT_ONCE) as client,
    ):
        began = time.monotonic()
        await client.submit("acme", "suite")
    assert time.monotonic() - began >= 1


async def test_a_time_beyond_the_deadline_fails_at_once(kind: Kind) -> None:
    async with (
        misbehaving(refuses(429, "too fast", retry_after="3600")) as server,
        connected(kind, server.url) as client,
    ):
        with pytest.raises(RateLimited, match="too fast") as caught:
            await client.submit("acme", "suite")
    assert caught.value.retry_after == 3600


@pytest.mark.parametrize("act", [says(200, b"<html>hello</html>"), says(404, b"<html>"), says(302, b"", location="/x")])
async def test_another_service_behind_the_address_is_told(kind: Kind, act: Act) -> None:
    async with misbehaving(act) as server, connected(kind, server.url) as client:
        with pytest.raises(UnexpectedAnswer):
            await client.get_job("0" * 32)
    assert len(server.received) == 1


async def test_a_request_says_who_sends_it_and_with_which_key(kind: Kind) -> None:
    async with misbehaving(says(200, STATS)) as server, connected(kind, server.url + "/behind/", key="k3y") as client:
        await client.stats()
    [request] = server.received
    assert request.target == "/behind/stats"
    assert request.headers["user-agent"].startswith("fairlane-python/0.1.0 httpx/")
    assert request.headers["authorization"] == "Bearer k3y"
    assert request.headers["accept"] == "application/json"


async def test_without_a_key_none_is_sent(kind: Kind) -> None:
    async with misbehaving(says(200, STATS)) as server, connected(kind, server.url) as client:
        await client.stats()
    assert "authorization" not in server.received[0].headers


async def test_a_walk_asks_for_a_page_when_it_is_wanted(kind: Kind) -> None:
    pages = [says(200, [JOB] * 2, link='</jobs?limit=2&cursor=c1>; rel="next"'), says(200, [JOB])]
    async with misbehaving(*pages) as server, connected(kind, server.url) as client:
        assert len(await client.walked(tenant="a b", limit=2)) == 3
    targets = [request.target for request in server.received]
    assert targets == ["/jobs?tenant=a+b&limit=2&order=desc", "/jobs?tenant=a+b&limit=2&order=desc&cursor=c1"]


async def test_a_shorter_deadline_is_for_the_calls_of_its_own(kind: Kind) -> None:
    async with misbehaving(is_silent) as server, connected(kind, server.url) as client:
        with pytest.raises(DeadlineExceeded):
            await client.within(0.05).stats()
        assert client.client.terms.deadline_sec == 60.0


async def test_without_retries_the_first_failure_is_told(kind: Kind) -> None:
    async with misbehaving(refuses(503, "draining")) as server, connected(kind, server.url) as client:
        with pytest.raises(Unavailable, match="draining"):
            await client.without_retries().stats()
    assert len(server.received) == 1


@pytest.mark.parametrize("make", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://host", "", "/jobs", "http://", "http://[::", "http://host:port"]
)
def test_an_address_that_is_none_is_refused_at_once(make: type[Client] | type[AsyncClient], url: str) -> None:
    with pytest.raises(ValueError, match="no address of a service"):
        make(url)


@pytest.mark.parametrize(
    ("error", "kind_of", "in_doubt"),
    [
        (httpx.ConnectError("refused"), Unavailable, False),
        (httpx.ConnectTimeout("slow"), Unavailable, False),
        (httpx.PoolTimeout("busy"), Unavailable, False),
        (httpx.ProxyError("no way"), Unavailable, False),
        (httpx.ReadTimeout("slow"), Unavailable, True),
        (httpx.WriteTimeout("slow"), Unavailable, True),
        (httpx.ReadError("reset"), Unavailable, True),
        (httpx.WriteError("reset"), Unavailable, True),
        (httpx.CloseError("reset"), Unavailable, True),
        (httpx.RemoteProtocolError("babble"), Unavailable, True),
        (httpx.LocalProtocolError("illegal header"), InvalidRequest, None),
        (httpx.DecodingError("bad gzip"), UnexpectedAnswer, None),
    ],
)
def test_each_error_of_httpx_has_a_meaning(
    error: httpx.RequestError, kind_of: type[FairlaneError], in_doubt: object
) -> None:
    failure = failure_of(error, httpx.URL("http://user:secret@host:1/prefix/"))
    assert type(failure) is kind_of
    assert getattr(failure, "in_doubt", None) is in_doubt
    assert failure.__cause__ is error
    assert "secret" not in str(failure)


def test_both_clients_have_the_same_calls_with_the_same_words() -> None:
    names = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert names == {name for name in vars(AsyncClient) if not name.startswith("_")} - {"aclose"}
    for name in names:
        blocking, awaiting = getattr(Client, name), getattr(AsyncClient, name)
        assert blocking.__doc__, name
        assert blocking.__doc__ == awaiting.__doc__
        assert blocking.__name__ == awaiting.__name__ == name
        assert (blocking.__qualname__, awaiting.__qualname__) == (f"Client.{name}", f"AsyncClient.{name}")
        assert list(signature(blocking).parameters) == list(signature(awaiting).parameters)
        assert next(iter(signature(blocking).parameters)) == "self"


async def test_a_method_can_be_looked_at_like_any_other() -> None:
    with Client() as client:
        assert list(signature(client.submit).parameters)[:2] == ["tenant", "test_suite"]


async def test_a_blocking_client_serves_many_threads() -> None:
    async with misbehaving(says(200, STATS)) as server, connected("blocking", server.url) as client:
        assert len(await asyncio.gather(*(client.stats() for _ in range(20)))) == 20
    assert len(server.received) == 20
