"""What a holder must not see is not there for it."""

from __future__ import annotations

from collections.abc import Iterable

from app.errors import NotAllowed, NotFound
from app.flow.core import Core
from app.keys import Holder
from app.store import jobs


async def require_job(core: Core, holder: Holder, job_id: str) -> None:
    """Raises `NotFound` for a job that is none of the holder's business, in the words for one that is not there.

    A job never changes its tenant nor its queue, so what is found holds for whatever is done next. Raises
    `Unavailable`.
    """
    if await hidden_jobs(core, holder, [job_id]):
        raise NotFound("job")


def require_tenants(holder: Holder, tenants: Iterable[str]) -> None:
    """Raises `NotAllowed` if the holder may not act for all of them."""
    if holder.tenant is not None and set(tenants) - {holder.tenant}:
        raise NotAllowed(f"this key is tenant {holder.tenant}'s, and speaks for no other")


def require_queues(holder: Holder, queues: Iterable[str]) -> None:
    """Raises `NotAllowed` if the holder may not claim from all of them."""
    allowed = holder.grant.queues
    if allowed is not None and (others := sorted(set(queues) - allowed)):
        raise NotAllowed(f"this key may not claim from queue {others[0]}")


def only_tenant(holder: Holder, wanted: str | None) -> str | None:
    """Whose jobs are looked at where `wanted` are asked for, None being everybody's. Raises `NotAllowed`."""
    if wanted is not None:
        require_tenants(holder, [wanted])
    return wanted if holder.tenant is None else holder.tenant


async def hidden_jobs(core: Core, holder: Holder, ids: Iterable[str]) -> frozenset[str]:
    """Those of the jobs that are none of the holder's business, or not there. Raises `Unavailable`."""
    if not holder.is_limited:
        return frozenset()
    asked = frozenset(ids)
    async with core.reading() as connection:
        places = await jobs.places(connection, asked)
    return frozenset(asked - {job_id for job_id, place in places.items() if holder.may_see(*place)})
