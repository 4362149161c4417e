"""Workers in a process of their own: they claim and report as many jobs at a time as they are told to, until none are
left. Run by `bench.draining`, which says when to begin."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from bench.wire import Address, Connection, claim, claimed_in, finish, finished_in

CONNECTIONS = 2
"""So that the service has work while this process reads what it was given."""


async def drain(address: Address, size: int) -> dict[str, float]:
    """Work until there is none; how many jobs were done, from when to when, and what of the processor it took."""
    connections = [await Connection.to(address) for _ in range(CONNECTIONS)]
    await _told_to_begin()
    began, cpu = time.perf_counter(), time.process_time()
    done = await asyncio.gather(*(work(connection, size) for connection in connections))
    ended = time.perf_counter()
    return {"jobs": sum(done), "began": began, "ended": ended, "cpu_sec": time.process_time() - cpu}


async def _told_to_begin() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def work(connection: Connection, size: int) -> int:
    """Claim and report until nothing is left; how many jobs were done."""
    done = 0
    asking = claim("bench", size)
    while jobs := claimed_in(await connection.ask(asking)):
        done += finished_in(await connection.ask(finish(jobs)))
    return done


def main() -> None:
    """Arguments: host, port, how many jobs at a time. Prints what came of it as JSON."""
    host, port, size = sys.argv[1:]
    print(json.dumps(asyncio.run(drain(Address(host, int(port)), int(size)))))


if __name__ == "__main__":
    main()
