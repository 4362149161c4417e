"""The work that every contender is given, so that all store the same. It imports nothing: peers run elsewhere."""

from __future__ import annotations

from typing import Any, Final

PAYLOAD: Final[dict[str, Any]] = {
    "commit": "4f0c2b7ad19e6538c1d2e3f405162738495a6b7c",
    "branch": "main",
    "shard": 7,
    "of": 32,
    "retries": False,
}
"""A hundred bytes or so of JSON, as a build server sends them."""

TENANTS: Final = 5
