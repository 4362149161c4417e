"""Keys: every route against every kind of holder, in one table that a new route must enter; and what becomes of keys
that are wrong, taken back, run out, or shown too often."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import Any, Final

import httpx
import pytest

from app.api.access import MAY_CALL, SESSION
from app.api.front import Front
from app.errors import Unavailable
from app.events import KeyMade, KeyRevoked, RequestServed
from app.flow.access.keyring import FRESH_SEC
from app.keys import Key
from tests.api.asgi import Call, app_of, client_of
from tests.databases import Database
from tests.flow.harness import PATIENCE_SEC, FakeClock, Running, service, until, until_idle

JOB: Final = {"tenant": "acme", "test_suite": "suite"}
ORIGIN: Final = {"Origin": "http://fairlane.test"}


@dataclass(frozen=True)
class Ask:
    """A request that only its sender can spoil: about a job of acme's in the queue `default`, in this state."""

    expected: str
    body: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None
    state: str | None = None
    path: str | None = None
    is_stream: bool = False


def _about_job(expected: str, state: str = "queued", **more: Any) -> Ask:
    return Ask(expected, state=state, **more)


TOKEN: Final = {"token": "{token}"}
CLAIM: Final = {"worker": "w", "start": True}
FINISHED: Final = {"results": [{"id": "{job_id}", "token": "{token}", "outcome": "completed"}]}
BEATS: Final = {"leases": [{"id": "{job_id}", "token": "{token}"}]}
NAMED: Final = "?name=acme"

#                                   no key  acme's  other's worker  gpu's   reader  admin
OPEN: Final = "                     200     200     200     200     200     200     200"
SUBMITS: Final = "                  401     201     403     403     403     403     201"
SEES: Final = "                     401     200     200     403     403     200     200"
SEES_JOB: Final = "                 401     200     404     403     403     200     200"
ENDS_JOB: Final = "                 401     200     404     403     403     403     200"
REPORTS: Final = "                  401     403     403     200     404     403     200"
BULK: Final = "                     401     403     403     200     200     403     200"
READS: Final = "                    401     403     403     403     403     200     200"
RULES: Final = "                    401     403     403     403     403     403     200"
LOOKS: Final = "                    303     403     403     403     403     200     200"
CLICKS: Final = "                   303     403     403     403     403     403     303"
IS_ASKED: Final = "                 303     403     403     403     403     403     200"

