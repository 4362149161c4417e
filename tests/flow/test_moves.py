"""Who listens to the moves hears each once it is durable, in order, and never of what was undone."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import Conflict
from app.events import LoopFailed
from app.flow.cancel import cancel
from app.flow.look import get_job
from app.flow.moves import Moved
from app.flow.reprioritize import reprioritize
from tests.databases import Database
from tests.flow.harness import in_one_group, service


async def test_each_move_is_told_once_with_the_job_as_it_left_it(database: Database) -> None:
    async with service(database) as running:
        core, heard = running.core, list[Moved]()
        leave = core.moves.listen(heard.extend)

        first = await running.submit()
        later = await running.submit(delay_sec=5)
        claimed = await running.claim_one(start=True)
        await running.complete(claimed)
        await running.tick(after=6)
        await cancel(core, later.id)
        leave()
        await running.submit()

        assert [(moved.job and moved.job.id, moved.old, moved.new) for moved in heard] == [
            (first.id, None, "queued"),
            (later.id, None, "pending"),
            (first.id, "queued", "scheduled"),
            (first.id, "scheduled", "running"),
            (first.id, "running", "completed"),
            (later.id, "pending", "queued"),
            (later.id, "queued", "cancelled"),
        ]
        assert [moved.job and moved.job.state for moved in heard] == [moved.new for moved in heard]
        assert heard[4].job == await get_job(core, first.id)
        assert heard[6].job == await get_job(core, later.id)


async def test_what_is_undone_is_not_told_and_a_listener_that_raises_hurts_nobody(database: Database) -> None:
    def broken(_: Sequence[Moved]) -> None:
        raise RuntimeError("a fault")

    async with service(database) as running:
        core, heard = running.core, list[Moved]()
        old = await running.submit()
        await cancel(core, old.id)
        core.moves.listen(broken)
        core.moves.listen(heard.extend)

        refused, job = await in_one_group(core, reprioritize(core, old.id, 3), running.submit())

        assert isinstance(refused, Conflict)
        assert [(moved.job and moved.job.id, moved.new) for moved in heard] == [(job.id, "queued")]
        assert "a fault" in running.heard.all(LoopFailed)[0].error
