"""A worker asks for work: the order proposes, the database decides, a lease is written. All claims stand in one
line; whenever a job can be picked, the first of them that wants it gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from app.errors import FairlaneError, Unavailable
from app.events import ProposalRefused
from app.flow import finish
from app.flow.core import Core
from app.flow.ids import new_id
from app.flow.waiting import ClaimRequest, Waiting
from app.scheduling.job import Job, State
from app.scheduling.scheduler import Pick
from app.store import jobs
from app.store.parts import Redo
from app.store.transaction import Transaction

__all__ = ["ClaimRequest", "claim", "end_waiting", "give_back", "serve_soon", "serve_waiting"]

LEASED_AT_ONCE: Final = 1000
"""A transaction that has leased so many serves nobody else, so that other writes come in between. The rest of the
line is served in the next."""


async def claim(core: Core, request: ClaimRequest) -> list[Job]:
    """Lease up to `limit` jobs, in the order picked; each has `token`, `lease_sec` and `lease_expires_at`. Empty if
    none came in `wait_sec`. A caller that is cancelled while it waits is given nothing.

    Raises `Unavailable`.
    """
    core.refuse_while_closed()
    core.asking.note(request.queues, core.clock.monotonic())
    waiting = core.waiting.add(request)
    try:
        await _wait(core, waiting)
    except BaseException:
        if waiting.answer.done() and not waiting.answer.cancelled():
            _give_back_soon(core, waiting.answer.result())
        raise
    finally:
        core.waiting.remove(waiting)
        core.asking.note(request.queues, core.clock.monotonic())
        if not waiting.answer.done():
            waiting.answer.cancel()
    return [] if waiting.answer.cancelled() else waiting.answer.result()


async def give_back(core: Core, leased: Sequence[Job]) -> None:
    """Release what was claimed for somebody who has left. What cannot be released lapses."""
    await asyncio.gather(*(_release(core, job) for job in leased))


async def serve_waiting(core: Core, tx: Transaction) -> None:
    """At the end of a transaction: what it has queued goes to claims that wait, in the same commit."""
    if core.waiting.can_serve(core.order.can_pick, tx):
        await _serve(core, tx)


def serve_soon(core: Core) -> None:
    """After a commit: if a job can be picked that a claim waits for, serve those that wait. Seldom anything is left
    for it: a transaction that had to be run with care serves nobody."""
    if not core.is_serving_soon and core.waiting.can_serve(core.order.can_pick, None):
        core.is_serving_soon = True
        core.spawn(_serve_those_waiting(core), "serving claims that wait")


def end_waiting(core: Core) -> None:
    """The service drains: claims that wait come back empty."""
    core.waiting.end()


async def _wait(core: Core, waiting: Waiting) -> None:
    """Until there is an answer, or it is clear that there will be none."""
    while not waiting.answer.done() and not core.waiting.ended.done() and _can_pick_for(core, waiting):
        waiting.asked = asyncio.get_running_loop().create_future()
        # Those before it in the line may get all of the first transaction.
        await core.writer.write_until(waiting.asked, partial(_serve, core))
    if not waiting.answer.done() and waiting.request.wait_sec:
        either: set[asyncio.Future[Any]] = {waiting.answer, core.waiting.ended}
        await asyncio.wait(either, timeout=waiting.request.wait_sec, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.answer.done() and waiting.proposed_in is not None:
        # Jobs may be being leased to it as its time runs out: what is written behind that comes after it.
        await core.write(_nothing)


def _can_pick_for(core: Core, waiting: Waiting) -> bool:
    return any(core.order.can_pick(queue) for queue in waiting.request.queues)


async def _serve_those_waiting(core: Core) -> None:
    """If it fails, the next commit or tick tries again. The commit of its own group must not: a job that the database
    refuses to lease would keep the service turning."""
    try:
        await core.write(partial(_serve, core))
    except Unavailable:  # told by the writer
        return
    finally:
        core.is_serving_soon = False
    serve_soon(core)


async def _release(core: Core, job: Job) -> None:
    with suppress(FairlaneError):
        await finish.release(core, job.id, job.token or "")


async def _nothing(tx: Transaction) -> None:
    """Comes after everything that is being written."""


@dataclass(frozen=True, slots=True)
class _Proposal:
    """What the order gives to a claim."""

    waiting: Waiting
    picks: Sequence[Pick]


async def _serve(core: Core, tx: Transaction) -> None:
    """Lease what can be picked to those that wait for it, in their turn."""
    proposals = _propose(core, tx)
    if not proposals:
        return
    connection = await tx.settled()
    rows = [row for proposal in proposals for row in _lease_rows(core, proposal)]
    claimed = {job.id: job for job in await jobs.claim_if_queued(connection, rows)}
    _insist(core, proposals, claimed)
    for job in claimed.values():
        core.note_move(job, State.QUEUED)
    starting = [
        claimed[pick.job.id] for proposal in proposals for pick in proposal.picks if proposal.waiting.request.start
    ]
    if starting:
        now = core.clock.now()
        tx.write(jobs.starts(starting, now))
        for scheduled in starting:
            claimed[scheduled.id] = job = jobs.started(scheduled, now)
            core.note_move(job, State.SCHEDULED)
    for proposal in proposals:
        leased = [claimed[pick.job.id] for pick in proposal.picks]
        tx.after_commit(_deliver, core, proposal.waiting, leased)


def _propose(core: Core, tx: Transaction) -> list[_Proposal]:
    proposals: list[_Proposal] = []
    for waiting in core.waiting.in_turn(core.order.can_pick, tx):
        if core.waiting.served_in(tx) >= LEASED_AT_ONCE:
            break
        picks: list[Pick] = []
        for queue in waiting.request.queues:
            while len(picks) < waiting.request.limit and (pick := core.order.pick(queue)):
                picks.append(pick)
        core.waiting.propose(waiting, len(picks), tx)
        proposals.append(_Proposal(waiting, picks))
    return proposals


def _lease_rows(core: Core, proposal: _Proposal) -> list[dict[str, object]]:
    request, rows = proposal.waiting.request, []
    moments = core.clock.series(len(proposal.picks))  # one for each job: they stand in the order picked
    for pick, now in zip(proposal.picks, moments, strict=True):
        rows.append(
            {
                "id": pick.job.id,
                "token": new_id(now),
                "charge": pick.charge,
                "dispatch_weight": pick.weight,
                "scheduled_at": now,
                "worker": request.worker,
                "lease_sec": request.lease_sec,
                "lease_expires_at": now + timedelta(seconds=request.lease_sec),
            }
        )
    return rows


def _deliver(core: Core, waiting: Waiting, leased: list[Job]) -> None:
    for job in leased:
        core.lease_begun(job)
    if waiting.answer.done():  # the client hung up while its jobs were written
        _give_back_soon(core, leased)
    else:
        waiting.give(leased)


def _give_back_soon(core: Core, leased: list[Job]) -> None:
    if leased:
        core.spawn(give_back(core, leased), "giving back what nobody took")


def _insist(core: Core, proposals: Sequence[_Proposal], moved: dict[str, Job]) -> None:
    """Undo the whole proposal if the database did not move all of it, and drop what it refused."""
    refused = {pick.job.id for proposal in proposals for pick in proposal.picks} - moved.keys()
    if refused:
        raise Redo(partial(_drop, core, refused))


def _drop(core: Core, refused: set[str]) -> None:
    """Somebody changed these rows by hand. The next tick counts them as what they are now."""
    for job_id in refused:
        dropped = core.order.withdraw(job_id)
        if dropped is not None:
            core.to_recount[job_id] = dropped
        core.emit(ProposalRefused(job_id))