ROUTES: Final[Mapping[str, Ask]] = {
    "GET /health/live": Ask(OPEN),
    "GET /health/ready": Ask(OPEN),
    "GET /schema": Ask(OPEN),
    "GET /schema/openapi.json": Ask(OPEN.replace("200", "404")),
    "GET /schema/{path}": Ask(OPEN.replace("200", "404"), path="/schema/else"),
    "POST /jobs": Ask(SUBMITS, JOB),
    "POST /jobs/batch": Ask(SUBMITS, {"jobs": [JOB]}),
    "GET /jobs": Ask(SEES),
    "GET /jobs/{job_id}": _about_job(SEES_JOB),
    "GET /jobs/{job_id}/attempts": _about_job(SEES_JOB),
    "GET /jobs/{job_id}/explain": _about_job(SEES_JOB),
    "PATCH /jobs/{job_id}": _about_job(ENDS_JOB, body={"priority": 3}),
    "POST /jobs/{job_id}/cancel": _about_job(ENDS_JOB),
    "POST /jobs/{job_id}/retry": _about_job(ENDS_JOB.replace("200", "201"), state="cancelled"),
    "POST /jobs/cancel": Ask(SUBMITS.replace("201", "200"), {"tenant": "acme"}),
    "POST /jobs/claim": Ask(REPORTS.replace("404", "403"), CLAIM),
    "POST /jobs/{job_id}/start": _about_job(REPORTS, state="scheduled", body=TOKEN),
    "POST /jobs/{job_id}/heartbeat": _about_job(REPORTS, state="running", body=TOKEN),
    "POST /jobs/{job_id}/complete": _about_job(REPORTS, state="running", body=TOKEN),
    "POST /jobs/{job_id}/fail": _about_job(REPORTS, state="running", body={**TOKEN, "error": "no"}),
    "POST /jobs/{job_id}/release": _about_job(REPORTS, state="running", body=TOKEN),
    "POST /jobs/finish": _about_job(BULK, state="running", body=FINISHED),
    "POST /jobs/heartbeat": _about_job(BULK, state="running", body=BEATS),
    "GET /tenants": Ask(SEES),
    "GET /tenants/{name}": Ask(SEES_JOB, path="/tenants/acme"),
    "PUT /tenants/{name}": Ask(RULES, {"weight": 1}, path="/tenants/acme"),
    "PATCH /tenants/{name}": Ask(RULES, {"weight": 1}, path="/tenants/acme"),
    "POST /tenants/{name}/erase": Ask(RULES, {"dry_run": True}, path="/tenants/acme/erase"),
    "GET /queues": Ask(READS),
    "PUT /queues/{name}": Ask(RULES, {"paused": False}, path="/queues/default"),
    "GET /stats": Ask(READS),
    "GET /events": Ask(SEES, is_stream=True),
    "GET /metrics": Ask(READS),
    "GET /replicas": Ask(READS),
    "POST /keys": Ask(RULES.replace("200", "201"), {"name": "new", "role": "reader"}),
    "GET /keys": Ask(RULES),
    "DELETE /keys/{key_id}": Ask(RULES, path="/keys/{spare}"),
    "GET /page/static/{version}/{name}": Ask(OPEN.replace("200", "404"), path="/page/static/0/page.js"),
    "GET /page/login": Ask(OPEN),
    "POST /page/login": Ask(OPEN.replace("200", "401"), form={"key": "nothing"}),
    "POST /page/logout": Ask(OPEN.replace("200", "303"), form={}),
    "GET /": Ask(LOOKS),
    "GET /page/changes": Ask(LOOKS, is_stream=True),
    "GET /page/jobs": Ask(LOOKS),
    "GET /page/jobs/{job_id}": _about_job(LOOKS, path="/page/jobs/{job_id}"),
    "GET /page/tenant": Ask(LOOKS, path="/page/tenant" + NAMED),
    "GET /page/queue": Ask(LOOKS, path="/page/queue?name=default"),
    "GET /page/jobs/{job_id}/cancel": _about_job(IS_ASKED),
    "POST /page/jobs/{job_id}/cancel": _about_job(CLICKS, form={}),
    "GET /page/jobs/{job_id}/retry": _about_job(IS_ASKED, state="cancelled"),
    "POST /page/jobs/{job_id}/retry": _about_job(CLICKS, state="cancelled", form={}),
    "GET /page/tenant/switch": Ask(IS_ASKED, path=f"/page/tenant/switch{NAMED}&to=resumed"),
    "POST /page/tenant/switch": Ask(CLICKS, form={"name": "acme", "to": "resumed"}),
    "GET /page/tenant/weight": Ask(IS_ASKED, path=f"/page/tenant/weight{NAMED}&weight=2"),
    "POST /page/tenant/weight": Ask(CLICKS, form={"name": "acme", "weight": "1"}),
    "GET /page/queue/switch": Ask(IS_ASKED, path="/page/queue/switch?name=default&to=resumed"),
    "POST /page/queue/switch": Ask(CLICKS, form={"name": "default", "to": "resumed"}),
}


