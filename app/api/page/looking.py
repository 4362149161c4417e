"""The pages that show something."""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Redirect

from app.api.cursor import write_cursor
from app.api.decode import fault_of
from app.api.fields import JobId
from app.api.page import links
from app.api.page.explanations import Explanations
from app.api.page.forms import Address, JobAddress, Search
from app.api.page.render import html, page, see
from app.api.page.request import PageRequest
from app.api.page.shared import Shared
from app.api.page.timeline import timeline
from app.errors import NotFound
from app.flow import look
from app.flow.look import JobFilter
from app.flow.tenancy import get_tenant
from app.flow.watch.overview import queue_line, tenant_line
from app.scheduling.job import State

_PER_PAGE: Final = 50
_WAITING_TENANTS: Final = 50
_NOTICES: Final = {
    "cancelled": "The job is cancelled.",
    "retried": "This is the new job.",
    "paused": "It is paused.",
    "resumed": "It goes on.",
    "weight": "The weight is changed, from the next dispatch on.",
}


@get("/", include_in_schema=False)
async def show_overview(front_page: NamedDependency[Shared[str]]) -> Response[str]:
    """How the service stands."""
    return html(await front_page.get())


@get("/page/jobs", include_in_schema=False)
async def find_jobs(request: PageRequest) -> Response[str] | Redirect:
    """The jobs that match, or the one with the id."""
    asked = request.searched(Search)
    given = asked.given()
    if "id" in given:
        return see(links.job(_job_id(given["id"])))
    found = await look.list_jobs(request.core, asked.to_filter(_PER_PAGE))
    older = None if found.next_seq is None else links.jobs(**given | {"cursor": write_cursor(found.next_seq)})
    return page(
        "jobs.html",
        request.holder,
        jobs=found.jobs,
        following=older,
        asked={name: given.get(name) for name in Search.__struct_fields__},
        is_narrowed=bool(given),
        states=list(State),
        now=request.core.clock.now(),
    )


@get("/page/jobs/{job_id:str}", include_in_schema=False)
async def show_job(
    explanations: NamedDependency[Explanations],
    request: PageRequest,
    job_id: FromPath[str],
) -> Response[str]:
    """One job."""
    address = request.query(JobAddress)
    job, attempts = await look.get_job(request.core, job_id), await look.list_attempts(request.core, job_id)
    now = request.core.clock.now()
    return page(
        "job.html",
        request.holder,
        job=job,
        attempts=attempts,
        stretches=timeline(job, attempts, now),
        why=await request.unless_gone(explanations.of(job)),
        notice=_NOTICES.get(str(address.done)),
        now=now,
    )


@get("/page/tenant", include_in_schema=False)
async def show_tenant(request: PageRequest) -> Response[str]:
    """One tenant."""
    address = request.query(Address)
    tenant = await get_tenant(request.core, address.name)
    newest = await look.list_jobs(request.core, JobFilter(tenant=tenant.name, limit=10))
    return page(
        "tenant.html",
        request.holder,
        line=tenant_line(request.core, tenant.name),
        jobs=newest.jobs,
        notice=_NOTICES.get(str(address.done)),
        now=request.core.clock.now(),
    )


@get("/page/queue", include_in_schema=False)
async def show_queue(request: PageRequest) -> Response[str]:
    """One queue."""
    address = request.query(Address)
    line = await queue_line(request.core, address.name)
    newest = await look.list_jobs(request.core, JobFilter(queue=line.name, limit=10))
    return page(
        "queue.html",
        request.holder,
        line=line,
        waiting=request.core.counts.queued_by_tenant(line.name).most_common(_WAITING_TENANTS),
        jobs=newest.jobs,
        notice=_NOTICES.get(str(address.done)),
        now=request.core.clock.now(),
    )


def _job_id(text: str) -> str:
    """The id that somebody has pasted, from wherever. Raises `NotFound` for what can be none."""
    job_id = text.strip().replace("-", "").lower()
    if fault_of(job_id, JobId):
        raise NotFound("job")
    return job_id
