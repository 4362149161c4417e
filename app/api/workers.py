"""What workers do: claim jobs, beat for them, and report."""

from __future__ import annotations

from functools import partial
from typing import Final

from litestar import post
from litestar.params import FromPath, JSONBody
from litestar.status_codes import HTTP_200_OK

from app.api.document import documented, leads_to
from app.api.guards import LARGE_BODY_BYTES
from app.api.request import CheckedRequest
from app.api.schemas import (
    BeatItem,
    BeatsAnswer,
    BeatsBody,
    ClaimAnswer,
    ClaimBody,
    ClaimedJob,
    CompleteBody,
    FailBody,
    FinishAnswer,
    FinishBody,
    FinishedItem,
    HeartbeatAnswer,
    HeartbeatBody,
    JobAnswer,
    TokenBody,
)
from app.clock import rfc3339
from app.errors import Conflict, LeaseLost, NoKey, NotFound, Unavailable
from app.flow import finish, lease
from app.flow.access.admit import is_still_let_in, until_shut_out
from app.flow.access.sight import require_queues
from app.flow.bulk import finish_many, heartbeat_many
from app.flow.dispatch import ClaimRequest, claim, give_back
from app.scheduling.job import Job

_BY_TOKEN: Final = documented(NotFound, LeaseLost, Conflict, Unavailable)
_TO_THE_REPORTS: Final = leads_to(
    "start_job",
    "beat",
    "complete_job",
    "fail_job",
    "release_job",
    job_id="/jobs/0/id",
    body={"token": "/jobs/0/lease/token"},
)


@post(
    "/jobs/claim",
    status_code=HTTP_200_OK,
    only_while_serving=True,
    **documented(Unavailable, links=_TO_THE_REPORTS),
)
async def claim_jobs(request: CheckedRequest, data: JSONBody[ClaimBody]) -> ClaimAnswer:
    """Take up to `limit` jobs in the order they are to be done, waiting up to `wait_sec` for the first."""
    require_queues(request.holder, data.queues)
    wanted = data.to_request()
    jobs = await (_waited_for(request, wanted) if data.wait_sec else claim(request.core, wanted))
    return ClaimAnswer(jobs=[ClaimedJob.claimed(job) for job in jobs])


@post("/jobs/{job_id:str}/start", status_code=HTTP_200_OK, **_BY_TOKEN)
async def start_job(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[TokenBody]) -> JobAnswer:
    """Say that the work has begun."""
    return JobAnswer.of(await lease.start(request.core, job_id, data.token))


@post("/jobs/{job_id:str}/heartbeat", status_code=HTTP_200_OK, **_BY_TOKEN)
async def beat(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[HeartbeatBody]) -> HeartbeatAnswer:
    """Say that the work goes on. A 409 means: stop working."""
    expires_at = await lease.heartbeat(request.core, job_id, **data.given())
    return HeartbeatAnswer(expires_at=rfc3339(expires_at))


@post("/jobs/{job_id:str}/complete", status_code=HTTP_200_OK, **_BY_TOKEN)
async def complete_job(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[CompleteBody]) -> JobAnswer:
    """Report that the work is done."""
    return JobAnswer.of(await finish.complete(request.core, job_id, data.token, data.result))


@post("/jobs/{job_id:str}/fail", status_code=HTTP_200_OK, **_BY_TOKEN)
async def fail_job(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[FailBody]) -> JobAnswer:
    """Report that the work could not be done."""
    return JobAnswer.of(await finish.fail(request.core, job_id, data.token, data.cut_error(), retry=data.retry))


@post("/jobs/{job_id:str}/release", status_code=HTTP_200_OK, **_BY_TOKEN)
async def release_job(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[TokenBody]) -> JobAnswer:
    """Give the job back; the attempt is not counted."""
    return JobAnswer.of(await finish.release(request.core, job_id, data.token))


@post(
    "/jobs/finish",
    status_code=HTTP_200_OK,
    request_max_body_size=LARGE_BODY_BYTES,
    **documented(Unavailable),
)
async def finish_jobs(request: CheckedRequest, data: JSONBody[FinishBody]) -> FinishAnswer:
    """Report how up to 1,000 attempts ended. Each report is judged by itself."""
    judged = await finish_many(request.core, [item.to_report() for item in data.results], request.holder)
    return FinishAnswer(results=[FinishedItem.of(each) for each in judged])


@post("/jobs/heartbeat", status_code=HTTP_200_OK, **documented(Unavailable))
async def beat_for_jobs(request: CheckedRequest, data: JSONBody[BeatsBody]) -> BeatsAnswer:
    """Beat for up to 1,000 jobs. A lease that is not ok is lost: stop working on its job."""
    leases = [(item.id, item.token) for item in data.leases]
    judged = await heartbeat_many(request.core, leases, data.length(), request.holder)
    return BeatsAnswer(results=[BeatItem.of(each) for each in judged])


async def _waited_for(request: CheckedRequest, wanted: ClaimRequest) -> list[Job]:
    """What comes while the client waits and its key is good: who could not report is given nothing."""
    core, holder = request.core, request.holder
    undo = partial(give_back, core)
    until = None if holder.key_id is None else until_shut_out(core, holder)
    jobs = await request.unless_gone(claim(core, wanted), undo, until)
    if not await is_still_let_in(core, holder):  # it has ended since it was looked at last
        await undo(jobs)
        raise NoKey
    return jobs


HANDLERS = (claim_jobs, start_job, beat, complete_job, fail_job, release_job, finish_jobs, beat_for_jobs)
