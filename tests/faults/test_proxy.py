"""What the other tests stand on: a balancer that loses a connection of its own would be taken for a fault of ours."""

from __future__ import annotations

import asyncio

from tests.faults.proxy import at_each_in_turn
from tests.replica.site import free_port


async def test_clients_who_connect_at_the_same_time_all_reach_the_only_one_that_is_wanted() -> None:
    """Each asks all of them, however their turns fall."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    only: int = server.sockets[0].getsockname()[1]

    async def is_wanted(port: int) -> bool:
        await asyncio.sleep(0)
        return port == only

    async with server:
        reach = at_each_in_turn([free_port(), only, free_port()], is_wanted)
        for _, writer in await asyncio.gather(*(reach() for _ in range(6))):
            writer.close()
            await writer.wait_closed()
