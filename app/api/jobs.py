"""What clients do with jobs: submit, look, cancel."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import urlencode

from litestar import Response, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody
from litestar.status_codes import HTTP_200_OK, HTTP_201_CREATED

from app.api.cursor import write_cursor
from app.api.document import KEY, LOCATION, NEXT_PAGE, PREFER, PREFERENCE_APPLIED, REPLAYED, documented, leads_to
from app.api.guards import LARGE_BODY_BYTES
from app.api.request import CheckedRequest
from app.api.schemas import (
    AttemptAnswer,
    BatchAnswer,
    BatchBody,
    BatchIds,
    CancelBody,
    CancelledAnswer,
    ExplainAnswer,
    JobAnswer,
    ListQuery,
    PriorityBody,
    StatsAnswer,
    SubmitBody,
)
from app.errors import Conflict, KeyReused, NotFound, RateLimited, TooManyQueued, Unavailable
from app.flow import look
from app.flow.access.sight import only_tenant, require_tenants
from app.flow.cancel import cancel, cancel_many
from app.flow.reprioritize import reprioritize
from app.flow.retry import retry
from app.flow.submit import submit
from app.flow.watch.explain import explain

T = TypeVar("T")

_SUBMIT_ERRORS: Final = (KeyReused, RateLimited, TooManyQueued, Unavailable)
_TO_THE_JOB: Final = leads_to("get_job", "explain_job", "change_job", "cancel_job", job_id="/id")


@post(
    "/jobs",
    only_while_serving=True,
    **documented(
        *_SUBMIT_ERRORS,
        headers=[KEY],
        answers={HTTP_201_CREATED: LOCATION, HTTP_200_OK: LOCATION | REPLAYED},
        also={HTTP_200_OK: ResponseSpec(JobAnswer, generate_examples=False, description="Stored before.")},
        links=_TO_THE_JOB,
    ),
)
async def submit_job(request: CheckedRequest, data: JSONBody[SubmitBody]) -> Response[JobAnswer]:
    """Submit a job. With an `Idempotency-Key` that was used before, the answer is that request's job as it is now."""
    require_tenants(request.holder, [data.tenant])
    [submitted] = await submit(request.core, [data.to_request(request.idempotency_key)])
    return _stored(JobAnswer.of(submitted.job), submitted.replayed, {"Location": f"/jobs/{submitted.job.id}"})


@post(
    "/jobs/batch",
    only_while_serving=True,
    request_max_body_size=LARGE_BODY_BYTES,
    **documented(
        *_SUBMIT_ERRORS,
        headers=[PREFER],
        answers={HTTP_201_CREATED: PREFERENCE_APPLIED, HTTP_200_OK: PREFERENCE_APPLIED | REPLAYED},
        also={HTTP_200_OK: ResponseSpec(BatchAnswer, generate_examples=False, description="All stored before.")},
    ),
)
async def submit_batch(request: CheckedRequest, data: JSONBody[BatchBody]) -> Response[BatchAnswer | BatchIds]:
    """Submit up to 10,000 jobs, all or none."""
    require_tenants(request.holder, [item.tenant for item in data.jobs])
    submitted = await submit(request.core, [item.to_request() for item in data.jobs])
    replayed = all(each.replayed for each in submitted)
    if request.prefers_minimal:
        ids = BatchIds(ids=[each.job.id for each in submitted])
        return _stored(ids, replayed, {"Preference-Applied": "return=minimal"})
    return _stored(BatchAnswer(jobs=[JobAnswer.of(each.job) for each in submitted]), replayed)


@get("/jobs", answered_anywhere=True, **documented(Unavailable, query=ListQuery, answers={HTTP_200_OK: NEXT_PAGE}))
async def list_jobs(request: CheckedRequest) -> Response[list[JobAnswer]]:
    """List jobs by when they were submitted. `Link` leads to the next page until there is none."""
    query = request.query(ListQuery)
    wanted = query.to_filter()
    page = await look.list_jobs(request.core, replace(wanted, tenant=only_tenant(request.holder, wanted.tenant)))
    answer = Response([JobAnswer.of(job) for job in page.jobs])
    if page.next_seq is not None:
        following = urlencode(query.given() | {"cursor": write_cursor(page.next_seq)})
        answer.set_header("Link", f'</jobs?{following}>; rel="next"')
    return answer