class Keys:
    """A service that asks for keys, and a key of each kind."""

    def __init__(self, running: Running, client: httpx.AsyncClient, front: Front, admin: str) -> None:
        self.running = running
        self.client = client
        self.front = front
        self.admin = admin

    async def made(self, role: str, **more: Any) -> dict[str, Any]:
        """A new key, made by the interface."""
        body = {"name": f"a {role}", "role": role, **more}
        answer = await self.client.post("/keys", json=body, headers=bearer(self.admin))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def job(self, state: str | None) -> dict[str, Any]:
        """A job of acme's in this state, and its token if a worker holds it; no other is queued."""
        if state is None:
            return {"id": "", "token": ""}
        ask = self.client.post
        await ask("/jobs/cancel", json={"tenant": "acme"}, headers=bearer(self.admin))
        job = (await ask("/jobs", json=JOB, headers=bearer(self.admin))).json()
        if state == "cancelled":
            await ask(f"/jobs/{job['id']}/cancel", headers=bearer(self.admin))
        if state in ("scheduled", "running"):
            claim = {"worker": "w", "start": state == "running"}
            [job] = (await ask("/jobs/claim", json=claim, headers=bearer(self.admin))).json()["jobs"]
            return {"id": job["id"], "token": job["lease"]["token"]}
        return {"id": job["id"], "token": "none"}

    async def status(self, route: str, ask: Ask, key: str | None) -> int:
        """What a holder of `key` gets."""
        job = await self.job(ask.state)
        spare = (await self.made("reader"))["id"] if "{spare}" in (ask.path or "") else ""
        filled = {"{job_id}": job["id"], "{token}": job["token"], "{spare}": spare}
        method, _, template = route.partition(" ")
        path = _filled(ask.path or template, filled)
        headers = {} if key is None else bearer(key)
        if ask.is_stream:
            return await self._status_of_stream(path, headers)
        if ask.form is not None:
            answer = await self.client.request(method, path, data=dict(ask.form), headers=headers | ORIGIN)
        else:
            answer = await self.client.request(method, path, json=_filled(ask.body, filled), headers=headers)
        return answer.status_code

    async def _status_of_stream(self, path: str, headers: dict[str, str]) -> int:
        sent = [(b"host", b"here"), *((name.lower().encode(), value.encode()) for name, value in headers.items())]
        call = Call(path=path.encode(), headers=sent)
        asking = asyncio.create_task(call.of(self.front))
        await until(lambda: call.sent)
        call.hangs_up.set()
        await asking
        return call.status


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(held, names) for name, held in value.items()}
    if isinstance(value, list):
        return [_filled(held, names) for held in value]
    for name, filling in names.items():
        value = value.replace(name, filling) if isinstance(value, str) else value
    return value


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def locked(database: Database) -> AsyncIterator[Keys]:
    async with service(database) as opened, client_of(app_of(opened)) as client:
        answer = await client.post("/keys", json={"name": "first", "role": "admin"})
        admin = answer.json()["key"]
    async with service(database, keys="required") as running:
        front = app_of(running)
        async with client_of(front) as client:
            yield Keys(running, client, front, admin)


@pytest.fixture
async def keys(database: Database) -> AsyncIterator[Keys]:
    async with locked(database) as made:
        yield made


async def test_every_route_against_every_kind_of_holder(keys: Keys) -> None:
    assert ROUTES.keys() == MAY_CALL.keys()
    holders = {
        "acme's": (await keys.made("tenant", tenant="acme"))["key"],
        "other's": (await keys.made("tenant", tenant="other"))["key"],
        "worker": (await keys.made("worker"))["key"],
        "gpu's": (await keys.made("worker", queues=["gpu"]))["key"],
        "reader": (await keys.made("reader"))["key"],
        "admin": keys.admin,
    }
    await keys.job("queued")
    differs = {}
    for route, ask in ROUTES.items():
        for kind, expected in zip(["no key", *holders], ask.expected.split(), strict=True):
            status = await keys.status(route, ask, holders.get(kind))
            if status != int(expected):
                differs[route, kind] = (status, expected)
    assert differs == {}


async def test_no_key_opens_less_than_a_wrong_one(keys: Keys) -> None:
    """Wrong, cut, of another, taken back, run out: on every route the same as none."""
    revoked = await keys.made("admin")
    await keys.client.delete(f"/keys/{revoked['id']}", headers=bearer(keys.admin))
    ends = keys.running.core.clock.now() + timedelta(seconds=5)
    expired = await keys.made("admin", expires_at=ends.isoformat())
    good = await keys.client.get("/stats", headers=bearer(expired["key"]))
    clock = keys.running.core.clock
    assert isinstance(clock, FakeClock)
    clock.advance(6)
    right = Key.read(keys.admin)
    assert right is not None
    other = Key.read(revoked["key"])
    assert other is not None
    wrong = [
        *(Key.new().text, keys.admin[:-1], keys.admin + "A", "", "fairlane_", "Bearer"),
        *(Key(right.id, other.secret).text, Key(right.id.upper(), right.secret).text, revoked["key"], expired["key"]),
    ]
    assert good.status_code == 200
    for route, ask in ROUTES.items():
        nobody = ask.expected.split()[0]
        for key in wrong:
            clock.advance(10)
            assert (route, await keys.status(route, ask, key)) == (route, int(nobody))


