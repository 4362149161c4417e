"""What can be set of a tenant, and what a tenant nobody set up has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """The settings of one tenant.

    `rate_per_sec` None means the service's default, or no limit at all if `unlimited`; `burst` None means
    the default's, else the rate rounded up. The caps are None where there is none: `max_running` counts
    leased jobs over all queues, `max_queued` those that wait.
    """

    weight: int = 1
    rate_per_sec: float | None = None
    unlimited: bool = False
    burst: int | None = None
    max_running: int | None = None
    max_queued: int | None = None
    paused: bool = False


DEFAULT_TENANT = TenantSettings()
