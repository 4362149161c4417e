"""The check of expressions finds what it is for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.deploy.promql import faults
from tests.metrics.scenes import Family


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("fairlane_nonsense > 1", "no series fairlane_nonsense"),
        ("rate(fairlane_attempts[5m])", "no series fairlane_attempts"),
        ("fairlane_wait_seconds", "no series fairlane_wait_seconds"),
        ('fairlane_jobs{tenant="acme"}', "fairlane_jobs has no label tenant"),
        ('fairlane_jobs{state="waiting"}', "state of fairlane_jobs is never waiting"),
        ('fairlane_jobs{state=~"queued|waiting"}', "state of fairlane_jobs is never waiting"),
        ('fairlane_http_requests_total{status=~"6.."}', "status of fairlane_http_requests_total is never 6.."),
        ("sum by (quue) (fairlane_jobs)", "no label quue to group by"),
        ("sum by (le) (fairlane_jobs)", "no label le to group by"),
    ],
)
def test_a_fault_is_found(expression: str, fault: str, families: Mapping[str, Family]) -> None:
    assert list(faults(expression, families)) == [fault]


def test_what_exists_is_let_pass(families: Mapping[str, Family]) -> None:
    expression = 'sum by (job, queue, le) (rate(fairlane_wait_seconds_bucket{queue=~"$queue", job="x"}[5m])) or up'
    assert list(faults(expression, families)) == []
