"""The operator's page as people use it: in a real browser, by mouse, by keyboard and by screen reader."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from app.flow.watch.overview import SHOWN_JOBS
from tests.databases import Database, Databases
from tests.page.conftest import Opens
from tests.served import PATIENCE_SEC, Served, serving

SOON_MS: Final = 8_000
"""Below the ten seconds after which a page in which nothing moves looks again."""

EVIL: Final = "<img src=x onerror=alert(1)>"

expect.set_options(timeout=PATIENCE_SEC * 1000)


async def _ask(served: Served, method: str, path: str, body: Any = None) -> Any:
    async with served.client() as client:
        answer = await client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()


async def _submit(served: Served, tenant: str = "acme", suite: str = "tests/login", **fields: Any) -> dict[str, Any]:
    return dict(await _ask(served, "POST", "/jobs", {"tenant": tenant, "test_suite": suite, **fields}))


async def _claim(served: Served, worker: str, queue: str = "default") -> dict[str, Any]:
    claim = await _ask(served, "POST", "/jobs/claim", {"worker": worker, "queues": [queue], "start": True})
    [job] = claim["jobs"]
    return dict(job)


async def _complete(served: Served, job: dict[str, Any]) -> None:
    await _ask(served, "POST", f"/jobs/{job['id']}/complete", {"token": job["lease"]["token"]})


async def _state(served: Served, job: dict[str, Any]) -> str:
    return str((await _ask(served, "GET", f"/jobs/{job['id']}"))["state"])


async def _is_live(page: Page) -> None:
    await expect(page.get_by_role("status")).to_have_text("Live")


class TestLive:
    async def test_what_happens_shows_by_itself(self, database: Database, opens: Opens) -> None:
        async with serving(database.url) as served, opens(served) as page:
            await _is_live(page)
            await expect(page.get_by_text("Nothing waits.")).to_be_visible()
            job = await _submit(served, "globex")
            oldest = page.get_by_role("region", name="Longest in the queue")
            await expect(oldest.get_by_role("link", name=job["id"][-8:])).to_be_visible()
            held = await _claim(served, "runner-7")
            await expect(page.get_by_role("region", name="Workers")).to_contain_text("runner-7")
            await expect(page.get_by_text("Nothing waits.")).to_be_visible()
            await _complete(served, held)
            newest = page.get_by_role("region", name="Newest")
            await expect(newest.get_by_role("row").nth(1)).to_contain_text("completed")

    async def test_updates_can_be_held_still(self, served: Served, opens: Opens) -> None:
        async with opens(served) as page, opens(served) as other:
            await _is_live(page)
            await _is_live(other)
            await page.get_by_role("button", name="Pause updates").click()
            await expect(page.get_by_role("status")).to_have_text("Updates paused")
            job = await _submit(served)
            link = f"a[href='/page/jobs/{job['id']}']"
            await expect(other.locator(link).first).to_be_visible()
            await expect(page.locator(link)).to_have_count(0)
            await page.get_by_role("button", name="Resume updates").click()
            await expect(page.locator(link).first).to_be_visible()

    async def test_an_update_takes_neither_the_focus_nor_what_is_open(self, served: Served, opens: Opens) -> None:
        job = await _submit(served, "focused")
        async with opens(served) as page:
            await _is_live(page)
            await page.get_by_text("The last hour in figures").click()
            link = page.get_by_role("region", name="Newest").get_by_role("link", name="focused")
            await link.focus()
            later = await _submit(served)
            await expect(page.get_by_role("link", name=later["id"][-8:]).first).to_be_visible()
            await expect(link).to_be_focused()
            figures = page.get_by_role("table", name="The last hour, minute by minute")
            await expect(figures.get_by_role("row").nth(1)).to_be_visible()
        await _ask(served, "POST", f"/jobs/{job['id']}/cancel")

    async def test_a_page_from_a_moment_ago_catches_up(self, empty: Served, opens: Opens) -> None:
        """The front page is made once for all who look within a second."""
        async with opens(empty):
            job = await _submit(empty)
            async with opens(empty) as page:
                link = page.get_by_role("link", name=job["id"][-8:]).first
                await expect(link).to_be_visible(timeout=SOON_MS)

    async def test_the_focus_stays_where_it_was_in_a_list_that_moves_on(self, empty: Served, opens: Opens) -> None:
        jobs = [await _submit(empty) for _ in range(SHOWN_JOBS)]
        async with opens(empty) as page:
            await _is_live(page)
            newest = page.get_by_role("region", name="Newest")
            last = newest.get_by_role("link", name=jobs[0]["id"][-8:])
            await last.focus()
            for _ in range(3):
                later = await _submit(empty)
            await expect(newest.get_by_role("link", name=later["id"][-8:])).to_be_visible()
            await expect(last).to_have_count(0)
            await expect(newest.get_by_role("link", name=jobs[3]["id"][-8:])).to_be_focused()

    async def test_it_finds_back_after_a_restart(self, sqlite_databases: Databases, opens: Opens) -> None:
        database = sqlite_databases.create()
        async with AsyncExitStack() as stack:
            async with serving(database.url) as first:
                page = await stack.enter_async_context(opens(first, lenient=True))  # it says what it cannot reach
                await _is_live(page)
                assert await first.stop() == 0
                await expect(page.get_by_role("status")).to_have_text("Connection lost, trying again")
            async with serving(database.url, port=urlsplit(first.url).port) as second:
                job = await _submit(second)
                await _is_live(page)
                await expect(page.get_by_role("link", name=job["id"][-8:]).first).to_be_visible()


class TestDoing:
    async def test_a_job_is_cancelled_and_retried(self, served: Served, opens: Opens) -> None:
        job = await _submit(served)
        async with opens(served) as page:
            await page.get_by_role("link", name=job["id"][-8:]).first.click()
            await page.get_by_role("link", name="Cancel…").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel job tests/login?")
            await page.get_by_role("link", name="Leave it as it is").click()
            assert await _state(served, job) == "queued"
            await page.get_by_role("link", name="Cancel…").click()
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("The job is cancelled.")).to_be_visible()
            assert await _state(served, job) == "cancelled"
            await page.get_by_role("link", name="Retry…").click()
            await page.get_by_role("button", name="Retry").click()
            await expect(page.get_by_role("link", name=job["id"][-8:])).to_be_visible()  # the new one names it
            await expect(page.get_by_role("heading", level=1)).to_contain_text("queued")

    async def test_tenants_and_queues_are_paused_and_weighed(self, served: Served, opens: Opens) -> None:
        name = "a&b #1?"
        await _submit(served, name, queue=name)

        async def stands(kind: str) -> dict[str, Any]:
            [found] = [each for each in await _ask(served, "GET", f"/{kind}s") if each["name"] == name]
            return dict(found)

        async with opens(served) as page:
            for kind, region in (("tenant", "Tenants"), ("queue", "Queues")):
                await page.goto("/")
                await page.get_by_role("region", name=region).get_by_role("link", name=name).click()
                for verb, paused in (("Pause", True), ("Resume", False)):
                    await page.get_by_role("link", name=f"{verb}…").click()
                    await page.get_by_role("button", name=verb).click()
                    await expect(page.locator(".notice")).to_be_visible()
                    assert (await stands(kind))["paused"] is paused
            await page.goto(f"/page/tenant?name={quote_plus(name)}")
            await page.get_by_label("Weight", exact=True).fill("7")
            await page.get_by_role("button", name="Change…").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("from 1 to 7")
            await page.get_by_role("button", name="Change the weight").click()
            await expect(page.locator(".notice")).to_be_visible()
            assert (await stands("tenant"))["weight"] == 7

    async def test_the_keyboard_is_enough(self, served: Served, opens: Opens) -> None:
        job = await _submit(served)

        async def tab_to(page: Page, name: str) -> None:
            for _ in range(60):
                await page.keyboard.press("Tab")
                if await page.evaluate("document.activeElement.textContent.trim()") == name:
                    return
            raise AssertionError(f"no way to {name}")

        async with opens(served) as page:
            await expect(page.get_by_role("link", name=job["id"][-8:]).first).to_be_visible()
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
            await page.keyboard.press("Enter")
            await expect(page.locator("main")).to_be_focused()
            await tab_to(page, job["id"][-8:])
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/page/jobs/*")
            await tab_to(page, "Cancel…")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/cancel")
            await tab_to(page, "Cancel")
            await page.keyboard.press("Enter")
            await expect(page.get_by_text("The job is cancelled.")).to_be_visible()
        assert await _state(served, job) == "cancelled"

    async def test_it_works_without_scripts(self, served: Served, opens: Opens) -> None:
        job = await _submit(served)
        async with opens(served, java_script=False) as page:
            await expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()
            await page.get_by_label("Job id").fill(job["id"])
            await page.get_by_role("button", name="Find").click()
            await page.get_by_role("link", name="Cancel…").click()
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("The job is cancelled.")).to_be_visible()
        assert await _state(served, job) == "cancelled"

    async def test_jobs_are_searched(self, served: Served, opens: Opens) -> None:
        mine, other = await _submit(served, "searched", "tests/one"), await _submit(served, "globex", "tests/two")
        async with opens(served, "/page/jobs") as page:
            found = page.get_by_role("table")
            await expect(found).to_contain_text(other["id"][-8:])
            await page.get_by_label("Tenant").fill("searched")
            await page.get_by_label("State").select_option("queued")
            await page.get_by_role("button", name="Search").click()
            await expect(found.get_by_role("row")).to_have_count(2)
            await expect(found).to_contain_text(mine["id"][-8:])
            await expect(page.get_by_label("Tenant")).to_have_value("searched")


class TestEverybody:
    async def test_nobody_is_shut_out_by_day_by_night_or_on_a_phone(self, served: Served, opens: Opens) -> None:
        """Axe finds nothing on any page, and none of them is wider than a phone."""
        await _submit(served, EVIL, "a-suite-" + "x" * 400, queue="q" * 128, payload={"long": "y" * 500})
        job = await _submit(served, "t" * 128, "tests/two", payload={"a": 1})
        held = await _claim(served, "w" * 128, "q" * 128)
        await _ask(served, "POST", f"/jobs/{held['id']}/fail", {"token": held["lease"]["token"], "error": "e" * 300})
        name = quote_plus(EVIL)
        paths = [
            "/",
            "/page/jobs",
            f"/page/jobs/{held['id']}",
            f"/page/jobs/{job['id']}/cancel",
            f"/page/tenant?name={name}",
            f"/page/queue?name={'q' * 128}",
            f"/page/tenant/weight?name={name}&weight=2",
            "/page/jobs/none",
        ]
        async with opens(served) as page:
            for path in paths:
                await page.set_viewport_size({"width": 1280, "height": 900})
                await page.emulate_media(color_scheme="light")
                await page.goto(path)
                await nothing_shuts_out(page)
                await page.set_viewport_size({"width": 390, "height": 844})
                await page.emulate_media(color_scheme="dark")
                await nothing_shuts_out(page)
                assert await page.evaluate("document.documentElement.scrollWidth") == 390, path

    async def test_a_screen_reader_finds_its_way(self, empty: Served, opens: Opens) -> None:
        await _submit(empty)
        async with opens(empty) as page:
            await _is_live(page)
            for role in ("banner", "main", "contentinfo", "search"):
                await expect(page.get_by_role(role)).to_have_count(1)
            for name in ("Tenants", "Queues", "Workers", "Longest in the queue", "Newest", "The last hour"):
                await expect(page.get_by_role("heading", name=name, exact=True)).to_have_count(1)
            await expect(page.get_by_role("main")).to_match_aria_snapshot("""
                - region "Queues":
                  - heading "Queues" [level=2]
                  - group "Queues":
                    - table "Queues and how much is in them":
                      - rowgroup:
                        - row:
                          - columnheader "Queue"
                          - columnheader "In the queue"
                          - columnheader "With workers"
                          - columnheader "Not due yet"
                      - rowgroup:
                        - row "default 1 0 0":
                          - rowheader "default"
                """)
            talking = await page.evaluate(
                "document.querySelectorAll('[aria-live], [role=status], [role=alert]').length"
            )
            assert talking == 1  # only whether it is live, which seldom changes

    async def test_night_is_dark_and_day_is_light(self, served: Served, opens: Opens) -> None:
        async with opens(served, dark=True) as page:
            colour = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
            assert max(await page.evaluate(colour)) < 40
            await page.emulate_media(color_scheme="light")
            assert min(await page.evaluate(colour)) > 240


class TestManyAndStrange:
    async def test_names_are_text(self, served: Served, opens: Opens) -> None:
        job = await _submit(served, EVIL, EVIL, queue=EVIL, payload={EVIL: EVIL})
        await _claim(served, EVIL, EVIL)
        async with opens(served) as page:
            await _is_live(page)
            await expect(page.get_by_role("link", name=EVIL).first).to_be_visible()
            await page.get_by_role("link", name=EVIL).first.click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(f"Tenant {EVIL}")
            for path in (f"/page/jobs/{job['id']}", f"/page/queue?name={quote_plus(EVIL)}"):
                await page.goto(path)
                await expect(page.get_by_role("heading", level=1)).to_contain_text(EVIL)
            assert await page.locator("img").count() == 0

    async def test_ten_thousand_jobs_are_no_more_than_ten(self, empty: Served, opens: Opens) -> None:
        async with empty.client() as client:
            jobs = [{"tenant": f"t{n % 50}", "test_suite": "tests/login", "queue": f"q{n % 30}"} for n in range(10_000)]
            answer = await client.post("/jobs/batch", json={"jobs": jobs}, headers={"prefer": "return=minimal"})
            assert answer.status_code == 201
        async with opens(empty) as page:
            await _is_live(page)
            now = page.get_by_role("region", name="Now")
            await expect(now).to_contain_text(re.compile(r"In the queue\s*10.000"))
            await expect(page.get_by_role("region", name="Newest").get_by_role("row")).to_have_count(11)
            await expect(page.get_by_text("The busiest of 50 tenants")).to_be_visible()
            assert len(await page.content()) < 100_000
            await page.get_by_role("link", name="All jobs").click()
            for _ in range(2):
                await expect(page.get_by_role("table").get_by_role("row")).to_have_count(51)
                await page.get_by_role("link", name="Older jobs").click()


async def nothing_shuts_out(page: Page) -> None:
    """Axe finds nothing on it."""
    results = await Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
