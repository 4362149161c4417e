"""The Python client of Fairlane: `Client` and `AsyncClient` for those who submit and look, `Worker` for those who do
the work. It needs httpx and msgspec, and nothing of the service.

    with Client("http://127.0.0.1:8080") as client:
        job = client.submit("acme", "tests/login", priority=2)
        print(client.wait_for(job.id).state)
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from app.client.client import DEFAULT_URL, AsyncClient, Client
from app.client.context import Context, GiveUp, Stopped, TryAgain
from app.client.errors import (
    Conflict,
    DeadlineExceeded,
    Denied,
    FairlaneError,
    FieldError,
    InvalidRequest,
    KeyReused,
    LeaseLost,
    NotFound,
    RateLimited,
    Refused,
    Unavailable,
    UnexpectedAnswer,
)
from app.client.retry import Backoff
from app.client.wire import (
    ApiKey,
    Attempt,
    Beat,
    Bound,
    Change,
    ClaimedJob,
    Completed,
    Erasure,
    Estimate,
    Explanation,
    Failed,
    Hold,
    Job,
    JobPage,
    Lease,
    NewApiKey,
    NewJob,
    Outcome,
    Queue,
    QueueCounts,
    Reason,
    Replica,
    Report,
    State,
    Stats,
    Tenant,
    Terms,
    ToBeNext,
)
from app.client.work import Handler
from app.client.worker import Worker

__all__ = [
    "DEFAULT_URL",
    "UNSET",
    "ApiKey",
    "AsyncClient",
    "Attempt",
    "Backoff",
    "Beat",
    "Bound",
    "Change",
    "ClaimedJob",
    "Client",
    "Completed",
    "Conflict",
    "Context",
    "DeadlineExceeded",
    "Denied",
    "Erasure",
    "Estimate",
    "Explanation",
    "Failed",
    "FairlaneError",
    "FieldError",
    "GiveUp",
    "Handler",
    "Hold",
    "InvalidRequest",
    "Job",
    "JobPage",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "NewApiKey",
    "NewJob",
    "NotFound",
    "Outcome",
    "Queue",
    "QueueCounts",
    "RateLimited",
    "Reason",
    "Refused",
    "Replica",
    "Report",
    "State",
    "Stats",
    "Stopped",
    "Tenant",
    "Terms",
    "ToBeNext",
    "TryAgain",
    "Unavailable",
    "UnexpectedAnswer",
    "UnsetType",
    "Worker",
]