async def test_what_is_hidden_differs_in_nothing_from_what_is_not_there(keys: Keys) -> None:
    stranger = bearer((await keys.made("tenant", tenant="other"))["key"])
    foreigner = bearer((await keys.made("worker", queues=["gpu"]))["key"])
    job = await keys.job("running")
    unknown = "0" * 32
    asked = [
        ("GET", "", None, stranger),
        ("GET", "/attempts", None, stranger),
        ("GET", "/explain", None, stranger),
        ("POST", "/cancel", None, stranger),
        ("POST", "/retry", None, stranger),
        ("PATCH", "", {"priority": 1}, stranger),
        *(("POST", f"/{call}", {"token": job["token"]}, foreigner) for call in ("start", "heartbeat", "complete")),
        ("POST", "/release", {"token": job["token"]}, foreigner),
        ("POST", "/fail", {"token": job["token"], "error": "no"}, foreigner),
    ]
    for method, path, body, headers in asked:
        hidden = await keys.client.request(method, f"/jobs/{job['id']}{path}", json=body, headers=headers)
        absent = await keys.client.request(method, f"/jobs/{unknown}{path}", json=body, headers=headers)
        assert hidden.status_code == 404
        assert (hidden.content, hidden.headers) == (absent.content, absent.headers)
    both = [{"id": each, "token": job["token"]} for each in (job["id"], unknown)]
    finished = [{**each, "outcome": "completed"} for each in both]
    for path, sent in (("/jobs/heartbeat", {"leases": both}), ("/jobs/finish", {"results": finished})):
        hidden, absent = (await keys.client.post(path, json=sent, headers=foreigner)).json()["results"]
        assert {**hidden, "id": None} == {**absent, "id": None}
        assert hidden["error"] == "job not found"
    hidden = await keys.client.get("/tenants/acme", headers=stranger)
    absent = await keys.client.get("/tenants/nobody", headers=stranger)
    assert (hidden.status_code, hidden.content) == (absent.status_code, absent.content)
    held = (await keys.client.get(f"/jobs/{job['id']}", headers=bearer(keys.admin))).json()
    assert held["state"] == "running"


async def test_a_tenant_sees_its_own_alone(keys: Keys) -> None:
    acme = bearer((await keys.made("tenant", tenant="acme"))["key"])
    other = bearer((await keys.made("tenant", tenant="other"))["key"])
    ask = keys.client
    theirs = (await ask.post("/jobs", json={**JOB, "tenant": "other"}, headers=other)).json()
    mine = (await ask.post("/jobs", json={**JOB, "priority": 9}, headers=acme)).json()
    assert [job["id"] for job in (await ask.get("/jobs", headers=acme)).json()] == [mine["id"]]
    assert [job["id"] for job in (await ask.get("/jobs?tenant=other", headers=other)).json()] == [theirs["id"]]
    assert [tenant["name"] for tenant in (await ask.get("/tenants", headers=acme)).json()] == ["acme"]
    mixed = await ask.post("/jobs/batch", json={"jobs": [JOB, {**JOB, "tenant": "other"}]}, headers=acme)
    refused = await ask.get("/jobs?tenant=other", headers=acme)
    assert [mixed.status_code, refused.status_code] == [403, 403]
    assert refused.json()["error"] == "this key is tenant acme's, and speaks for no other"
    everything = await ask.get("/jobs", headers=bearer(keys.admin))
    assert {job["id"] for job in everything.json()} == {mine["id"], theirs["id"]}


async def test_an_explanation_names_no_other_tenant(keys: Keys) -> None:
    acme = bearer((await keys.made("tenant", tenant="acme"))["key"])
    admin = bearer(keys.admin)
    for tenant in ("secretive", "acme"):
        await keys.client.post("/jobs", json={**JOB, "tenant": tenant}, headers=admin)
    mine = (await keys.client.post("/jobs", json={**JOB, "priority": 9}, headers=acme)).json()["id"]
    told = await keys.client.get(f"/jobs/{mine}/explain", headers=acme)
    assert (told.json()["ahead"], told.json()["ahead_by_tenant"]) == (2, {"acme": 1})
    assert "secretive" not in told.text
    assert "2 jobs go first: acme 1, 1 other 1." in told.text
    assert "secretive 1" in (await keys.client.get(f"/jobs/{mine}/explain", headers=admin)).text


