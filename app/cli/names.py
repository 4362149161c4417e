"""Names and ids on the command line: what a shell offers after Tab is what the service has, if it answers at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from app.cli.connection import URL, open_client
from app.client import DEFAULT_URL, Client, FairlaneError

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Named: TypeAlias = tuple[str, str]
"""A name or an id, and a word about it."""

PATIENCE_SEC: Final = 1.0
"""Who has pressed Tab waits for no longer."""

_MOST: Final = 100
_ID: Final = re.compile(r"[0-9a-f]{32}")
# A shell puts what is offered into the command line as it is. Names are chosen by tenants, and this is no place for
# a `$(...)` of theirs.
_HARMLESS: Final = re.compile(r"[\w@%+=:,./][\w@%+=:,./-]*")


def offering(find: Callable[[click.Context], Iterable[Named]]) -> Complete:
    """Offers what is found for a command line so far; nothing if it cannot be asked for."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(find(ctx))
        except (FairlaneError, click.ClickException):
            return []
        return [
            CompletionItem(name, help=about)
            for name, about in found
            if name.startswith(incomplete) and _HARMLESS.fullmatch(name)
        ]

    return complete


def _offering(look: Callable[[Client], Iterable[Named]]) -> Complete:
    """Offers what the service has that the command line means."""

    def find(ctx: click.Context) -> Iterable[Named]:
        url = ctx.params.get("url") or os.environ.get(URL, DEFAULT_URL)
        with open_client(url, PATIENCE_SEC) as client:
            return list(look(client))

    return offering(find)


_job_ids: Final = _offering(
    lambda client: ((job.id, f"{job.state} {job.tenant}") for job in client.list_jobs(limit=_MOST).jobs)
)


class JobId(click.ParamType[str]):
    """The id of a job; also as Postgres shows it, with dashes."""

    name = "id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id as the service takes it."""
        job_id = value.replace("-", "").lower()
        if not _ID.fullmatch(job_id):
            self.fail(f"{value!r} is no id of a job, which is 32 hex digits", param, ctx)
        return job_id

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The newest jobs' ids."""
        return _job_ids(ctx, param, incomplete)


JOB_ID: Final = JobId()
tenant_names: Final = _offering(lambda client: ((tenant.name, "") for tenant in client.list_tenants()))
queue_names: Final = _offering(lambda client: ((queue.name, "") for queue in client.list_queues()))
