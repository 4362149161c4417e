"""What people change from the page: each change is asked about first, on a page of its own, so that it works with the
keyboard and without scripts, and then sent as a form."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect

from app.api.page import links
from app.api.page.forms import NewWeight, Switch
from app.api.page.render import page, see
from app.api.page.request import PageRequest
from app.api.schemas import Nothing
from app.flow import look
from app.flow.cancel import cancel
from app.flow.retry import retry
from app.flow.tenancy import get_tenant, patch_tenant, put_queue
from app.flow.watch.overview import queue_line

_SWITCHING = {"paused": "Pause", "resumed": "Resume"}


@get("/page/jobs/{job_id:str}/cancel", include_in_schema=False)
async def ask_to_cancel(request: PageRequest, job_id: FromPath[str]) -> Response[str]:
    """Whether a job is really no longer wanted."""
    job = await look.get_job(request.core, job_id)
    return _confirm(
        request,
        "Cancel",
        "Cancel job",
        job.test_suite,
        "It ends at once. A worker that runs it is told to stop at its next heartbeat.",
        f"{links.job(job_id)}/cancel",
        links.job(job_id),
        is_dangerous=True,
    )


@post("/page/jobs/{job_id:str}/cancel", include_in_schema=False)
async def cancel_job(request: PageRequest, job_id: FromPath[str]) -> Redirect:
    """A job is no longer wanted."""
    await request.filled_in(Nothing)
    await cancel(request.core, job_id)
    return see(f"{links.job(job_id)}?done=cancelled")


@get("/page/jobs/{job_id:str}/retry", include_in_schema=False)
async def ask_to_retry(request: PageRequest, job_id: FromPath[str]) -> Response[str]:
    """Whether a job is really wanted again."""
    job = await look.get_job(request.core, job_id)
    return _confirm(
        request,
        "Retry",
        "Retry job",
        job.test_suite,
        "A new job with the same request is submitted, due now. This one stays as it is.",
        f"{links.job(job_id)}/retry",
        links.job(job_id),
    )


@post("/page/jobs/{job_id:str}/retry", only_while_serving=True, include_in_schema=False)
async def retry_job(request: PageRequest, job_id: FromPath[str]) -> Redirect:
    """A job is wanted again."""
    await request.filled_in(Nothing)
    job = await retry(request.core, job_id)
    return see(f"{links.job(job.id)}?done=retried")


@get("/page/tenant/switch", include_in_schema=False)
async def ask_to_switch_tenant(request: PageRequest) -> Response[str]:
    """Whether a tenant is really to be paused, or to go on."""
    wanted = request.query(Switch)
    await get_tenant(request.core, wanted.name)
    return _confirm_switch(
        request,
        wanted,
        "tenant",
        links.tenant(wanted.name),
        paused="None of its jobs is given to a worker until it is resumed; those that run go on.",
        resumed="Its jobs are given to workers again.",
    )


@post("/page/tenant/switch", include_in_schema=False)
async def switch_tenant(request: PageRequest) -> Redirect:
    """A tenant is paused, or goes on."""
    wanted = await request.filled_in(Switch)
    await patch_tenant(request.core, wanted.name, {"paused": wanted.to == "paused"})
    return see(links.tenant(wanted.name, done=wanted.to))


@get("/page/tenant/weight", include_in_schema=False)
async def ask_to_weigh(request: PageRequest) -> Response[str]:
    """Whether a tenant's share is really to change."""
    wanted = request.query(NewWeight)
    tenant = await get_tenant(request.core, wanted.name)
    return _confirm(
        request,
        "Change the weight",
        f"Change the weight from {tenant.weight} to {wanted.weight} for tenant",
        wanted.name,
        "It counts from the next dispatch on.",
        "/page/tenant/weight",
        links.tenant(wanted.name),
        fields=wanted.given(),
    )


@post("/page/tenant/weight", include_in_schema=False)
async def weigh(request: PageRequest) -> Redirect:
    """A tenant's share changes."""
    wanted = await request.filled_in(NewWeight)
    await patch_tenant(request.core, wanted.name, {"weight": wanted.weight})
    return see(links.tenant(wanted.name, done="weight"))


@get("/page/queue/switch", include_in_schema=False)
async def ask_to_switch_queue(request: PageRequest) -> Response[str]:
    """Whether a queue is really to be paused, or to go on."""
    wanted = request.query(Switch)
    await queue_line(request.core, wanted.name)
    return _confirm_switch(
        request,
        wanted,
        "queue",
        links.queue(wanted.name),
        paused="Nothing in it is given to a worker until it is resumed; what runs goes on.",
        resumed="Workers get its jobs again.",
    )


@post("/page/queue/switch", include_in_schema=False)
async def switch_queue(request: PageRequest) -> Redirect:
    """A queue is paused, or goes on."""
    wanted = await request.filled_in(Switch)
    await queue_line(request.core, wanted.name)  # or a name that was mistyped would make one
    await put_queue(request.core, wanted.name, paused=wanted.to == "paused")
    return see(links.queue(wanted.name, done=wanted.to))


def _confirm_switch(
    request: PageRequest, wanted: Switch, kind: str, back: str, *, paused: str, resumed: str
) -> Response[str]:
    doing = _SWITCHING[wanted.to]
    is_pause = wanted.to == "paused"
    return _confirm(
        request,
        doing,
        f"{doing} {kind}",
        wanted.name,
        paused if is_pause else resumed,
        f"/page/{kind}/switch",
        back,
        fields=wanted.given(),
        is_dangerous=is_pause,
    )


def _confirm(
    request: PageRequest,
    doing: str,
    question: str,
    subject: str,
    consequence: str,
    action: str,
    back: str,
    *,
    fields: dict[str, Any] | None = None,
    is_dangerous: bool = False,
) -> Response[str]:
    return page(
        "confirm.html",
        request.holder,
        doing=doing,
        question=question,
        subject=subject,
        consequence=consequence,
        action=action,
        back=back,
        fields=fields or {},
        is_dangerous=is_dangerous,
    )