async def test_a_worker_claims_from_its_queues_alone(keys: Keys) -> None:
    worker = bearer((await keys.made("worker", queues=["default", "gpu"]))["key"])
    await keys.job("queued")
    refused = await keys.client.post("/jobs/claim", json={"worker": "w", "queues": ["gpu", "cpu"]}, headers=worker)
    assert (refused.status_code, refused.json()["error"]) == (403, "this key may not claim from queue cpu")
    given = await keys.client.post("/jobs/claim", json={"worker": "w", "queues": ["gpu", "default"]}, headers=worker)
    assert len(given.json()["jobs"]) == 1


async def test_a_key_is_shown_once(keys: Keys) -> None:
    made = await keys.made("worker", queues=["b", "a", "b"])
    listed = (await keys.client.get("/keys", headers=bearer(keys.admin))).json()
    [same] = [key for key in listed if key["id"] == made["id"]]
    assert same == {name: value for name, value in made.items() if name != "key"}
    assert same["queues"] == ["a", "b"]
    key = Key.read(made["key"])
    assert key is not None
    assert key.secret not in str(listed)
    assert key.secret not in repr(key)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["name", "role"]),
        ({"name": "n", "role": "boss"}, ["role"]),
        ({"name": "n", "role": "tenant"}, ["tenant"]),
        ({"name": "n", "role": "tenant", "tenant": "a/b"}, ["tenant"]),
        ({"name": "n", "role": "reader", "tenant": "acme"}, ["tenant"]),
        ({"name": "n", "role": "admin", "queues": ["q"]}, ["queues"]),
        ({"name": "n", "role": "worker", "queues": []}, ["queues"]),
        ({"name": "n", "role": "worker", "queues": "default"}, ["queues"]),
        ({"name": " ", "role": "worker"}, ["name"]),
        ({"name": "n\x00", "role": "worker"}, ["name"]),
        ({"name": "n" * 129, "role": "worker"}, ["name"]),
        ({"name": "n", "role": "worker", "expires_at": "2030-01-01"}, ["expires_at"]),
        ({"name": "n", "role": "worker", "expires_at": "2001-01-01T00:00:00Z"}, ["expires_at"]),
        ({"name": "n", "role": "worker", "key": "mine"}, ["key"]),
    ],
)
async def test_a_key_that_cannot_be_is_refused(keys: Keys, body: dict[str, Any], fields: list[str]) -> None:
    answer = await keys.client.post("/keys", json=body, headers=bearer(keys.admin))
    assert answer.status_code == 400
    assert [detail["field"] for detail in answer.json()["details"]] == fields
    assert len((await keys.client.get("/keys", headers=bearer(keys.admin))).json()) == 1


async def test_a_key_is_taken_back_at_once_and_for_good(keys: Keys) -> None:
    made = await keys.made("reader")
    assert (await keys.client.get("/stats", headers=bearer(made["key"]))).status_code == 200
    path = f"/keys/{made['id']}"
    revoked = await keys.client.delete(path, headers=bearer(keys.admin))
    again = await keys.client.delete(path, headers=bearer(keys.admin))
    assert revoked.json()["revoked_at"] is not None
    assert again.json()["revoked_at"] == revoked.json()["revoked_at"]
    assert (await keys.client.get("/stats", headers=bearer(made["key"]))).status_code == 401
    for absent in ("0" * 32, "nothing", "A" * 32):
        answer = await keys.client.delete(f"/keys/{absent}", headers=bearer(keys.admin))
        assert (answer.status_code, answer.json()["error"]) == (404, "key not found")


async def test_what_is_done_to_keys_by_hand_is_in_force_within_a_second(keys: Keys, database: Database) -> None:
    made = await keys.made("reader")
    assert (await keys.client.get("/stats", headers=bearer(made["key"]))).status_code == 200
    await until_idle(keys.running.core)
    await database.execute(f"DELETE FROM api_keys WHERE id = '{made['id']}'")
    clock = keys.running.core.clock
    assert isinstance(clock, FakeClock)
    clock.advance(FRESH_SEC)
    assert (await keys.client.get("/stats", headers=bearer(made["key"]))).status_code == 401


