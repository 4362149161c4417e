"""A worker asks for work: the order proposes, the database decides, a lease is written."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.errors import Unavailable
from app.events import ProposalRefused
from app.flow.core import Core, Phase
from app.scheduling.job import Job, State
from app.scheduling.scheduler import Pick
from app.store import jobs
from app.store.transaction import Transaction
from app.store.writer import Redo


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for; `queues` are tried in turn until `limit` jobs are found."""

    worker: str
    queues: tuple[str, ...] = ("default",)
    limit: int = 1
    lease_sec: int = 30
    wait_sec: int = 0
    start: bool = False


async def claim(core: Core, request: ClaimRequest) -> list[Job]:
    """Lease up to `limit` jobs, in the order picked; each has `token`, `lease_sec` and `lease_expires_at`.

    Raises `Unavailable`.
    """
    if core.phase is not Phase.SERVING:
        raise Unavailable(f"the service is {core.phase}")
    if not any(core.order.can_pick(queue) for queue in request.queues):
        return []
    return await core.write(lambda tx: _lease(core, tx, request))


async def _lease(core: Core, tx: Transaction, request: ClaimRequest) -> list[Job]:
    picks = _pick(core, request)
    if not picks:
        return []
    connection = await tx.settled()
    leases = [
        {
            "id": pick.job.id,
            "token": secrets.token_hex(16),
            "charge": pick.charge,
            "dispatch_weight": pick.weight,
            "scheduled_at": core.clock.now(),  # one each: they stand in the order picked
        }
        for pick in picks
    ]
    expires_at = core.clock.now() + timedelta(seconds=request.lease_sec)
    same = {"worker": request.worker, "lease_sec": request.lease_sec, "lease_expires_at": expires_at}
    claimed = await jobs.claim_if_queued(connection, leases, same)
    _insist(core, picks, claimed)
    for job in claimed:
        core.note_move(job, State.QUEUED)
    if request.start:
        tokens = {job.id: job.token or "" for job in claimed}
        claimed = await jobs.start_if_scheduled(connection, tokens, core.clock.now())
        _insist(core, picks, claimed)
        for job in claimed:
            core.note_move(job, State.SCHEDULED)
    for job in claimed:
        tx.after_commit(core.lease_begun, job)
    by_id = {job.id: job for job in claimed}
    return [by_id[pick.job.id] for pick in picks]


def _pick(core: Core, request: ClaimRequest) -> list[Pick]:
    picks: list[Pick] = []
    for queue in request.queues:
        while len(picks) < request.limit and (pick := core.order.pick(queue)):
            picks.append(pick)
    return picks


def _insist(core: Core, picks: Sequence[Pick], moved: Sequence[Job]) -> None:
    """Undo the whole proposal if the database did not move all of it, and drop what it refused."""
    refused = {pick.job.id for pick in picks} - {job.id for job in moved}
    if refused:
        raise Redo(partial(_drop, core, refused))


def _drop(core: Core, refused: set[str]) -> None:
    """Somebody changed these rows by hand. The next tick counts them as what they are now."""
    for job_id in refused:
        dropped = core.order.withdraw(job_id)
        if dropped is not None:
            core.to_recount[job_id] = dropped
        core.emit(ProposalRefused(job_id))
