"""The servers on this database: each says that it is there, and any can tell of all."""

from __future__ import annotations

from typing import Final

from app.flow.core import Core
from app.store import replicas
from app.store.replicas import Seen

ROUND: Final = "register"


async def beat(core: Core) -> bool:
    """This one dispatches; it says so in a commit of others, if there is one. Raises `Unavailable`."""
    await core.note(lambda connection: replicas.beat(connection, core.dispatcher.me, core.dispatcher.since))
    return False


async def list_replicas(core: Core) -> list[Seen]:
    """Those that were heard of lately, the oldest first. Raises `Unavailable`."""
    if not core.is_alone:
        async with core.reading() as connection:
            return await replicas.every(connection)
    me, now = core.dispatcher.me, core.clock.shown()
    return [Seen(me.name, me.address, me.version, me.started_at, now, core.dispatcher.since, 0.0)]
