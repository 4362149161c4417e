"""The door of the page, in a real browser: who is let in, for how long, and what those find who are not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

import pytest
from playwright.async_api import Browser, Page, Route, expect

from app.api.access import SESSION
from app.keys import Grant, Key, Role
from app.store import keys
from app.store.engine import open_engines
from app.store.keys import KeyRow
from tests.databases import Database, Databases
from tests.flow.harness import by_hand
from tests.page.conftest import Opens
from tests.page.test_in_a_browser import nothing_shuts_out
from tests.served import PATIENCE_SEC, Served, serving

expect.set_options(timeout=PATIENCE_SEC * 1000)

IN_THE_PAST: Final = "2020-01-01T00:00:00.000000Z"


@dataclass
class Locked:
    """A service that asks for keys, and who has one."""

    served: Served
    database: Database
    admin: Key

    async def key(self, role: Role, tenant: str | None = None) -> Key:
        """A new key."""
        return await new_key(self.database, role, tenant)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What an admin gets by the interface."""
        async with self.served.client(headers={"Authorization": f"Bearer {self.admin.text}"}) as client:
            answer = await client.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

    async def submit(self) -> str:
        """The id of a new job."""
        return str((await self.ask("POST", "/jobs", {"tenant": "acme", "test_suite": "tests/login"}))["id"])

    async def state(self, job_id: str) -> str:
        """The state of a job."""
        return str((await self.ask("GET", f"/jobs/{job_id}"))["state"])


async def new_key(database: Database, role: Role, tenant: str | None = None) -> Key:
    """A key, made on the database."""
    key = Key.new()
    row = KeyRow.new(key, f"a {role}", Grant(role, tenant), created_at=datetime.now(UTC), expires_at=None)
    async with open_engines(database.url) as engines, engines.writer.begin() as connection:
        await keys.put(connection, row)
    return key


@pytest.fixture(scope="module")
async def locked(browser: Browser, sqlite_databases: Databases) -> AsyncIterator[Locked]:  # noqa: ARG001 - keeps the loop
    """A service that tests share; none of them shows it many wrong keys."""
    database = sqlite_databases.create()
    admin = await new_key(database, Role.ADMIN)
    async with serving(database.url, keys="required") as served:
        yield Locked(served, database, admin)


async def log_in(page: Page, key: Key | str) -> None:
    """Show a key at the door, by keyboard alone: the field has the focus."""
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    await expect(page.get_by_label("Key", exact=True)).to_be_focused()
    await page.keyboard.type(key.text if isinstance(key, Key) else key)
    await page.keyboard.press("Enter")


async def _is_live(page: Page) -> None:
    await expect(page.get_by_role("status")).to_have_text("Live")


class TestComingIn:
    @pytest.mark.parametrize("java_script", [True, False], ids=["with scripts", "without scripts"])
    async def test_who_shows_a_key_comes_to_what_was_asked_for(
        self, locked: Locked, opens: Opens, *, java_script: bool
    ) -> None:
        reader = await locked.key(Role.READER)
        async with opens(locked.served, "/page/jobs?state=queued&tenant=a%26b", java_script=java_script) as page:
            if java_script:
                await log_in(page, reader)
            else:
                await page.get_by_label("Key", exact=True).fill(f" {reader.text} ")
                await page.get_by_role("button", name="Log in").click()
            await page.wait_for_url("**/page/jobs?state=queued&tenant=a%26b")
            await expect(page.get_by_label("Tenant")).to_have_value("a&b")

    async def test_the_browser_keeps_no_key_and_shows_its_login_to_no_script(
        self, locked: Locked, opens: Opens
    ) -> None:
        reader = await locked.key(Role.READER)
        async with opens(locked.served, lenient=True) as page:
            await log_in(page, reader)
            await _is_live(page)
            [cookie] = await page.context.cookies()
            assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (SESSION, True, "Lax")
            assert (cookie["domain"], cookie["path"], cookie["secure"]) == ("127.0.0.1", "/", False)
            assert 0 < cookie["expires"] - datetime.now(UTC).timestamp() <= 12 * 3600
            assert reader.id not in cookie["value"]
            assert await page.evaluate("document.cookie") == ""
            assert await page.evaluate("fetch('/stats').then((answer) => answer.status)") == 401
            assert reader.text not in await page.content()

    async def test_logging_out_ends_the_login_for_good(self, locked: Locked, opens: Opens) -> None:
        reader = await locked.key(Role.READER)
        async with opens(locked.served) as page:
            await log_in(page, reader)
            await _is_live(page)
            [kept] = await page.context.cookies()
            await page.get_by_role("button", name="Log out").click()
            await page.wait_for_url("**/page/login")
            assert await page.context.cookies() == []
            await page.go_back()
            await expect(page.get_by_label("Key", exact=True)).to_be_visible()
            copy = {"name": kept["name"], "value": kept["value"], "url": locked.served.url}
            await page.context.add_cookies([copy])  # type: ignore[list-item] # a cookie is no more than this
            await page.goto("/")
            await page.wait_for_url("**/page/login")
            await log_in(page, reader)  # the key itself goes on
            await _is_live(page)

    async def test_the_door_leads_nowhere_else(self, locked: Locked, opens: Opens) -> None:
        others = [
            "//evil.test",
            "/\\evil.test",
            "https://evil.test/",
            "javascript:alert(1)",
            "/page/../..//evil.test",
            "x",
        ]
        async with opens(locked.served, lenient=True) as page:  # for a path of ours that is not there
            for other in others:
                await page.goto(f"/page/login?to={quote_plus(other)}")
                await log_in(page, locked.admin)
                await page.wait_for_url(lambda url: not url.startswith(f"{locked.served.url}/page/login"))
                assert page.url.startswith(f"{locked.served.url}/"), other


