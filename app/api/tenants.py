"""Tenants and queues: how they stand and what is set of them."""

from __future__ import annotations

from litestar import get, patch, post, put
from litestar.params import FromPath, JSONBody
from litestar.status_codes import HTTP_200_OK

from app.api.decode import fault_of
from app.api.document import documented, leads_to
from app.api.fields import Name
from app.api.request import CheckedRequest
from app.api.schemas import EraseBody, ErasureAnswer, QueueAnswer, QueueBody, TenantAnswer, TenantBody, TenantChanges
from app.errors import FieldError, InvalidRequest, NotFound, Unavailable, Unfinished
from app.flow import erase, tenancy


@get("/tenants", **documented(Unavailable))
async def list_tenants(request: CheckedRequest) -> list[TenantAnswer]:
    """List all tenants by name."""
    found = await tenancy.list_tenants(request.core)
    return [TenantAnswer.of(tenant) for tenant in found if request.holder.tenant in (None, tenant.name)]


@get("/tenants/{name:str}", **documented(NotFound, Unavailable))
async def get_tenant(request: CheckedRequest, name: FromPath[str]) -> TenantAnswer:
    """Look at one tenant."""
    return TenantAnswer.of(await tenancy.get_tenant(request.core, _known(name)))


@put(
    "/tenants/{name:str}",
    **documented(Unavailable, links=leads_to("get_tenant", "patch_tenant", "erase_tenant", name="/name")),
)
async def put_tenant(request: CheckedRequest, name: FromPath[str], data: JSONBody[TenantBody]) -> TenantAnswer:
    """Create a tenant or set all of it; what is left out gets its default."""
    return TenantAnswer.of(await tenancy.put_tenant(request.core, _usable(name), data.to_settings()))


@patch("/tenants/{name:str}", **documented(NotFound, Unavailable))
async def patch_tenant(request: CheckedRequest, name: FromPath[str], data: JSONBody[TenantChanges]) -> TenantAnswer:
    """Change only what is named."""
    return TenantAnswer.of(await tenancy.patch_tenant(request.core, _known(name), data.to_changes()))


@post("/tenants/{name:str}/erase", status_code=HTTP_200_OK, **documented(NotFound, Unfinished, Unavailable))
async def erase_tenant(request: CheckedRequest, name: FromPath[str], data: JSONBody[EraseBody]) -> ErasureAnswer:
    """Delete all that is kept of a tenant, for some seconds. If `is_gone` is false, the same call goes on."""
    do = erase.look_before_erasing if data.dry_run else erase.erase_tenant
    return ErasureAnswer.of(await do(request.core, _known(name)))


@get("/queues", **documented(Unavailable))
async def list_queues(request: CheckedRequest) -> list[QueueAnswer]:
    """List all queues by name."""
    return [QueueAnswer.of(queue) for queue in await tenancy.list_queues(request.core)]


@put("/queues/{name:str}", **documented(Unavailable))
async def put_queue(request: CheckedRequest, name: FromPath[str], data: JSONBody[QueueBody]) -> QueueAnswer:
    """Create a queue or set its switch. A paused queue is not claimed from."""
    return QueueAnswer.of(await tenancy.put_queue(request.core, _usable(name), paused=data.paused))


def _usable(name: str) -> str:
    if message := fault_of(name, Name):
        raise InvalidRequest(f"name {message}", [FieldError("name", message)])
    return name


def _known(name: str) -> str:
    if fault_of(name, Name):  # no tenant can have it, so the database is not asked
        raise NotFound("tenant")
    return name


HANDLERS = (list_tenants, get_tenant, put_tenant, patch_tenant, erase_tenant, list_queues, put_queue)
