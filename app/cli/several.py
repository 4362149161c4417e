"""For commands that take several ids: what can be done is done, and each that cannot is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from app.cli.exits import Exit, code_of
from app.cli.printable import printable
from app.client import Refused


def each(ids: Iterable[str], do: Callable[[str], None]) -> Exit:
    """Do it for each id, and say which were refused. The exit code is that of the first one that was; a service that is
    away ends it at once."""
    code = Exit.OK
    for job_id in ids:
        try:
            do(job_id)
        except Refused as error:
            click.echo(printable(f"{job_id}: {error}"), err=True)
            code = code or code_of(error)
    return code