class TestNotComingIn:
    async def test_a_wrong_key_is_told_so_and_many_are_not_looked_at(
        self, sqlite_databases: Databases, opens: Opens
    ) -> None:
        database = sqlite_databases.create()
        reader = await new_key(database, Role.READER)
        async with serving(database.url, keys="required") as served, opens(served, "/page/jobs", lenient=True) as page:
            told = page.get_by_role("alert")
            await log_in(page, Key.new())
            await expect(told).to_have_text("This key is not valid.")
            await expect(page.get_by_label("Key", exact=True)).to_have_value("")
            await expect(page.get_by_label("Key", exact=True)).to_have_accessible_description("This key is not valid.")
            for _ in range(20):
                key = Key.new().text
                answer = await page.request.post("/page/login", form={"key": key}, headers={"Origin": served.url})
            assert answer.status == 429
            await log_in(page, reader)
            await expect(told).to_have_text(re.compile("Too many wrong keys came from this address; retry in [1-5] s."))
            assert await page.locator("[name=to]").input_value() == "/page/jobs"  # it still knows where to

    @pytest.mark.parametrize(("role", "tenant"), [(Role.TENANT, "acme"), (Role.WORKER, None)])
    async def test_the_page_shows_everybodys_jobs_so_it_is_not_for_every_key(
        self, locked: Locked, opens: Opens, role: Role, tenant: str | None
    ) -> None:
        job = await locked.submit()
        key = await locked.key(role, tenant)
        async with opens(locked.served, f"/page/jobs/{job}", lenient=True) as page:
            await log_in(page, key)
            told = f"The page is for keys of readers and admins, and this one is a {role}'s."
            await expect(page.get_by_role("alert")).to_have_text(told)
            assert await page.context.cookies() == []
            await page.goto("/")
            await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")

    async def test_nobody_is_shut_out_of_the_door_itself(self, locked: Locked, opens: Opens) -> None:
        async with opens(locked.served, lenient=True) as page:
            for refused in (False, True):
                if refused:
                    await log_in(page, Key.new())
                    await expect(page.get_by_role("alert")).to_be_visible()
                for scheme in ("light", "dark"):
                    await page.emulate_media(color_scheme=scheme)
                    for width in (1280, 390):
                        await page.set_viewport_size({"width": width, "height": 844})
                        await nothing_shuts_out(page)
                        assert await page.evaluate("document.documentElement.scrollWidth") == width
            for role in ("navigation", "search"):
                await expect(page.get_by_role(role)).to_have_count(0)  # there is nowhere to go


