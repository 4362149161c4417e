"""Faults to plant in the service, each one that somebody could make: by how soon they are found it is known that the
simulation sees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from app.flow import dispatch, finish, moves, recover
from app.flow.core import Core
from app.flow.finish import Ending
from app.flow.keys import KeysInFlight
from app.scheduling.job import Move
from app.scheduling.scheduler import LaneTime, Scheduler
from app.store import jobs
from app.store.group import Write
from app.store.parts import Updates
from app.store.writer import Writer

Fault = Callable[[pytest.MonkeyPatch], None]


def a_lapse_that_looks_at_no_clock(patch: pytest.MonkeyPatch) -> None:
    """A lease that was renewed while its end waited for the writer ends all the same."""
    real = finish._lapse

    async def lapse(core: Core, tx: Any, ended: Any) -> None:
        present = core.leases.get(ended.job_id)
        if present is not None and present.token == ended.token:
            core.leases.put(present._replace(expires_at=ended.expires_at, timeout_at=ended.timeout_at))
        await real(core, tx, ended)

    patch.setattr(finish, "_lapse", lapse)


def a_report_under_any_token(patch: pytest.MonkeyPatch) -> None:
    """Whoever knows the job's id ends its attempt."""

    real = finish._judge

    def judge(core: Core, job: Any, report: finish.Report) -> Any:
        is_leased = job is not None and job.state.is_leased
        return real(core, job, report._replace(token=job.token) if is_leased else report)

    patch.setattr(finish, "_judge", judge)


def _ending_otherwise(patch: pytest.MonkeyPatch, other: Callable[[Ending], Ending]) -> None:
    real = finish.End.of
    patch.setattr(finish.End, "of", lambda job, at, ending: real(job, at, other(ending)))


def a_release_without_refund(patch: pytest.MonkeyPatch) -> None:
    """The lane pays for what it gave back."""
    _ending_otherwise(patch, lambda ending: ending._replace(refund=False))


def memory_that_keeps_what_was_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """Moves of a transaction that failed are counted with those of the next."""
    patch.setattr(moves.Moves, "forget_from", lambda _self, _mark: None)


def an_order_that_keeps_what_was_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "rollback", Scheduler.commit)


def leases_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Memory drops a lease when its end is written, not when it is durable."""
    real = jobs.moves

    def move(move: Move, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> Updates:
        for core in _cores:
            for job_id, *_ in rows:
                core.leases.drop(job_id)
        return real(move, names, rows)

    _cores: list[Core] = []
    began = Core.__init__

    def init(self: Core, *args: Any, **kw: Any) -> None:
        began(self, *args, **kw)
        _cores[:] = [self]

    patch.setattr(Core, "__init__", init)
    patch.setattr(jobs, "moves", move)


def a_start_that_joins_anew(patch: pytest.MonkeyPatch) -> None:
    """Lanes lose what they were behind by."""
    real = Scheduler._load_lane

    def load(self: Scheduler, time: LaneTime) -> None:
        real(self, time._replace(virtual_time=max(time.virtual_time, self.queue(time.queue).clock)))

    patch.setattr(Scheduler, "_load_lane", load)


def a_start_without_grace(patch: pytest.MonkeyPatch) -> None:
    """What the wall clock says is over is over."""
    patch.setattr(recover, "BEATS_IN_A_LEASE", 1e9)


def an_end_that_forgets_the_running_count(patch: pytest.MonkeyPatch) -> None:
    real = Scheduler.end

    def end(self: Scheduler, tenant: str, queue: str, charge_back: int = 0) -> None:
        if charge_back == 0:
            real(self, tenant, queue)

    patch.setattr(Scheduler, "end", end)


def a_cancel_that_forgets_the_order(patch: pytest.MonkeyPatch) -> None:
    """A cancelled job is still to come."""
    patch.setattr(Scheduler, "withdraw", lambda self, job_id: self._jobs.get(job_id))


def a_doubt_that_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A COMMIT of unknown outcome is taken for one that failed."""
    patch.setattr(Writer, "_in_doubt", property(lambda _self: False, lambda _self, _value: None), raising=False)


def an_answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    real = Write.take

    def take(self: Write, outcome: Any) -> None:
        real(self, outcome)
        self.answer()

    patch.setattr(Write, "take", take)


def keys_that_are_not_held(patch: pytest.MonkeyPatch) -> None:
    """Twins look up their key at the same time, and the one that comes second is refused by the database."""

    @asynccontextmanager
    async def hold(_self: KeysInFlight, _keys: Any) -> AsyncIterator[None]:
        yield

    patch.setattr(KeysInFlight, "hold", hold)
    patch.setattr("app.flow.submit.dialect.violated_constraint", lambda _error: None)


def jobs_that_nobody_gives_back(patch: pytest.MonkeyPatch) -> None:
    """Who hung up has a lease."""
    patch.setattr(dispatch, "_give_back_soon", lambda _core, _leased: None)


def a_line_that_is_not_served(patch: pytest.MonkeyPatch) -> None:
    """Claims that wait are not told of new jobs."""

    async def serve(_core: Core, _tx: Any) -> None:
        pass

    patch.setattr("app.main.serve_waiting", serve)
    patch.setattr("app.main.serve_soon", lambda _core: None)


def a_cap_that_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    from app.scheduling.lanes import Tenant

    patch.setattr(Tenant, "may_run", property(lambda self: not self.paused))


def an_attempt_that_is_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    """A release counts."""

    def counting(ending: Ending) -> Ending:
        return ending._replace(values={name: value for name, value in ending.values.items() if name != "attempt"})

    _ending_otherwise(patch, counting)


def a_lane_that_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """A restart forgets what the last commit charged."""
    real = Scheduler.take_dirty
    patch.setattr(Scheduler, "take_dirty", lambda self: ([], real(self)[1]))


def a_beat_that_only_the_row_knows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "lease_renewed", lambda _self, _job, _length: None)


FAULTS: Final[tuple[Fault, ...]] = (
    a_lapse_that_looks_at_no_clock,
    a_report_under_any_token,
    a_release_without_refund,
    memory_that_keeps_what_was_rolled_back,
    an_order_that_keeps_what_was_rolled_back,
    leases_before_the_commit,
    a_start_that_joins_anew,
    a_start_without_grace,
    an_end_that_forgets_the_running_count,
    a_cancel_that_forgets_the_order,
    a_doubt_that_is_forgotten,
    an_answer_before_the_commit,
    keys_that_are_not_held,
    jobs_that_nobody_gives_back,
    a_line_that_is_not_served,
    a_cap_that_is_not_looked_at,
    an_attempt_that_is_not_taken_back,
    a_lane_that_is_not_written,
    a_beat_that_only_the_row_knows,
)
