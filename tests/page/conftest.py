"""A real Chromium, and pages in it that may do nothing a good page does not do."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.databases import Databases
from tests.served import PATIENCE_SEC, Served, serving

_VARIABLE: Final = "FAIRLANE_TEST_CHROMIUM"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Opens(Protocol):
    """Opens a page at a path, in a window of its own."""

    def __call__(
        self, served: Served, path: str = "/", *, java_script: bool = True, dark: bool = False, lenient: bool = False
    ) -> AbstractAsyncContextManager[Page]: ...


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. The one that the variable names must work; where none is named, one may be missing."""
    named = os.environ.get(_VARIABLE)
    found = named if named is not None else next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium on this machine: install one, or name it by {_VARIABLE}")
    return found


@pytest.fixture(scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """One browser for all tests."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield launched
        await launched.close()


@pytest.fixture
def opens(browser: Browser) -> Opens:
    """Pages whose every console error, refused file, dialog and request to another host fails the test, unless it is
    `lenient`."""

    @asynccontextmanager
    async def opened(
        served: Served, path: str = "/", *, java_script: bool = True, dark: bool = False, lenient: bool = False
    ) -> AsyncIterator[Page]:
        context = await browser.new_context(
            viewport={"width": 1280, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=java_script,
            base_url=served.url,
        )
        context.set_default_timeout(PATIENCE_SEC * 1000)
        try:
            page, faults = await context.new_page(), list[str]()
            _note_faults(page, served.url, faults)
            await page.goto(path)
            yield page
            assert lenient or not faults
        finally:
            await context.close()

    return opened


def _note_faults(page: Page, home: str, faults: list[str]) -> None:
    def console(message: Any) -> None:
        # What the policy refuses is told here as well.
        if message.type in ("error", "warning") and "status of 404" not in message.text:
            faults.append(message.text)

    def request(request: Any) -> None:
        if not request.url.startswith(f"{home}/"):
            faults.append(request.url)

    async def dialog(dialog: Any) -> None:
        faults.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()

    page.on("console", console)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", request)
    page.on("dialog", dialog)


@pytest.fixture(scope="module")
async def served(browser: Browser, sqlite_databases: Databases) -> AsyncIterator[Served]:  # noqa: ARG001 - keeps the loop
    """A service that tests share who do not mind what others have done on it."""
    async with serving(sqlite_databases.create().url) as running:
        yield running


@pytest.fixture
async def empty(browser: Browser, sqlite_databases: Databases) -> AsyncIterator[Served]:  # noqa: ARG001 - or none
    """A service of this test's own, on which nothing has happened."""
    async with serving(sqlite_databases.create().url) as running:
        yield running
