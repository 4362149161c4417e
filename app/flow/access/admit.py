"""A key is shown: whose is it?"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from app.errors import NoKey, Unavailable
from app.flow.access.keyring import FRESH_SEC, Known
from app.flow.core import Core
from app.keys import Holder, Key
from app.store import keys
from app.store.keys import KeyRow


async def holder_of(core: Core, shown: str | None, address: str) -> Holder:
    """Who shows this key, from this address.

    Whoever showed a good key lately is let in however many wrong ones come from the same address.
    Raises `NoKey`, `TooManyTries`, `Unavailable`.
    """
    if shown is None:
        raise NoKey
    row = await _row_of(core, shown, address)
    return Holder(row.id, row.grant)


async def is_still_let_in(core: Core, holder: Holder) -> bool:
    """Whether the key that was shown a while ago would be let in now; while the database is away, as it was before."""
    if holder.key_id is None:
        return True
    try:
        row = await _found(core, holder.key_id)
    except Unavailable:  # then nothing moves that anybody could be told of
        return True
    return row is not None and row.is_valid(core.clock.shown())


async def until_shut_out(core: Core, holder: Holder) -> NoReturn:
    """Wait for as long as the holder is let in. Raises `NoKey` once it is not.

    However many wait by the same key, the database is asked once a second.
    """
    while await is_still_let_in(core, holder):  # noqa: ASYNC110 - who types SQL tells nobody
        await asyncio.sleep(FRESH_SEC)
    raise NoKey


async def _row_of(core: Core, shown: str, address: str) -> KeyRow:
    key = Key.read(shown)
    if key is None or core.keyring.find(key.id) is None:
        core.keyring.tries.refuse_too_many(address)
    row = None if key is None else await _found(core, key.id)
    is_right = key is not None and key.opens(row.digest if row else None)
    if row is None or not is_right or not row.is_valid(core.clock.shown()):
        core.keyring.tries.failed(address)
        raise NoKey
    _note_use(core, core.keyring.find(row.id) or core.keyring.keep(row))
    return row


async def _found(core: Core, key_id: str) -> KeyRow | None:
    known = core.keyring.find(key_id)
    return await _look(core, key_id) if known is None or core.keyring.is_due(known) else known.row


async def _look(core: Core, key_id: str) -> KeyRow | None:
    async with core.reading() as connection:
        row = await keys.get(connection, key_id)
    if row is None or not row.is_valid(core.clock.shown()):
        core.keyring.forget(key_id)
    elif core.keyring.find(key_id):
        core.keyring.keep(row)
    return row


def _note_use(core: Core, known: Known) -> None:
    if core.keyring.is_to_be_noted(known):
        core.spawn(_write_use(core, known.row.id), "use of a key")


async def _write_use(core: Core, key_id: str) -> None:
    try:
        await core.note(lambda connection: keys.note_use(connection, key_id, core.clock.now()))
    except Unavailable:  # it is noted the next time
        return