async def test_when_a_key_was_used_last_is_kept_to_the_minute(keys: Keys) -> None:
    made = await keys.made("reader")
    clock = keys.running.core.clock
    assert isinstance(clock, FakeClock)

    async def last_used() -> Any:
        await until_idle(keys.running.core)
        listed = (await keys.client.get("/keys", headers=bearer(keys.admin))).json()
        [at] = [key["last_used_at"] for key in listed if key["id"] == made["id"]]
        return at

    assert await last_used() is None
    await keys.client.get("/stats", headers=bearer(made["key"]))
    first = await last_used()
    assert first is not None
    clock.advance(59)
    await keys.client.get("/stats", headers=bearer(made["key"]))
    assert await last_used() == first
    clock.advance(2)
    await keys.client.get("/stats", headers=bearer(made["key"]))
    assert await last_used() > first


async def test_wrong_keys_are_limited_and_good_ones_are_not(keys: Keys) -> None:
    assert (await keys.client.get("/stats", headers=bearer(keys.admin))).status_code == 200
    seen = [(await keys.client.get("/stats", headers=bearer(Key.new().text))) for _ in range(25)]
    assert [answer.status_code for answer in seen] == [401] * 20 + [429] * 5
    assert "retry-after" in seen[-1].headers
    assert (await keys.client.get("/stats", headers=bearer(keys.admin))).status_code == 200  # it was seen before
    clock = keys.running.core.clock
    assert isinstance(clock, FakeClock)
    clock.advance(int(seen[-1].headers["retry-after"]))
    assert (await keys.client.get("/stats", headers=bearer(Key.new().text))).status_code == 401


async def test_two_keys_at_once_are_none(keys: Keys) -> None:
    both = [("Authorization", f"Bearer {keys.admin}"), ("Authorization", f"Bearer {keys.admin}")]
    assert (await keys.client.get("/stats", headers=both)).status_code == 401
    for scheme in ("bearer", "BEARER"):
        answer = await keys.client.get("/stats", headers={"Authorization": f"{scheme} {keys.admin}"})
        assert answer.status_code == 200
    odd = [(b"Authorization", b"Bearer \xfc\xff")]
    assert (await keys.client.get("/stats", headers=odd)).status_code == 401
    for scheme in ("Basic", "", "Bearer:"):
        answer = await keys.client.get("/stats", headers={"Authorization": f"{scheme} {keys.admin}"})
        assert answer.status_code == 401


async def test_the_interface_heeds_no_cookie(keys: Keys) -> None:
    """Else any site could make a browser that is logged in call it."""
    cookie = {"Cookie": f"{SESSION}={keys.admin}"}
    assert (await keys.client.get("/", headers=cookie)).status_code == 200
    assert (await keys.client.get("/stats", headers=cookie)).status_code == 401
    assert (await keys.client.post("/jobs/cancel", json={"tenant": "acme"}, headers=cookie)).status_code == 401


async def test_an_erased_tenant_has_no_keys(keys: Keys) -> None:
    acme = bearer((await keys.made("tenant", tenant="acme"))["key"])
    await keys.client.post("/jobs", json=JOB, headers=acme)
    await keys.client.post("/jobs/cancel", json={"tenant": "acme"}, headers=acme)
    erased = await keys.client.post("/tenants/acme/erase", json={}, headers=bearer(keys.admin))
    assert erased.json()["is_gone"]
    assert (await keys.client.get("/jobs", headers=acme)).status_code == 401


