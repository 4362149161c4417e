"""Databases that are emptied, not made anew, as the tests of `flow` have them; and a client of the HTTP side, as the
tests of `api` have it."""

from __future__ import annotations

from tests.api.conftest import client, core, events, whole
from tests.flow.conftest import database, kept, no_jitter, nobody_waits, other_database, postgres, sqlite

__all__ = [
    "client",
    "core",
    "database",
    "events",
    "kept",
    "no_jitter",
    "nobody_waits",
    "other_database",
    "postgres",
    "sqlite",
    "whole",
]
