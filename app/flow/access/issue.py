"""Keys are made, listed and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from app.errors import NotFound
from app.events import KeyMade, KeyRevoked
from app.flow.core import Core
from app.keys import Grant, Holder, Key
from app.store import keys
from app.store.keys import KeyRow
from app.store.transaction import Transaction

_LOGIN: Final = timedelta(hours=12)


async def make_key(core: Core, name: str, grant: Grant, expires_at: datetime | None, by: Holder) -> tuple[KeyRow, Key]:
    """A new key, whose text is to be had this once. Raises `Unavailable`."""
    key = Key.new()

    async def put(tx: Transaction) -> KeyRow:
        row = KeyRow.new(key, name, grant, created_at=core.clock.now(), expires_at=expires_at)
        await keys.put(await tx.settled(), row)
        tx.after_commit(core.emit, KeyMade(row.id, grant.role, by.key_id))
        return row

    return await core.write(put), key


async def list_keys(core: Core) -> Sequence[KeyRow]:
    """All keys, the oldest first. Raises `Unavailable`."""
    async with core.reading() as connection:
        return await keys.every(connection)


async def revoke_key(core: Core, key_id: str, by: Holder) -> KeyRow:
    """End a key, and the logins with it; said again, the same answer. Raises `NotFound`, `Unavailable`."""

    async def revoke(tx: Transaction) -> KeyRow:
        row = await keys.revoke(await tx.settled(), key_id, core.clock.now())
        if row is None:
            raise NotFound("key")
        _tell(core, tx, key_id, by)
        return row

    return await core.write(revoke)


async def log_in(core: Core, holder: Holder) -> tuple[Key, datetime]:
    """A key for one browser, which ends with the one that was shown, or half a day later; and when it ends.

    Raises `NotFound` (the key that was shown is gone already), `Unavailable`.
    """
    key = Key.new()

    async def put(tx: Transaction) -> datetime:
        shown = await keys.get(await tx.reading(), holder.key_id or "")
        if shown is None:
            raise NotFound("key")
        connection, now = await tx.settled(), core.clock.now()
        ends = now + _LOGIN if shown.expires_at is None else min(shown.expires_at, now + _LOGIN)
        await keys.delete_logins(connection, ended_by=now)
        session = shown.session_of or shown.id
        row = KeyRow.new(key, shown.name, shown.grant, created_at=now, expires_at=ends, session_of=session)
        await keys.put(connection, row)
        return ends

    return key, await core.write(put)


async def log_out(core: Core, holder: Holder) -> None:
    """End the login that was shown; a key that was shown in its place goes on. Raises `Unavailable`."""

    async def end(tx: Transaction) -> None:
        shown = await keys.get(await tx.reading(), holder.key_id or "")
        if shown is not None and shown.session_of is not None:
            await keys.revoke(await tx.settled(), shown.id, core.clock.now())
            _tell(core, tx, shown.id, holder)

    await core.write(end)


def _tell(core: Core, tx: Transaction, revoked: str, by: Holder) -> None:
    tx.after_commit(core.keyring.forget, revoked)
    tx.after_commit(core.emit, KeyRevoked(revoked, by.key_id))
