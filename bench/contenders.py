"""Who is measured: a service under load, a peer that does the same, and what is compared with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bench.figures import GENERATOR, P50, P99, RATE, SERVER, SERVER_EACH, Figure, best, percentile, ratio
from bench.load import closed_loop
from bench.peers.process import PeerProcess
from bench.rounds import Contender, Sample
from bench.served import Served
from bench.stage import NO_OP_SERVER, PYTHON_PEERS, SHOWN_AS

_PEERS: Final = frozenset(peer.who for peer in PYTHON_PEERS)


def loaded(
    who: str, served: Served, requests: Sequence[bytes], *, jobs_each: int, connections: int, sec: float
) -> Contender:
    """A service whose clients send one request after the other."""

    async def run() -> Sample:
        cpu = served.cpu_sec
        taken = await closed_loop(served.address, requests, connections, sec)
        cpu = served.cpu_sec - cpu
        return {**taken.sample(jobs_each), **used(cpu, jobs_each * len(taken.took_ms), taken.sec)}

    return Contender(who, run)


def used(cpu_sec: float, jobs: int, sec: float) -> Sample:
    """What a service's process needed."""
    return {SERVER: 100 * cpu_sec / sec, SERVER_EACH: 1e6 * cpu_sec / jobs}


def submitting(who: str, peer: PeerProcess, *, size: int, tasks: int, sec: float) -> Contender:
    """A peer of which tasks submit one job after the other, or `size` at a time."""

    async def run() -> Sample:
        came = await peer.do("submit", size=size, tasks=tasks, sec=sec)
        return {
            RATE: came["jobs"] / came["sec"],
            P50: percentile(came["took_ms"], 50),
            P99: percentile(came["took_ms"], 99),
            GENERATOR: 100 * came["cpu_sec"] / came["sec"],
        }

    return Contender(who, run)


def compared(figures: Sequence[Figure], beside: Mapping[str, Sequence[str]] = MappingProxyType({})) -> list[Figure]:
    """Fairlane's rates to those of the server without a database, of the best peer in Python, and of what stands
    `beside` it by its name, as far as they are there."""
    rates = {figure.who: figure for figure in figures if figure.measure == RATE}
    best_peer = [best(peers).who] if (peers := [rates[who] for who in _PEERS if who in rates]) else []
    return [
        ratio(rates[ours], rates[other])
        for ours in SHOWN_AS.values()
        for other in (NO_OP_SERVER, *best_peer, *beside.get(ours, ()))
        if ours in rates and other in rates
    ]
