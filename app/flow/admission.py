"""The door: a token bucket and a limit on waiting jobs for each tenant. Buckets live in memory and are full
after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from app.clock import Clock
from app.errors import InvalidRequest, RateLimited
from app.scheduling.bucket import TokenBucket
from app.scheduling.tenant import DEFAULT_TENANT, TenantSettings


class Admission:
    """Knows the settings of every tenant that has any, and how fast each may submit."""

    def __init__(self, clock: Clock, default_rate_per_sec: float | None, default_burst: int | None) -> None:
        self._clock = clock
        self._default_rate = default_rate_per_sec
        self._default_burst = default_burst
        self._settings: dict[str, TenantSettings] = {}
        self._buckets: dict[str, TokenBucket] = {}

    def settings(self, tenant: str) -> TenantSettings:
        """The settings in force; the defaults for a tenant nobody set up."""
        return self._settings.get(tenant, DEFAULT_TENANT)

    def configured(self) -> Mapping[str, TenantSettings]:
        """The tenants that differ from the defaults."""
        return self._settings

    def configure(self, tenant: str, settings: TenantSettings) -> None:
        """Put settings in force; a bucket that has begun keeps its level as far as it fits."""
        if settings == DEFAULT_TENANT:
            self._settings.pop(tenant, None)
        else:
            self._settings[tenant] = settings
        if tenant in self._buckets:
            rate, burst = self.rate_in_force(settings)
            self._buckets[tenant].reconfigure(rate, burst, self._clock.monotonic_ns())

    def rate_in_force(self, settings: TenantSettings) -> tuple[float | None, int | None]:
        """(jobs a second, None: no limit; jobs at once: the rate rounded up where nothing else was said)."""
        if settings.unlimited:
            return None, settings.burst
        rate, burst = settings.rate_per_sec, settings.burst
        if rate is None:
            rate, burst = self._default_rate, burst or self._default_burst
        return rate, burst or (None if rate is None else ceil(rate))

    def admit(self, wanted: Mapping[str, int]) -> None:
        """Take tokens for so many jobs of each tenant, for all or none.

        Raises `RateLimited` if one has to wait, `InvalidRequest` if its burst could never admit that many.
        """
        taken: dict[str, int] = {}
        try:
            for tenant, n in wanted.items():
                self._take(tenant, n)
                taken[tenant] = n
        except (RateLimited, InvalidRequest):
            self.give_back(taken)
            raise

    def give_back(self, taken: Mapping[str, int]) -> None:
        """The jobs were not stored: their tokens are there again."""
        for tenant, n in taken.items():
            if tenant in self._buckets:
                self._buckets[tenant].give_back(n)

    def forget_full(self) -> None:
        """Drop buckets that a new one would equal, so that names used once do not pile up."""
        now = self._clock.monotonic_ns()
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}

    def _take(self, tenant: str, n: int) -> None:
        rate, burst = self.rate_in_force(self.settings(tenant))
        if rate is None:
            return
        now = self._clock.monotonic_ns()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = TokenBucket(rate, burst, now)
        if bucket.burst is not None and n > bucket.burst:
            raise InvalidRequest(
                f"{n} jobs of tenant {tenant} at once could never be admitted: its burst is {bucket.burst}"
            )
        if wait := bucket.take(n, now):
            raise RateLimited(tenant, wait)
