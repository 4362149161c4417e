"""What stands around bodies: heads, lengths, connections. Whatever comes, the next request is served: on the same
connection where it can still be read, on another one else."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.databases import Databases
from tests.input.wire import LAST, chunked, connection, head, peak_bytes, post
from tests.served import Served, serving

JOB: Final = b'{"tenant": "acme", "test_suite": "smoke"}'
LENGTH: Final = f"Content-Length: {len(JOB)}"
CHUNKED: Final = "Transfer-Encoding: chunked"
MIB: Final = 1024 * 1024
UPGRADE: Final = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


def submit(*headers: str, kind: str = "application/json") -> bytes:
    return head("POST", "/jobs", f"Content-Type: {kind}", *headers)


@pytest.fixture(scope="module")
async def served(sqlite_databases: Databases) -> AsyncIterator[Served]:
    """One service for all of it, and one engine: what is refused here gets to no database."""
    async with serving(sqlite_databases.create().url) as running:
        yield running


@pytest.fixture(autouse=True)
async def others_are_served_after_it(served: Served) -> AsyncIterator[None]:
    yield
    async with served.client() as client:
        assert (await client.post("/jobs", content=JOB, headers={"content-type": "application/json"})).is_success
    assert not [event for event in served.events if event["event"] == "request_failed"]


ENDS_THE_CONNECTION: Final = {
    "no host": (head("GET", "/stats", host=None), 400),
    "no host, HTTP/1.0": (b"GET /stats HTTP/1.0\r\n\r\n", 400),
    "two hosts": (head("GET", "/stats", "Host: other"), 400),
    "an empty host": (head("GET", "/stats", host="Host: "), 400),
    "two ways to say how long": (submit(CHUNKED, LENGTH) + chunked([JOB]), 400),
    "the other way round": (submit(LENGTH, CHUNKED) + chunked([JOB]), 400),
    "two lengths": (submit("Content-Length: 3", "Content-Length: 4") + b"{}  ", 400),
    "the same length twice": (submit(LENGTH, LENGTH) + JOB, 400),
    "a length below zero": (submit("Content-Length: -1") + JOB, 400),
    "a length with a sign": (submit("Content-Length: +5") + JOB, 400),
    "a length that is no number": (submit("Content-Length: 0x29") + JOB, 400),
    "a length beyond 2^64": (submit("Content-Length: 99999999999999999999") + JOB, 400),
    "a body that is longer than its length": (submit("Content-Length: 10") + JOB, 400),
    "a chunk that is none": (submit(CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk beyond 2^64": (submit(CHUNKED) + b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n", 400),
    "a coding that nobody knows": (submit("Transfer-Encoding: gzip") + JOB, 400),
    "chunked twice": (submit(CHUNKED, CHUNKED) + chunked([JOB]), 400),
    "a header of 2 MB": (head("GET", "/stats", "X: " + "a" * 2_000_000), 431),
    "many headers": (head("GET", "/stats", *["X: a"] * 10_000), 431),
    "a long address": (head("GET", "/stats?" + "a" * 40_000), 431),
    "a folded header": (head("GET", "/stats", "X: a\r\n b"), 400),
    "NUL in a header": (head("GET", "/stats", "X: a\0b"), 400),
    "a space before the colon": (head("GET", "/stats", "X : a"), 400),
    "a space in the path": (head("GET", "/tenants/a b"), 400),
    "NUL in the path": (head("GET", "/tenants/\0"), 400),
    "raw UTF-8 in the path": (head("GET", "/tenants/\u00e9"), 400),
    "line feeds alone": (b"GET /stats HTTP/1.1\nHost: here\n\n", 400),
    "a path of another charset": (head("GET", "/tenants/%FF"), 404),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a method that nobody knows": (head("FETCH", "/stats"), 400),
    "CONNECT": (head("CONNECT", "here:80"), 400),
    "no HTTP": (b"HELO here\r\n", 400),
    "two wishes for another protocol at once": (head("GET", "/stats", *UPGRADE) * 2, 400),
}


@pytest.mark.parametrize("what", ENDS_THE_CONNECTION)
async def test_what_cannot_be_trusted_ends_the_connection(served: Served, what: str) -> None:
    said, status = ENDS_THE_CONNECTION[what]
    async with connection(served) as sender:
        await sender.say(said + LAST)
        answers = await sender.rest()
    assert [answer.status for answer in answers][-1] == status
    assert answers[-1].error
    assert answers[-1].headers["connection"] == "close"
    assert not [answer for answer in answers if answer.status == 200 and b"live" in answer.body]  # nothing is smuggled


GOES_ON: Final = {
    "no type": (head("POST", "/jobs", LENGTH) + JOB, 415),
    "two types": (submit(LENGTH, "Content-Type: application/json") + JOB, 415),
    "an empty type": (submit(LENGTH, kind="") + JOB, 415),
    "text": (submit(LENGTH, kind="text/plain") + JOB, 415),
    "a form": (submit(LENGTH, kind="application/x-www-form-urlencoded") + JOB, 415),
    "a form of parts": (submit(LENGTH, kind="multipart/form-data; boundary=x") + JOB, 415),
    "nearly JSON": (submit(LENGTH, kind="application/jsonp") + JOB, 415),
    "JSON of some kind": (submit(LENGTH, kind="application/problem+json") + JOB, 415),
    "JSON in another charset": (submit(LENGTH, kind="application/json; charset=latin-1") + JOB, 415),
    "JSON with an unknown parameter": (submit(LENGTH, kind="application/json; version=1") + JOB, 415),
    "JSON in UTF-8": (submit(LENGTH, kind='Application/JSON ; charset="UTF-8"') + JOB, 201),
    "chunks": (submit(CHUNKED) + chunked([JOB[:7], JOB[7:]]), 201),
    "chunks that say more": (submit(CHUNKED) + b"29;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n" % JOB, 201),
    "too large": (submit(f"Content-Length: {MIB + 1}") + b" " * (MIB + 1), 413),
    "too large in chunks": (submit(CHUNKED) + chunked([b" " * 0x10000] * 17), 413),
    "a batch too large in chunks": (
        head("POST", "/jobs/batch", "Content-Type: application/json", CHUNKED) + chunked([b" " * MIB] * 17),
        413,
    ),
    "deep": (post("/jobs", b'{"tenant":"a","test_suite":"s","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
    "deep and without an end": (post("/jobs", b'{"payload":' * 80_000), 400),
    "a million items": (post("/jobs/batch", b'{"jobs":[%b]}' % b",".join([b"{}"] * 1_000_000)), 400),
    "a million reports": (post("/jobs/finish", b'{"results":[%b]}' % b",".join([b"{}"] * 1_000_000)), 400),
    "many beats": (post("/jobs/heartbeat", b'{"leases":[%b]}' % b",".join([b"{}"] * 300_000)), 400),
    "a body beside what takes none": (head("GET", "/stats", LENGTH, "Content-Type: application/json") + JOB, 400),
    "no body": (submit("Content-Length: 0"), 400),
    "a wish for HTTP/2": (submit(LENGTH, *UPGRADE) + JOB, 201),
    "a wish for HTTP/2, in chunks": (submit(CHUNKED, *UPGRADE) + chunked([JOB]), 201),
    "a wish for a websocket": (head("GET", "/events?x=1", "Connection: Upgrade", "Upgrade: websocket"), 400),
    "another host in the address": (head("GET", "http://other/stats"), 200),
    "OPTIONS *": (head("OPTIONS", "*"), 404),
    "TRACE": (head("TRACE", "/stats"), 405),
    "latin-1 in a header": (head("GET", "/stats", "X: ").replace(b"X: ", b"X: \xff"), 200),
    "empty lines before": (b"\r\n\r\n" + head("GET", "/stats"), 200),
    "a query of another charset": (head("GET", "/jobs?tenant=%FF"), 400),
}


@pytest.mark.parametrize("what", GOES_ON)
async def test_what_can_be_read_to_its_end_does_not(served: Served, what: str) -> None:
    said, status = GOES_ON[what]
    async with connection(served) as sender:
        await sender.say(said + LAST)
        answers = [answer for answer in await sender.rest() if answer.status != 100]
    assert [answer.status for answer in answers] == [status, 200]
    assert status < 400 or answers[0].error


async def test_a_length_that_is_a_lie_is_believed_as_far_as_it_is_allowed(served: Served) -> None:
    async with connection(served) as sender:
        await sender.say(post("/jobs", JOB, length=2**63))
        assert (await sender.next()).status == 413
    async with connection(served) as sender:
        await sender.say(post("/jobs", JOB, length=2**20))  # and hangs up


async def test_who_asks_before_it_sends_is_told_to_go_on_or_not_to(served: Served) -> None:
    for length, statuses in ((len(JOB), [100, 201]), (2 * MIB, [413])):
        async with connection(served) as sender:
            await sender.say(submit(f"Content-Length: {length}", "Expect: 100-continue"))
            assert (await sender.next()).status == statuses[0]
            if statuses[1:]:
                await sender.say(JOB)
                assert (await sender.next()).status == statuses[1]


@pytest.mark.skipif(sys.platform != "linux", reason="only there a process says how much memory it ever had")
@pytest.mark.parametrize(
    "begin",
    [
        b"GET /stats HTTP/1.1\r\nX: ",
        b"GET /stats",
        submit(CHUNKED) + b"1\r\n{\r\n0\r\nX: ",
        submit(CHUNKED) + b"1;",
    ],
    ids=["a header", "an address", "what stands behind a body", "what stands beside a chunk"],
)
async def test_what_has_no_end_is_not_read_for_ever(served: Served, begin: bytes) -> None:
    before = peak_bytes(served)
    async with connection(served) as sender:
        await sender.say(begin, *[b"a" * MIB] * 64)
        answers = await sender.rest()  # or none: it may be lost with what was not read any more
    assert {answer.status for answer in answers} <= {400, 431}
    assert peak_bytes(served) - before < 16 * MIB


async def test_a_connection_that_goes_on_asking_for_another_protocol_is_served(served: Served) -> None:
    async with connection(served) as sender:
        for _ in range(3):
            await sender.say(submit(LENGTH, *UPGRADE), JOB)
            assert (await sender.next()).status == 201
