"""The servers on this database: each says that it is there, and any can tell of all."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from app.flow.core import Core
from app.store import replicas
from app.store.replicas import Seen
from app.store.session import Connection

ROUND: Final = "register"


async def beat_as_dispatcher(core: Core) -> bool:
    """This one dispatches; it says so in a commit of others, if there is one. Raises `Unavailable`."""
    await beat(core, core.dispatcher.since)
    return False


async def beat(core: Core, dispatching_since: datetime | None) -> None:
    """This one is there, and hears what time it is. Raises `Unavailable`."""

    async def run(connection: Connection) -> None:
        asked_at = core.clock.monotonic()
        core.clock.heard(await replicas.beat(connection, core.dispatcher.me, dispatching_since), asked_at)

    await core.note(run)


async def list_replicas(core: Core) -> list[Seen]:
    """Those that were heard of lately, the oldest first. Raises `Unavailable`."""
    if not core.is_alone:
        async with core.reading() as connection:
            return await replicas.every(connection)
    me, now = core.dispatcher.me, core.clock.shown()
    return [Seen(me.name, me.address, me.version, me.started_at, now, core.dispatcher.since, 0.0)]
