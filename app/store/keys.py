"""Statements on keys. What is kept of a key is its digest; nobody can read a key out of here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.keys import Grant, Key
from app.store.schema import api_keys

_c = api_keys.c


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key as its row says. `session_of`: it is a browser's login with that key."""

    id: str
    name: str
    grant: Grant
    digest: str = field(repr=False)
    session_of: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    @classmethod
    def new(
        cls,
        key: Key,
        name: str,
        grant: Grant,
        *,
        created_at: datetime,
        expires_at: datetime | None,
        session_of: str | None = None,
    ) -> KeyRow:
        """The row of a key that was just made."""
        return cls(
            id=key.id,
            name=name,
            grant=grant,
            digest=key.digest,
            session_of=session_of,
            created_at=created_at,
            expires_at=expires_at,
        )

    def is_valid(self, now: datetime) -> bool:
        """Whether it lets anybody in at this moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


async def put(connection: AsyncConnection, key: KeyRow) -> None:
    """Keep a new key."""
    grant = key.grant
    values = {
        "id": key.id,
        "name": key.name,
        "role": grant.role,
        "tenant": grant.tenant,
        "queues": None if grant.queues is None else sorted(grant.queues),
        "digest": key.digest,
        "session_of": key.session_of,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
    }
    await connection.execute(insert(api_keys), values)


async def get(connection: AsyncConnection, key_id: str) -> KeyRow | None:
    """One key."""
    found = list(await _some(connection, _c.id == key_id))
    return found[0] if found else None


async def every(connection: AsyncConnection) -> list[KeyRow]:
    """All keys but logins, in the order in which they were made."""
    return list(await _some(connection, _c.session_of.is_(None)))


async def any_admin(connection: AsyncConnection, now: datetime) -> bool:
    """Whether anybody could make keys by the interface at this moment."""
    admins = await _some(connection, and_(_c.role == "admin", _c.session_of.is_(None)))
    return any(admin.is_valid(now) for admin in admins)


async def revoke(connection: AsyncConnection, key_id: str, now: datetime) -> KeyRow | None:
    """End a key and the logins with it, those that are not ended yet; the key as it is now, None if there is none."""
    mine = or_(_c.id == key_id, _c.session_of == key_id)
    await connection.execute(update(api_keys).where(mine, _c.revoked_at.is_(None)).values(revoked_at=now))
    return await get(connection, key_id)


async def note_use(connection: AsyncConnection, key_id: str, now: datetime) -> None:
    """It was shown, and found good."""
    await connection.execute(update(api_keys).where(_c.id == key_id).values(last_used_at=now))


async def delete_logins(connection: AsyncConnection, ended_by: datetime) -> None:
    """Delete the logins that have ended; of keys what they were stays to be seen."""
    ended = or_(_c.revoked_at.is_not(None), _c.expires_at <= ended_by)
    await connection.execute(delete(api_keys).where(_c.session_of.is_not(None), ended))


async def delete_of_tenant(connection: AsyncConnection, tenant: str) -> None:
    """Delete the keys that were a tenant's."""
    await connection.execute(delete(api_keys).where(_c.tenant == tenant))


async def _some(connection: AsyncConnection, which: ColumnElement[bool]) -> Iterator[KeyRow]:
    rows = await connection.execute(select(api_keys).where(which).order_by(_c.created_at, _c.id))
    return map(_row, rows)


def _row(row: Any) -> KeyRow:
    queues = None if row.queues is None else frozenset(row.queues)
    return KeyRow(
        id=row.id,
        name=row.name,
        grant=Grant(row.role, row.tenant, queues),
        digest=row.digest,
        session_of=row.session_of,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
