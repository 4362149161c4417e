"""Statements on keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from app.keys import Grant, Key, Role
from app.store import keys
from app.store.engine import Engines
from app.store.keys import KeyRow

NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


async def test_whether_an_admin_has_a_key(engines: Engines) -> None:
    """Not one that is another's, has run out, was taken back, or is a browser's login with one that is gone."""
    async with engines.writer.begin() as connection:

        async def made(role: Role, *, ends: datetime | None = None, session_of: str | None = None) -> str:
            key = Key.new()
            row = KeyRow.new(key, "n", Grant(role), created_at=NOW - HOUR, expires_at=ends, session_of=session_of)
            await keys.put(connection, row)
            return key.id

        assert not await keys.any_admin(connection, NOW)
        await made(Role.READER)
        await made(Role.ADMIN, ends=NOW)
        revoked = await made(Role.ADMIN)
        await keys.revoke(connection, revoked, NOW)
        await made(Role.ADMIN, session_of=revoked)
        assert not await keys.any_admin(connection, NOW)
        ends_soon = await made(Role.ADMIN, ends=NOW + HOUR)
        assert await keys.any_admin(connection, NOW)
        assert not await keys.any_admin(connection, NOW + HOUR)
        await keys.revoke(connection, ends_soon, NOW)
        await made(Role.ADMIN)
        assert await keys.any_admin(connection, NOW + HOUR)
