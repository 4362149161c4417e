"""What the page asks people for: a struct for each form and each address that carries names."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

from msgspec import UNSET, Meta, UnsetType

from app.api.cursor import read_cursor
from app.api.fields import Cursor, Name, TestSuite, Weight
from app.api.schemas import Asked
from app.flow.look import JobFilter
from app.scheduling.job import State

Done = Literal["cancelled", "retried", "paused", "resumed", "weight"]
"""What has just been done, for the page that is shown after it."""


class JobAddress(Asked):
    """A job's page."""

    done: Done | UnsetType = UNSET


class Address(Asked):
    """A tenant's or a queue's page."""

    name: Name
    done: Done | UnsetType = UNSET


class Switch(Asked):
    """To pause something or let it go on."""

    name: Name
    to: Literal["paused", "resumed"]


class NewWeight(Asked):
    """To change a tenant's share."""

    name: Name
    weight: Weight


class Search(Asked):
    """Which jobs to find. An id that is given finds that job alone."""

    id: str | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    test_suite: TestSuite | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET

    def to_filter(self, limit: int) -> JobFilter:
        wanted = self.given()
        wanted.pop("id", None)
        return JobFilter(limit=limit, after_seq=read_cursor(wanted.pop("cursor", "")), **wanted)


class Wish(Asked):
    """To log in, and to see this afterwards."""

    to: Annotated[str, Meta(max_length=4096)] = "/"

    def url(self, path: str) -> str:
        return f"{path}?{urlencode({'to': self.to})}" if self.to != "/" else path


class Login(Asked):
    """A key that is shown, and what to see afterwards."""

    key: Annotated[str, Meta(max_length=200)]
    to: Annotated[str, Meta(max_length=4096)] = "/"