async def test_without_a_database_nobody_new_is_let_in(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await keys.made("reader")

    def away(*_: object, **__: object) -> None:
        raise Unavailable("the database cannot be read right now")

    monkeypatch.setattr("app.flow.core.reading", away)
    assert (await keys.client.get("/stats", headers=bearer(made["key"]))).status_code == 503
    assert (await keys.client.get("/health/live")).status_code == 200


async def test_a_login_of_a_browser(keys: Keys) -> None:
    reader = await keys.made("reader")
    form = {"key": f" {reader['key']} ", "to": "/page/jobs?state=queued"}
    answer = await keys.client.post("/page/login", data=form, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/jobs?state=queued")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43199"} <= set(cookie.split("; ")) | {"Max-Age=43199"}
    assert reader["key"] not in cookie
    keys.client.cookies.clear()
    session = {"Cookie": cookie.partition(";")[0]}
    page = await keys.client.get("/page/jobs", headers=session)
    assert page.status_code == 200
    assert "Log out" in page.text
    assert (await keys.client.get("/page/queue?name=default", headers=session)).text.count("Pause…") == 0
    listed = (await keys.client.get("/keys", headers=bearer(keys.admin))).json()
    assert len(listed) == 2  # a login is none of them
    out = await keys.client.post("/page/logout", headers=session | ORIGIN)
    assert (out.status_code, out.headers["location"]) == (303, "/page/login")
    assert (await keys.client.get("/page/jobs", headers=session)).status_code == 303


async def test_logging_out_ends_no_key(keys: Keys) -> None:
    """Not even one that somebody has put where a login belongs."""
    cookie = {"Cookie": f"{SESSION}={keys.admin}"}
    out = await keys.client.post("/page/logout", headers=cookie | ORIGIN)
    assert (out.status_code, out.headers["location"]) == (303, "/page/login")
    assert (await keys.client.get("/stats", headers=bearer(keys.admin))).status_code == 200


async def test_a_login_ends_with_its_key(keys: Keys) -> None:
    reader = await keys.made("reader")
    answer = await keys.client.post("/page/login", data={"key": reader["key"]}, headers=ORIGIN)
    keys.client.cookies.clear()
    session = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert (await keys.client.get("/", headers=session)).status_code == 200
    await keys.client.delete(f"/keys/{reader['id']}", headers=bearer(keys.admin))
    answer = await keys.client.get("/", headers=session)
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/login")


async def test_a_form_that_came_too_late_is_to_be_had_again(keys: Keys) -> None:
    form, asked = {"name": "acme", "to": "paused"}, "/page/tenant/switch?name=acme&to=paused"
    expected = {
        f"http://fairlane.test{asked}": asked,
        "http://fairlane.test/": "/",
        "http://fairlane.test//evil.test/": "/",
        "http://fairlane.test/jobs": "/",
        "http://fairlane.test/page/" + "x" * 1000: "/",
        "http://evil.test/page/jobs": "/",
        "http://[": "/",
        "": "/",
    }
    for referrer, to in expected.items():
        answer = await keys.client.post("/page/tenant/switch", data=form, headers=ORIGIN | {"Referer": referrer})
        assert answer.status_code == 303
        shown = await keys.client.get(answer.headers["location"])
        assert [unescape(found) for found in re.findall(r'name="to" value="([^"]*)"', shown.text)] == [to]


@pytest.mark.parametrize(("role", "more"), [("worker", {}), ("tenant", {"tenant": "acme"})])
async def test_the_page_is_for_readers_and_admins(keys: Keys, role: str, more: dict[str, Any]) -> None:
    made = await keys.made(role, **more)
    answer = await keys.client.post("/page/login", data={"key": made["key"]}, headers=ORIGIN)
    assert answer.status_code == 403
    assert f"this one is a {role}" in answer.text.replace("&#39;", "'")


@pytest.mark.parametrize(
    "to", ["//evil.test", "/\\evil.test", "https://evil.test/", "/page/\r\nSet-Cookie: a=b", "", "/stats", "/page/\x00"]
)
async def test_a_login_leads_nowhere_else(keys: Keys, to: str) -> None:
    answer = await keys.client.post("/page/login", data={"key": keys.admin, "to": to}, headers=ORIGIN)
    assert (answer.status_code, answer.headers.get("location")) in [(303, "/"), (400, None)]


async def test_another_site_cannot_log_a_browser_in_or_out(keys: Keys) -> None:
    for path, form in (("/page/login", {"key": keys.admin}), ("/page/logout", {})):
        answer = await keys.client.post(path, data=form, headers={"Origin": "http://evil.test"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


async def test_a_stream_ends_with_its_key(keys: Keys) -> None:
    made = await keys.made("tenant", tenant="acme")
    sent = [(b"host", b"here"), (b"authorization", f"Bearer {made['key']}".encode())]
    call = Call(path=b"/events", headers=sent)
    asking = asyncio.create_task(call.of(keys.front))
    await until(lambda: len(call.sent) > 1)
    await keys.client.post("/jobs", json=JOB, headers=bearer(keys.admin))
    await until(lambda: b"acme" in b"".join(each["body"] for each in call.sent[1:]))
    await keys.client.delete(f"/keys/{made['id']}", headers=bearer(keys.admin))
    told = len(call.sent)
    await keys.client.post("/jobs", json=JOB, headers=bearer(keys.admin))
    await asking
    assert [each["body"] for each in call.sent[told:]] == [b""]


async def test_a_stream_that_has_nothing_to_tell_ends_with_its_key(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.events.QUIET_SEC", 3600.0)
    made = await keys.made("reader")
    sent = [(b"host", b"here"), (b"authorization", f"Bearer {made['key']}".encode())]
    call = Call(path=b"/events", headers=sent)
    asking = asyncio.create_task(call.of(keys.front))
    await until(lambda: len(call.sent) > 1)
    await keys.client.delete(f"/keys/{made['id']}", headers=bearer(keys.admin))
    async with asyncio.timeout(PATIENCE_SEC):
        await asking
    assert call.sent[-1]["more_body"] is False


async def test_a_claim_that_waits_ends_with_its_key(keys: Keys, database: Database) -> None:
    """Be it taken back, deleted by hand, or run out."""
    clock = keys.running.clock
    ends = (clock.now() + timedelta(seconds=5)).isoformat()
    revoked, deleted, expired = [await keys.made("worker", **more) for more in ({}, {}, {"expires_at": ends})]
    good = await keys.made("worker")
    claiming = {made["id"]: await waiting(keys, made["key"]) for made in (revoked, deleted, expired, good)}
    await keys.client.delete(f"/keys/{revoked['id']}", headers=bearer(keys.admin))
    await until_idle(keys.running.core)
    await database.execute(f"DELETE FROM api_keys WHERE id = '{deleted['id']}'")
    clock.advance(6)
    async with asyncio.timeout(PATIENCE_SEC):
        for made in (revoked, deleted, expired):
            answer = await claiming[made["id"]]
            assert (answer.status_code, answer.json()["error"][:20]) == (401, "a valid key is neede")
    assert len(keys.running.core.waiting) == 1
    await keys.client.post("/jobs", json=JOB, headers=bearer(keys.admin))
    assert len((await claiming[good["id"]]).json()["jobs"]) == 1


async def test_a_key_that_has_ended_is_given_no_job(keys: Keys) -> None:
    """Not even one that comes before the claim that waits has noticed."""
    made = await keys.made("worker")
    claiming = await waiting(keys, made["key"])
    await keys.client.delete(f"/keys/{made['id']}", headers=bearer(keys.admin))
    job = (await keys.client.post("/jobs", json=JOB, headers=bearer(keys.admin))).json()
    assert (await claiming).status_code == 401
    stands = (await keys.client.get(f"/jobs/{job['id']}", headers=bearer(keys.admin))).json()
    assert (stands["state"], stands["attempt"]) == ("queued", 0)


async def waiting(keys: Keys, key: str) -> asyncio.Task[httpx.Response]:
    """A claim that waits for a job."""
    claims = keys.running.core.waiting
    before, body = len(claims), {"worker": "w", "wait_sec": 30}
    claiming = asyncio.create_task(keys.client.post("/jobs/claim", json=body, headers=bearer(key)))
    await until(lambda: len(claims) == before + 1)
    return claiming


async def test_the_log_tells_who_did_what_to_keys_and_who_asked(keys: Keys) -> None:
    made = await keys.made("reader")
    await keys.client.get("/stats", headers=bearer(made["key"]))
    await keys.client.delete(f"/keys/{made['id']}", headers=bearer(keys.admin))
    admin = Key.read(keys.admin)
    assert admin is not None
    heard = keys.running.heard
    assert heard.all(KeyMade) == [KeyMade(made["id"], "reader", admin.id)]
    assert heard.all(KeyRevoked) == [KeyRevoked(made["id"], admin.id)]
    served = [(each.path, each.key_id) for each in heard.all(RequestServed)]
    assert served == [("/keys", admin.id), ("/stats", made["id"]), (f"/keys/{made['id']}", admin.id)]


async def test_the_same_key_is_never_made_twice() -> None:
    made = {Key.new().text for _ in range(1000)}
    assert len(made) == 1000
    assert all(Key.read(text) is not None for text in made)
