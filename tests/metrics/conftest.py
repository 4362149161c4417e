"""Databases as the tests of `flow` have them."""

from __future__ import annotations

from tests.flow.conftest import database, kept, nobody_waits, other_database, postgres, sqlite

__all__ = ["database", "kept", "nobody_waits", "other_database", "postgres", "sqlite"]
