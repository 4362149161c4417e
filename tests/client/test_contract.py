"""The client and the service say the same: every field, every default, every path."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, Struct

from app.api import jobs, keys, replicas, schemas, tenants, workers
from app.client import calls, wire
from app.client.exchange import Call
from app.scheduling.job import Outcome, State

HOLD = wire.Hold("0" * 32, "token")
ALL_CALLS: list[Call[Any]] = [
    calls.submit("acme", "suite"),
    calls.submit_batch([wire.NewJob(tenant="acme", test_suite="suite")]),
    calls.get_job(HOLD.id),
    calls.list_jobs(),
    calls.list_attempts(HOLD.id),
    calls.explain_job(HOLD.id),
    calls.cancel_job(HOLD.id),
    calls.cancel_jobs("acme"),
    calls.patch_job(HOLD.id, priority=1),
    calls.retry_job(HOLD.id),
    calls.stats(),
    calls.claim("worker"),
    calls.start(HOLD),
    calls.heartbeat(HOLD),
    calls.heartbeat_all([HOLD]),
    calls.complete(HOLD),
    calls.fail(HOLD, "error"),
    calls.release(HOLD),
    calls.finish([wire.Completed(HOLD.id, HOLD.token)]),
    calls.list_tenants(),
    calls.get_tenant("acme"),
    calls.put_tenant("acme"),
    calls.patch_tenant("acme"),
    calls.erase_tenant("acme"),
    calls.list_queues(),
    calls.put_queue("default"),
    calls.create_key("ci", "tenant", tenant="acme"),
    calls.list_keys(),
    calls.revoke_key(HOLD.id),
    calls.list_replicas(),
]


def fields(kind: type[Struct]) -> dict[str, Any]:
    """The fields and, of those that are fixed, the defaults."""
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (wire.Job, schemas.JobAnswer),
        (wire.ClaimedJob, schemas.ClaimedJob),
        (wire.Lease, schemas.LeaseAnswer),
        (wire.Attempt, schemas.AttemptAnswer),
        (wire.QueueCounts, schemas.QueueCounts),
        (wire.Stats, schemas.StatsAnswer),
        (wire.Tenant, schemas.TenantAnswer),
        (wire.Erasure, schemas.ErasureAnswer),
        (wire.Queue, schemas.QueueAnswer),
        (wire.ApiKey, schemas.KeyAnswer),
        (wire.NewApiKey, schemas.NewKeyAnswer),
        (wire.Replica, schemas.ReplicaAnswer),
        (wire.Beat, schemas.BeatItem),
        (wire.Report, schemas.FinishedItem),
        (wire.Explanation, schemas.ExplainAnswer),
        (wire.Terms, schemas.TermsAnswer),
        (wire.Reason, schemas.ReasonAnswer),
        (wire.Estimate, schemas.EstimateAnswer),
        (wire.ToBeNext, schemas.ToBeNextAnswer),
        (wire.Change, schemas.ChangeAnswer),
        (wire.Bound, schemas.BoundAnswer),
    ],
)
def test_answers_have_the_same_fields(ours: type[Struct], theirs: type[Struct]) -> None:
    assert set(fields(ours)) == set(fields(theirs))


def test_a_job_is_asked_for_with_the_same_fields_and_defaults() -> None:
    ours, theirs = fields(wire.JobRequest), fields(schemas.SubmitBody)
    assert set(ours) == set(theirs)
    left_out = {"delay_sec", "run_at"}
    assert {name: ours[name] for name in ours.keys() - left_out} == {
        name: theirs[name] for name in theirs.keys() - left_out
    }
    assert set(fields(wire.NewJob)) == set(fields(schemas.BatchItem))


def test_reports_and_holds_have_the_same_fields() -> None:
    theirs = fields(schemas.FinishItem)
    assert set(fields(wire.Completed)) | set(fields(wire.Failed)) | {"outcome"} == set(theirs)
    assert fields(wire.Failed)["retry"] is theirs["retry"]
    assert fields(wire.Failed)["error"] is NODEFAULT
    assert set(fields(wire.Hold)) == set(fields(schemas.LeaseItem))


def test_states_and_outcomes_are_the_same() -> None:
    assert [state.value for state in wire.State] == [state.value for state in State]
    assert {state.value for state in wire.State if state.is_final} == {state.value for state in State if state.is_final}
    assert {outcome.value for outcome in wire.Outcome} == {outcome.value for outcome in Outcome}


def test_every_call_is_one_that_the_service_takes_and_every_one_that_it_takes_is_a_call() -> None:
    handlers = [*jobs.HANDLERS, *workers.HANDLERS, *tenants.HANDLERS, *keys.HANDLERS, *replicas.HANDLERS]
    taken = {
        (method, re.sub(r"\{.*?\}", "*", path))
        for handler in handlers
        for path in handler.paths
        for method in handler.http_methods
    }
    named = re.compile(f"(?<=/){HOLD.id}|(?<=/tenants/)acme|(?<=/queues/)default")
    assert {(call.request.method, named.sub("*", call.request.path)) for call in ALL_CALLS} == taken
