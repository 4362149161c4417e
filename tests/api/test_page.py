"""The operator's page without a browser: what it shows, whom it lets change what, and what it never lets through."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.api.application import create_app
from app.api.page import bell, explanations
from app.api.page.explanations import Explanations
from app.api.page.shared import Shared
from app.errors import Unavailable
from app.events import Event, RequestFailed
from app.flow import look
from app.flow.core import Core, Phase
from app.flow.watch import overview
from tests.api.asgi import Call, client_of
from tests.flow.harness import FakeClock

EVIL: Final = "<img src=x onerror=alert(1)>"
OURS: Final = {"sec-fetch-site": "same-origin"}
NO_JOB: Final = "0" * 32
FOREIGN: Final[list[dict[str, str]]] = [
    {},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "cross-site", "origin": "http://fairlane.test"},
    {"origin": "http://evil.test"},
    {"origin": "http://fairlane.test.evil.test"},
    {"origin": "http://fairlane.test:8080"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://["},
]


async def _submit(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/jobs", json={"tenant": "acme", "test_suite": "smoke"} | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def _shown(client: httpx.AsyncClient, path: str, status: int = 200, **params: str) -> str:
    """The page as HTML, once it is sure to be one."""
    answer = await client.get(path, params=params or None)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    _Strict().feed(answer.text)
    return answer.text


class _Strict(HTMLParser):
    """Refuses what the policy would not run, and every address that is not our own."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert tag not in ("style", "iframe", "object", "embed", "base", "img")
        assert tag != "script" or "src" in given
        assert not [name for name in given if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action"):
            assert re.match(r"/(?!/)|#", given.get(name) or "/"), given


async def _sent(client: httpx.AsyncClient, path: str, status: int = 303, **form: str) -> httpx.Response:
    """What a form of ours is answered."""
    answer = await client.post(path, data=form, headers=OURS)
    assert answer.status_code == status, answer.text
    return answer


class TestShowing:
    async def test_an_empty_service_says_so(self, client: httpx.AsyncClient) -> None:
        page = await _shown(client, "/")
        for words in ("No tenant has any jobs", "No worker holds", "Nothing waits", "There are no jobs yet"):
            assert words in page
        assert "None" not in page

    async def test_the_overview_shows_queues_tenants_workers_and_jobs(self, client: httpx.AsyncClient) -> None:
        waiting = await _submit(client, tenant="globex", test_suite="smoke/two", queue="gpu")
        await _submit(client)
        claim = await client.post("/jobs/claim", json={"worker": "runner-7"})
        [held] = claim.json()["jobs"]
        page = await _shown(client, "/")
        for words in ("globex", "gpu", "acme", "runner-7", "smoke/two", waiting["id"], held["id"]):
            assert words in page
        assert page.count(waiting["id"]) == 4  # a link and its title, among the newest and among the oldest

    async def test_a_name_is_only_ever_text(self, client: httpx.AsyncClient) -> None:
        for name in (EVIL, "a&b=c#d?e%2Ff", "..", "\u202etxt.exe", "'\"", "ä😀", "{{ 7 * 7 }}"):
            job = await _submit(client, tenant=name, queue=name, test_suite=name, payload={name: "</pre>" + name})
            found = await _shown(client, "/page/jobs", tenant=name, queue=name, test_suite=name)
            assert job["id"] in found
            pages = [
                await _shown(client, f"/page/jobs/{job['id']}"),
                await _shown(client, f"/page/jobs/{job['id']}/cancel"),
                await _shown(client, "/page/tenant", name=name),
                await _shown(client, "/page/queue", name=name),
                await _shown(client, "/page/tenant/switch", name=name, to="paused"),
                await _shown(client, "/page/queue/switch", name=name, to="paused"),
                await _shown(client, "/page/tenant/weight", name=name, weight="3"),
            ]
            for page in pages:
                assert f"<bdi>{name}</bdi>" in unescape(page)
            links = [unescape(link) for link in re.findall(r'href="(/page/(?:tenant|queue)\?[^"]*)"', pages[0])]
            assert [urlsplit(link).path for link in links] == ["/page/tenant", "/page/queue"]
            for link in links:
                assert parse_qs(urlsplit(link).query) == {"name": [name]}
                assert f"<bdi>{name}</bdi>" in unescape(await _shown(client, link))

    async def test_a_job_shows_its_life(self, client: httpx.AsyncClient) -> None:
        job = await _submit(client, payload={"branch": "main"}, max_attempts=2)
        for worker, call in (("first", "release"), ("second", "cancel")):
            claim = await client.post("/jobs/claim", json={"worker": worker, "start": True})
            [held] = claim.json()["jobs"]
            token = {"token": held["lease"]["token"]} if call == "release" else None
            assert (await client.post(f"/jobs/{job['id']}/{call}", json=token)).status_code == 200
        page = await _shown(client, f"/page/jobs/{job['id']}")
        for words in ("cancelled", "released", "first", "second", "in the queue", "running", "branch", "None."):
            assert words in page

    async def test_a_job_that_waits_says_why(self, client: httpx.AsyncClient) -> None:
        first, second = await _submit(client), await _submit(client)
        delayed = await _submit(client, delay_sec=3600)
        path = f"/page/jobs/{second['id']}"
        page = await _shown(client, path)
        assert "Why it waits" in page
        explained = (await client.get(f"/jobs/{second['id']}/explain")).json()
        for reason in explained["reasons"]:
            assert _at_any_time(reason["text"]) in _at_any_time(unescape(page))
        assert explained["to_be_next"]["text"] in unescape(page)
        assert explained["bound"]["text"] in unescape(page)
        assert "It is due at" in await _shown(client, f"/page/jobs/{delayed['id']}")
        await client.post("/jobs/claim", json={"worker": "w", "limit": 2})
        for job in (first, second):
            assert "Why it waits" not in await _shown(client, f"/page/jobs/{job['id']}")

    async def test_only_the_jobs_looked_at_last_are_kept_explained(
        self, core: Core, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(explanations, "_KEPT", 2)
        told, explained = 0, Explanations(core)
        jobs = [await look.get_job(core, (await _submit(client))["id"]) for _ in range(4)]
        for job in jobs * 2:
            told += (await explained.of(job)) is not None
        assert told == 8
        assert len(explained._kept) == 2

    async def test_pages_of_what_is_not_there_say_so(self, client: httpx.AsyncClient) -> None:
        for path in (
            f"/page/jobs/{NO_JOB}",
            "/page/jobs/x",
            f"/page/jobs/{NO_JOB}/cancel",
            f"/page/jobs/{NO_JOB}/retry",
        ):
            assert "Job not found" in await _shown(client, path, 404)
        assert "Tenant not found" in await _shown(client, "/page/tenant", 404, name="nobody")
        assert "Queue not found" in await _shown(client, "/page/queue", 404, name="none")
        await _shown(client, "/page/tenant", 400)
        await _shown(client, "/page/tenant", 400, name="a/b")
        await _shown(client, "/page/tenant/weight", 400, name="acme", weight="0")
        await _shown(client, "/page/tenant/weight", 400, name="acme", weight="many")
        await _shown(client, "/page/queue/switch", 400, name="acme", to="on")
        await _shown(client, "/page/jobs", 400, state="done")
        await _shown(client, "/page/static/0/page.css", 404)
        assert (await client.get("/page/nothing")).status_code == 404

    async def test_searching_leaves_out_what_is_left_empty(self, client: httpx.AsyncClient) -> None:
        mine = await _submit(client, tenant="acme", test_suite="one")
        other = await _submit(client, tenant="globex", test_suite="two")
        page = await _shown(client, "/page/jobs", id="", tenant="acme", test_suite=" ", queue="", state="")
        assert mine["id"] in page
        assert other["id"] not in page
        assert 'href="/page/tenant?name=acme"' in page
        assert "No job matches" in await _shown(client, "/page/jobs", tenant="acme", state="failed")
        by_id = await client.get("/page/jobs", params={"id": f" {mine['id'][:8]}-{mine['id'][8:].upper()}"})
        assert by_id.headers["location"] == f"/page/jobs/{mine['id']}"
        for none in ("x", "\r\nLocation: //evil.test", "//evil.test", "../..", "ä", mine["id"] + "0"):
            assert "Job not found" in await _shown(client, "/page/jobs", 404, id=none)

    async def test_a_name_is_looked_for_as_it_is(self, client: httpx.AsyncClient) -> None:
        spaced, other = await _submit(client, tenant=" acme "), await _submit(client, tenant="acme")
        [link] = re.findall(r'href="(/page/jobs\?tenant=[^"]*)"', await _shown(client, "/page/tenant", name=" acme "))
        page = await _shown(client, unescape(link))
        assert spaced["id"] in page
        assert other["id"] not in page

    async def test_a_queue_that_is_not_there_is_not_made_by_pausing_it(self, client: httpx.AsyncClient) -> None:
        assert "Queue not found" in await _shown(client, "/page/queue/switch", 404, name="defualt", to="paused")
        form = {"name": "defualt", "to": "paused"}
        answer = await client.post("/page/queue/switch", data=form, headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 404
        assert [queue["name"] for queue in (await client.get("/queues")).json()] == ["default"]

    async def test_other_methods_are_refused_as_everywhere(self, client: httpx.AsyncClient) -> None:
        for path in ("/", "/page/jobs", "/page/tenant/switch"):
            answer = await client.options(path)
            assert answer.status_code == 405
            assert "GET" in answer.headers["allow"]

    async def test_older_jobs_are_a_page_further(self, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            jobs = [{"tenant": "acme & co", "test_suite": "smoke"}] * 55
            assert (await client.post("/jobs/batch", json={"jobs": jobs})).status_code == 201
        seen: list[str] = []
        link = "/page/jobs?tenant=acme+%26+co"
        while link:
            page = await _shown(client, link)
            seen += re.findall(r'class="id" href="/page/jobs/([0-9a-f]{32})"', page)
            following = re.search(r'rel="next" href="([^"]*)"', page)
            link = unescape(following[1]) if following else ""
        assert len(seen) == len(set(seen)) == 110

    async def test_it_is_not_part_of_the_interface(self, client: httpx.AsyncClient) -> None:
        document = (await client.get("/schema")).json()
        assert not [path for path in document["paths"] if path == "/" or path.startswith("/page")]

    async def test_its_files_may_be_kept_for_ever(self, client: httpx.AsyncClient) -> None:
        page = await _shown(client, "/")
        files = re.findall(r'(?:src|href)="(/page/static/[^"]*)"', page)
        assert len(files) == 3
        for file in files:
            answer = await client.get(file)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]

    async def test_a_database_that_is_away_is_a_page_that_says_so(
        self, core: Core, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away() -> None:
            raise Unavailable("the database cannot be read right now")

        monkeypatch.setattr(core, "reading", away)
        for _ in range(2):
            assert "The database cannot be read" in await _shown(client, "/", 503)
        answer = await client.get(f"/page/jobs/{NO_JOB}")
        assert answer.headers["retry-after"] == "1"

    async def test_many_who_look_at_once_cost_one_look(
        self, core: Core, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = 0

        def looked(*_: object) -> Any:
            nonlocal looks
            looks += 1
            return core.counts.__class__.busiest(core.counts, 20)

        monkeypatch.setattr(core.counts, "busiest", looked)
        await asyncio.gather(*(_shown(client, "/") for _ in range(5)))
        assert looks == 1

    async def test_while_the_database_is_away_not_everybody_waits_for_it(self) -> None:
        clock, tries = FakeClock(), 0

        async def away() -> str:
            nonlocal tries
            tries += 1
            clock.advance(30)
            raise Unavailable("away", retry_after=7)

        shared = Shared(away, clock)
        for _ in range(5):
            with pytest.raises(Unavailable) as raised:
                await shared.get()
            assert raised.value.retry_after == 7
        assert tries == 1
        clock.advance(2)
        with pytest.raises(Unavailable):
            await shared.get()
        assert tries == 2

    async def test_what_takes_long_to_make_is_made_less_often(self) -> None:
        clock, made = FakeClock(), 0

        async def make() -> int:
            nonlocal made
            made += 1
            clock.advance(0.5)
            return made

        shared = Shared(make, clock)
        for wait, seen in ((0, 1), (4, 1), (1, 2), (4, 2), (1, 3)):
            clock.advance(wait)
            assert await shared.get() == seen

    async def test_a_long_payload_is_shown_in_part(self, client: httpx.AsyncClient) -> None:
        job = await _submit(client, payload=["x"] * 10_000)
        page = await _shown(client, f"/page/jobs/{job['id']}")
        assert len(page) < 100_000
        assert f'<a href="/jobs/{job["id"]}">all of it</a>' in page

    async def test_only_the_busiest_are_listed(self, core: Core, client: httpx.AsyncClient) -> None:
        jobs = [{"tenant": f"t{n:02d}", "test_suite": "smoke", "queue": f"q{n:02d}"} for n in range(30)]
        await client.post("/jobs/batch", json={"jobs": jobs})
        for n in range(30):
            await client.post("/jobs/claim", json={"worker": f"w{n:02d}", "queues": [f"q{n:02d}"]})
        seen = await overview.overview(core)
        assert len(seen.tenants) == overview.SHOWN_TENANTS
        assert len(seen.queues) == overview.SHOWN_QUEUES
        assert len(seen.workers) == overview.SHOWN_WORKERS
        assert (seen.tenant_count, seen.queue_count, seen.worker_count) == (30, 31, 30)
        page = await _shown(client, "/")
        assert "The busiest of 30 tenants" in page
        assert "The fullest of 31 queues" in page
        assert "The busiest of 30 workers" in page


async def test_an_open_page_is_rung_for_once_in_a_while_however_much_moves(
    core: Core, client: httpx.AsyncClient
) -> None:
    async def page() -> str:
        return ""

    with core.feed.watch(reads=False) as watcher:
        rung = bell.rings(watcher, Shared(page, core.clock))
        for _ in range(2):  # what was moved before it listened may be missing in what it has been given
            await _submit(client)
            assert b"event: changed" in await anext(rung)
        await _submit(client)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await anext(rung)


class TestChanging:
    async def test_a_job_is_cancelled_and_retried_after_a_question(self, client: httpx.AsyncClient) -> None:
        job = await _submit(client)
        path = f"/page/jobs/{job['id']}"
        assert "Cancel job" in await _shown(client, f"{path}/cancel")
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "queued"
        answer = await _sent(client, f"{path}/cancel")
        assert "The job is cancelled" in await _shown(client, answer.headers["location"])
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "cancelled"

        assert "Retry job" in await _shown(client, f"{path}/retry")
        answer = await _sent(client, f"{path}/retry")
        assert "This is the new job" in await _shown(client, answer.headers["location"])
        [new, _] = (await client.get("/jobs")).json()
        assert new["retry_of"] == job["id"]
        assert new["id"] in answer.headers["location"]

    async def test_tenants_and_queues_are_paused_and_weighed(self, client: httpx.AsyncClient) -> None:
        await _submit(client, tenant="a&b", queue="c&d")
        for kind, name in (("tenant", "a&b"), ("queue", "c&d")):
            for to, paused in (("paused", True), ("resumed", False)):
                answer = await _sent(client, f"/page/{kind}/switch", name=name, to=to)
                assert 'role="status"' in await _shown(client, answer.headers["location"])
                stands = (await client.get(f"/{kind}s")).json()
                assert [each["paused"] for each in stands if each["name"] == name] == [paused]
        await _sent(client, "/page/tenant/weight", name="a&b", weight="7")
        assert (await client.get("/tenants")).json()[0]["weight"] == 7

    async def test_what_cannot_be_done_changes_nothing(self, client: httpx.AsyncClient) -> None:
        job = await _submit(client)
        path = f"/page/jobs/{job['id']}"
        await _sent(client, f"{path}/retry", 409)
        await _sent(client, f"{path}/cancel", 400, surprise="x")
        await _sent(client, f"/page/jobs/{NO_JOB}/cancel", 404)
        await _sent(client, "/page/tenant/weight", 400, name="acme", weight="1001")
        await _sent(client, "/page/tenant/weight", 400, name="acme")
        await _sent(client, "/page/tenant/weight", 404, name="nobody", weight="2")
        await _sent(client, "/page/tenant/switch", 404, name="nobody", to="paused")
        await _sent(client, "/page/tenant/switch", 413, name="a" * 20_000, to="paused")
        await _sent(client, "/", 405)
        assert (await client.get("/jobs")).json() == [job]
        assert [(each["name"], each["weight"]) for each in (await client.get("/tenants")).json()] == [("acme", 1)]

    async def test_forms_of_other_sites_are_refused(self, client: httpx.AsyncClient) -> None:
        job = await _submit(client)
        form = {"name": "acme", "to": "paused"}
        for headers in FOREIGN:
            for path, data in ((f"/page/jobs/{job['id']}/cancel", {}), ("/page/tenant/switch", form)):
                answer = await client.post(path, data=data, headers=headers)
                assert answer.status_code == 403, headers
                assert "text/html" in answer.headers["content-type"]
        assert (await client.get(f"/jobs/{job['id']}")).json()["state"] == "queued"
        assert (await client.get("/tenants/acme")).json()["paused"] is False

    async def test_a_browser_that_names_only_the_origin_is_heard(self, client: httpx.AsyncClient) -> None:
        for origin in ("http://fairlane.test", "https://fairlane.test", "https://FAIRLANE.test"):
            job = await _submit(client)
            answer = await client.post(f"/page/jobs/{job['id']}/cancel", headers={"origin": origin})
            assert answer.status_code == 303

    async def test_while_it_drains_nothing_new_is_submitted(self, core: Core, client: httpx.AsyncClient) -> None:
        job = await _submit(client)
        await _sent(client, f"/page/jobs/{job['id']}/cancel")
        core.phase = Phase.DRAINING
        answer = await _sent(client, f"/page/jobs/{job['id']}/retry", 503)
        assert "text/html" in answer.headers["content-type"]
        await _shown(client, "/")


async def test_a_fault_is_a_page_that_says_nothing_of_it(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(core.counts, "busiest", fails)
    async with client_of(create_app(core, lambda _: None)) as client:
        page = await _shown(client, "/", 500)
    assert "secret" not in page


async def test_a_client_that_hangs_up_in_the_midst_of_a_form_is_no_fault_of_ours(core: Core) -> None:
    heard: list[Event] = []
    call = Call(
        method="POST",
        path=b"/page/tenant/switch",
        headers=[(b"host", b"here"), (b"sec-fetch-site", b"same-origin"), (b"content-length", b"99")],
        body=(b"name=",),
        is_complete=False,
    )
    call.hangs_up.set()
    await call.of(create_app(core, heard.append))
    assert call.status == 499
    assert [event for event in heard if isinstance(event, RequestFailed)] == []


def _at_any_time(text: str) -> str:
    """It is asked for twice, and time passes between."""
    return re.sub(r"\d+ s ago", "", text)