class TestWhileItIsOpen:
    async def test_it_goes_to_the_door_when_its_login_ends_and_not_when_the_service_does(
        self, database: Database, opens: Opens
    ) -> None:
        """By itself, whether the key was taken back or the login has run out; and from there back to where it was."""
        admin, first, second = [await new_key(database, role) for role in (Role.ADMIN, Role.READER, Role.READER)]
        async with AsyncExitStack() as stack:
            async with serving(database.url, keys="required") as served:
                locked = Locked(served, database, admin)
                job = await locked.submit()
                page = await stack.enter_async_context(opens(served, f"/page/jobs/{job}", lenient=True))
                await log_in(page, first)
                await _is_live(page)
                await locked.ask("DELETE", f"/keys/{first.id}")
                await log_in(page, second)
                await page.wait_for_url(f"**/page/jobs/{job}")
                await _is_live(page)
                await by_hand(
                    database, f"UPDATE api_keys SET expires_at = '{IN_THE_PAST}' WHERE session_of = '{second.id}'"
                )
                await log_in(page, second)  # the key is as good as before
                await page.wait_for_url(f"**/page/jobs/{job}")
                await _is_live(page)
                assert await served.stop() == 0
                await expect(page.get_by_role("status")).to_have_text("Connection lost, trying again")
            port = urlsplit(served.url).port
            async with serving(database.url, keys="required", port=port) as again:
                await Locked(again, database, admin).ask("POST", f"/jobs/{job}/cancel")
                await expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")
                await page.reload()
                await _is_live(page)

    async def test_a_reader_is_offered_nothing_to_do_and_cannot_do_it_by_hand(
        self, locked: Locked, opens: Opens
    ) -> None:
        job, reader = await locked.submit(), await locked.key(Role.READER)
        places = [f"/page/jobs/{job}", "/page/tenant?name=acme", "/page/queue?name=default"]
        posts = {
            f"/page/jobs/{job}/cancel": "",
            f"/page/jobs/{job}/retry": "",
            "/page/tenant/switch": "name=acme&to=paused",
            "/page/tenant/weight": "name=acme&weight=7",
            "/page/queue/switch": "name=default&to=paused",
        }
        async with opens(locked.served, lenient=True) as page:
            await log_in(page, reader)
            await _is_live(page)
            for place in places:
                await page.goto(place)
                await _is_live(page)
                assert await doings_on(page) == []
            for path, form in posts.items():
                assert await post_by_hand(page, path, form) == 403
        async with opens(locked.served) as page:
            await log_in(page, locked.admin)
            await _is_live(page)
            offered = []
            for place in places:
                await page.goto(place)
                offered += await doings_on(page)
            assert sorted(offered) == ["Cancel…", "Change…", "Pause…", "Pause…"]
        assert await locked.state(job) == "queued"
        [tenant] = await locked.ask("GET", "/tenants")
        assert (tenant["paused"], tenant["weight"]) == (False, 1)

    async def test_another_site_can_make_the_browser_do_nothing(
        self, locked: Locked, opens: Opens, unused_port: int
    ) -> None:
        """Not even one on another port, to which a browser shows the same cookies; nor log it in as somebody else."""
        job = await locked.submit()
        neighbour = f"http://127.0.0.1:{unused_port}"
        async with opens(locked.served, lenient=True) as page:
            await log_in(page, locked.admin)
            await _is_live(page)
            before = await page.context.cookies()
            for site in (neighbour, "http://evil.test"):
                await post_from(page, site, f"{locked.served.url}/page/login", key=locked.admin.text)
                await expect(page.get_by_role("heading", level=1)).to_have_text("Forbidden")
                await post_from(page, site, f"{locked.served.url}/page/jobs/{job}/cancel")
                refused = "Forbidden" if site == neighbour else "Log in"  # the cookie did not come along
                await expect(page.get_by_role("heading", level=1)).to_have_text(refused)
            assert await page.context.cookies() == before
            assert await locked.state(job) == "queued"
            await page.goto(f"/page/jobs/{job}/cancel")  # and the same from our own page
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("The job is cancelled.")).to_be_visible()


async def doings_on(page: Page) -> list[str]:
    """What a page offers to do beyond looking."""
    offered = page.locator("main").locator("button, .button")
    return [text.strip() for text in await offered.all_inner_texts()]


async def post_by_hand(page: Page, path: str, form: str) -> int:
    """What somebody gets who sends a form that the page does not show."""
    script = """([path, body]) => fetch(path, {method: "POST", body, redirect: "manual", headers: {
        "Content-Type": "application/x-www-form-urlencoded"}}).then((answer) => answer.status)"""
    return int(await page.evaluate(script, [path, form]))


async def post_from(page: Page, site: str, to: str, **fields: str) -> None:
    """Open a page of another site, whose form sends itself."""
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    form = f'<!doctype html><form id="f" method="post" action="{to}">{inputs}</form><script>f.submit()</script>'

    async def answer(route: Route) -> None:
        await route.fulfill(body=form, content_type="text/html")

    await page.context.route(f"{site}/", answer)
    await page.goto(f"{site}/", wait_until="commit")
    await page.wait_for_url(re.compile(f"^{urlsplit(to).scheme}://{re.escape(urlsplit(to).netloc)}/"))
    await page.context.unroute(f"{site}/", answer)
