"""Where things are on the page. Names go into queries, never into paths: a browser would take a tenant called `..` for
the folder above, however it is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode


def job(job_id: str) -> str:
    """A job's own page."""
    return f"/page/jobs/{job_id}"


def jobs(**wanted: object) -> str:
    """The jobs that match."""
    return _with_query("/page/jobs", wanted)


def tenant(name: str, **more: object) -> str:
    """A tenant's own page."""
    return _with_query("/page/tenant", {"name": name, **more})


def queue(name: str, **more: object) -> str:
    """A queue's own page."""
    return _with_query("/page/queue", {"name": name, **more})


def _with_query(path: str, wanted: Mapping[str, object]) -> str:
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    return f"{path}?{query}" if query else path
