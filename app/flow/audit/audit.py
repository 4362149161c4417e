"""The audit: a slow regular comparison of memory with the database. Whatever plain SQL has done since is found, mended
and told, each thing once. What comes next, and how many there are, is then again what the rows say; how much share a
lane has used is what memory says, for nobody sets that by hand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from app.events import DifferenceMended
from app.flow.audit import mend
from app.flow.audit.differences import Differences, Ending, compare, go_on
from app.flow.audit.mend import Mended, What
from app.flow.audit.moment import hold
from app.flow.core import Core
from app.store.session import freezing

Item = TypeVar("Item", str, tuple[str, str])

_MENDED_AT_ONCE: Final = 100
"""Most things looked at again in one transaction."""

_NAMED: Final = 20
"""Most things named in one event."""

_STILL_SEC: Final = 0.1
"""How long to wait when memory was not still."""


async def audit(core: Core) -> bool:
    """Compare once, and mend. Whether to look again at once, since memory was not still or others mended meanwhile.

    Raises `Unavailable`.
    """
    try:
        async with freezing(core.engines) as looking:
            held = await hold(core, looking)
            corrections = core.counts.corrections if held is None else held.corrections
            found = None if held is None else await compare(core, looking, held)
        if found is not None and await _mend(core, found, corrections):
            return False
    except Ending:
        return False
    await asyncio.sleep(_STILL_SEC)
    return True


async def _mend(core: Core, found: Differences, corrections: int) -> bool:
    """Whether all of it could be mended."""
    mended = list[Mended]()
    try:
        await _mend_each(core, found, mended)
        is_settled = core.counts.corrections == corrections and not core.to_recount
        if found.lacking and is_settled:
            # It is the same number as at the moment of the comparison, for what moved since is in both.
            core.counts.make_up(found.lacking)
            mended += [Mended(What.NUMBERS, phrase) for phrase in found.lacking.described()]
    finally:
        _tell(core, mended)
    return is_settled or not found.lacking


async def _mend_each(core: Core, found: Differences, mended: list[Mended]) -> None:
    """Look at each thing that differs again, now with the writer stopped, and mend it if it still does."""
    await _mend_jobs(core, found, mended)
    found.running.update(each.moved.tenant for each in mended if each.moved)
    if any(each.was_guessed for each in mended):
        found.running.update(core.order.running_by_tenant())
    by_name: tuple[tuple[Callable[..., Awaitable[list[Mended]]], set[Any]], ...] = (
        (mend.running_if_it_differs, found.running),
        (mend.lanes_if_they_differ, found.lanes),
        (mend.clocks_if_they_differ, found.clocks),
        (mend.tenants_without_a_row, found.tenants),
        (mend.queues_without_a_row, found.queues),
    )
    for if_it_differs, names in by_name:
        for some in _steps(core, names):
            mended += await core.write(partial(if_it_differs, core, some), alone=True)


async def _mend_jobs(core: Core, found: Differences, mended: list[Mended]) -> None:
    for ids in _steps(core, found.jobs):
        of_jobs = await core.write(partial(mend.jobs_if_they_differ, core, ids, found.lacking), alone=True)
        for each in of_jobs:
            if each.moved is not None:
                found.lacking.take(each.moved)
        mended += of_jobs
    if found.waits or any(each.what is What.NOT_TO_COME for each in mended):
        await core.write(partial(mend.drop_waits_that_are_over, core), alone=True)


def _steps(core: Core, items: Iterable[Item]) -> Iterable[list[Item]]:
    left = sorted(items)
    for first in range(0, len(left), _MENDED_AT_ONCE):
        go_on(core)
        yield left[first : first + _MENDED_AT_ONCE]


def _tell(core: Core, mended: Iterable[Mended]) -> None:
    by_kind = defaultdict[What, list[str]](list)
    for each in mended:
        by_kind[each.what].append(each.which)
    for what, which in by_kind.items():
        core.emit(DifferenceMended(what, len(which), tuple(which[:_NAMED])))