@get("/jobs/{job_id:str}", answered_anywhere=True, **documented(NotFound, Unavailable))
async def get_job(request: CheckedRequest, job_id: FromPath[str]) -> JobAnswer:
    """Look at one job."""
    return JobAnswer.of(await look.get_job(request.core, job_id))


@get("/jobs/{job_id:str}/attempts", answered_anywhere=True, **documented(NotFound, Unavailable))
async def list_attempts(request: CheckedRequest, job_id: FromPath[str]) -> list[AttemptAnswer]:
    """List a job's ended attempts, first to last."""
    return [AttemptAnswer.of(attempt) for attempt in await look.list_attempts(request.core, job_id)]


@get("/jobs/{job_id:str}/explain", **documented(NotFound, Unavailable))
async def explain_job(request: CheckedRequest, job_id: FromPath[str]) -> ExplainAnswer:
    """Say why a job waits. What goes before it, what holds it, when it may go, and what would make it the next."""
    explaining = explain(request.core, job_id, only=request.holder.tenant)
    return ExplainAnswer.found(await request.unless_gone(explaining))  # there may be a long line for it


@post(
    "/jobs/{job_id:str}/cancel",
    status_code=HTTP_200_OK,
    **documented(NotFound, Conflict, Unavailable, links=leads_to("list_attempts", "retry_job", job_id="/id")),
)
async def cancel_job(request: CheckedRequest, job_id: FromPath[str]) -> JobAnswer:
    """Cancel a job in any state that is not final. Sent again, the answer is the same."""
    return JobAnswer.of(await cancel(request.core, job_id))


@patch("/jobs/{job_id:str}", **documented(NotFound, Conflict, Unavailable))
async def change_job(request: CheckedRequest, job_id: FromPath[str], data: JSONBody[PriorityBody]) -> JobAnswer:
    """Change the priority of a job that waits. It counts for the next dispatch."""
    return JobAnswer.of(await reprioritize(request.core, job_id, data.priority))


@post("/jobs/cancel", status_code=HTTP_200_OK, **documented(Unavailable))
async def cancel_jobs(request: CheckedRequest, data: JSONBody[CancelBody]) -> CancelledAnswer:
    """Cancel a tenant's unfinished jobs, or some of them."""
    require_tenants(request.holder, [data.tenant])
    return CancelledAnswer(cancelled=await cancel_many(request.core, data.to_filter()))


@post(
    "/jobs/{job_id:str}/retry",
    only_while_serving=True,
    **documented(
        NotFound,
        Conflict,
        RateLimited,
        TooManyQueued,
        Unavailable,
        answers={HTTP_201_CREATED: LOCATION},
        links=_TO_THE_JOB,
    ),
)
async def retry_job(request: CheckedRequest, job_id: FromPath[str]) -> Response[JobAnswer]:
    """Submit a failed or cancelled job once more, as a new one."""
    job = await retry(request.core, job_id)
    return _stored(JobAnswer.of(job), replayed=False, headers={"Location": f"/jobs/{job.id}"})


@get("/stats", **documented(Unavailable))
async def get_stats(request: CheckedRequest) -> StatsAnswer:
    """Count the jobs, in all and in each queue."""
    return StatsAnswer.total(look.stats(request.core))


def _stored(content: T, replayed: bool, headers: dict[str, str] | None = None) -> Response[T]:  # noqa: FBT001
    """201, or 200 if an earlier request had stored all of it."""
    if replayed:
        return Response(content, status_code=HTTP_200_OK, headers={"Idempotency-Replayed": "true"} | (headers or {}))
    return Response(content, status_code=HTTP_201_CREATED, headers=headers)


HANDLERS = (
    submit_job,
    submit_batch,
    list_jobs,
    get_job,
    list_attempts,
    explain_job,
    change_job,
    cancel_job,
    cancel_jobs,
    retry_job,
    get_stats,
)
