"""The HTTP side, spoken to as ASGI: no socket between, so that a test sees its own faults and not a server's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from app.events import Event, RequestFailed
from app.flow.core import Core
from app.main import Service, running
from app.settings import read_settings
from tests.api.asgi import app_of, client_of
from tests.databases import Database


@pytest.fixture
def events() -> list[Event]:
    """What the service of this test has told, oldest first."""
    return []


@pytest.fixture
async def whole(database: Database, events: list[Event]) -> AsyncIterator[Service]:
    """The real service on a database of its own, on each engine."""
    settings = read_settings({"FAIRLANE_DATABASE_URL": database.url})
    async with running(settings, events.append, "test") as service:
        yield service


@pytest.fixture
async def core(whole: Service) -> Core:
    """What its requests work on."""
    return whole.core


@pytest.fixture
async def client(whole: Service, events: list[Event]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the real service, none of whose requests may meet a fault of ours."""
    async with client_of(app_of(whole)) as opened:
        yield opened
    assert not [event.error for event in events if isinstance(event, RequestFailed)]
